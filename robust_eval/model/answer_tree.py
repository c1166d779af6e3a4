"""All answers to a question, at every temperature, are paths in one tree: each distinct prefix is evaluated once.

The logits after a prefix depend neither on the temperature nor on the trial. So the prompt part that all questions
share goes through the model once, each question's own tokens once, and then, level by level, every distinct prefix of
the answers to many questions once, whatever the number of trials. One row of logits serves all temperatures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Request
from robust_eval.model.draw import LEVELS, answer_uniforms, draw
from robust_eval.model.generation import Generation


class Prefixes(Protocol):
    """Evaluates the prefixes of the answers to a block of prompts, level by level."""

    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Logits (prompts, V) after whole prompts."""

    def children(self, parents: Tensor, tokens: Tensor) -> Tensor:
        """Logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits, and
        ``tokens`` continues them.
        """


@dataclass(frozen=True)
class Vocabulary:
    """What an answer needs to know of each token id, (V,)."""

    ends: Tensor
    """The token ends the answer: an end-of-text token or, in plain text, one with a line break."""
    carries: Tensor
    """The token carries text of the answer (before its line break, if it has one)."""


@dataclass(frozen=True)
class Paths:
    """The answers to one prompt as token paths: a = temperatures × trials answers, temperature-major, n tokens wide.

    ``lengths`` (a,) counts each answer's tokens; what lies beyond is undefined. ``top_logprobs`` is (a, n, k).
    """

    temperatures: NDArray[np.float64]
    trials: NDArray[np.int64]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    token_logprobs: NDArray[np.float32]
    sampling_logprobs: NDArray[np.float32]
    top_logprobs: NDArray[np.float32] | None
    stopped: NDArray[np.bool_]


@torch.inference_mode()
def sample_answers(
    prefixes: Prefixes,
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> list[Paths]:
    """Draw the answers to a block of requests; ``prompts`` are their token ids."""
    device = vocabulary.ends.device
    width = max(request.max_new_tokens for request in requests)
    top = max(request.top_logprobs for request in requests)
    owner = torch.tensor([i for i, request in enumerate(requests) for _ in range(request.answers)], device=device)
    conditions = [(r, t, k) for r in requests for t in r.temperatures for k in range(r.trials)]
    temperature = torch.tensor([t for _, t, _ in conditions], dtype=torch.float64, device=device)
    limit = torch.tensor([r.max_new_tokens for r, _, _ in conditions], device=device)
    uniforms = torch.from_numpy(_uniforms(conditions, width)).to(device)

    count = len(conditions)
    tokens = torch.zeros((count, width), dtype=torch.long, device=device)
    token_logprobs = torch.zeros((count, width), device=device)
    sampling_logprobs = torch.zeros((count, width), device=device)
    top_logprobs = torch.full((count, width, top), -torch.inf, device=device)  # beyond a small vocabulary: p = 0
    lengths = torch.zeros(count, dtype=torch.long, device=device)

    alive = torch.arange(count, device=device)
    node = owner
    occurred = [list(prompt) for prompt in prompts]
    logits = prefixes.roots(prompts)
    for step in range(width):
        adjusted = generation.penalized(logits, occurred)
        drawn = draw(adjusted, node, temperature[alive], uniforms[alive, step], generation)
        normaliser = logits.logsumexp(dim=-1)
        tokens[alive, step] = drawn.tokens
        token_logprobs[alive, step] = logits[node, drawn.tokens] - normaliser[node]
        sampling_logprobs[alive, step] = drawn.logprobs.float()
        if top:
            likeliest = logits.topk(min(top, logits.shape[-1]), dim=-1).values
            top_logprobs[alive, step, : likeliest.shape[-1]] = (likeliest - normaliser[:, None])[node]
        lengths[alive] = step + 1

        goes_on = ~vocabulary.ends[drawn.tokens] & (lengths[alive] < limit[alive])
        alive = alive[goes_on]
        if len(alive) == 0:
            break
        size = logits.shape[1]
        distinct, node = torch.unique(node[goes_on] * size + drawn.tokens[goes_on], return_inverse=True)
        parents, continuations = distinct // size, distinct % size
        if generation.repetition_penalty != 1.0:
            pairs = zip(parents.tolist(), continuations.tolist(), strict=True)
            occurred = [occurred[parent] + [token] for parent, token in pairs]
        logits = prefixes.children(parents, continuations)

    stopped = vocabulary.ends[tokens.gather(1, lengths[:, None] - 1).squeeze(1)]
    return _by_request(requests, tokens, lengths, token_logprobs, sampling_logprobs, top_logprobs, stopped)


def _by_request(requests: Sequence[Request], *arrays: Tensor) -> list[Paths]:
    """The answers of a block, in the order of :class:`Paths`' fields, parted into those to each request."""
    bounds = np.cumsum([0, *(request.answers for request in requests)])
    columns = [array.cpu().numpy() for array in arrays]
    paths = []
    for request, start, stop in zip(requests, bounds[:-1], bounds[1:], strict=True):
        ids, length, logprobs, sampled, largest, ended = (column[start:stop] for column in columns)
        paths.append(
            Paths(
                temperatures=np.repeat(request.temperatures, request.trials),
                trials=np.tile(np.arange(request.trials), len(request.temperatures)),
                tokens=ids,
                lengths=length,
                token_logprobs=logprobs,
                sampling_logprobs=sampled,
                top_logprobs=largest[..., : request.top_logprobs] if request.top_logprobs else None,
                stopped=ended,
            )
        )
    return paths


def _uniforms(conditions: Sequence[tuple[Request, float, int]], width: int) -> NDArray[np.float64]:
    """(answers, width, LEVELS) uniform numbers; greedy answers need none."""
    uniforms = np.zeros((len(conditions), width, LEVELS))
    for row, (request, temperature, trial) in zip(uniforms, conditions, strict=True):
        if temperature > 0:
            row[:] = answer_uniforms(request.seed, request.question_id, request.rewrite, temperature, trial, width)
    return uniforms
