"""All answers to a question, at every temperature, are paths in one tree: each distinct prefix is evaluated once.

The logits after a prefix depend neither on the temperature nor on the trial. So the prompt part that all questions
share goes through the model once, each question's own tokens once, and then, level by level, every distinct prefix of
the answers to many questions once, whatever the number of trials. One row of logits serves all temperatures.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Curve, Request
from robust_eval.model.combined import CombinedEstimate
from robust_eval.model.draw import LEVELS, answer_uniforms, draw
from robust_eval.model.generation import Generation
from robust_eval.model.token_texts import Ids
from robust_eval.model.vocabulary import Vocabulary

FINISH_REASONS = ("length", "stop", "closed")
LENGTH, STOP, CLOSED = range(3)


class Prefixes(Protocol):
    """Evaluates the prefixes of the answers to a block of prompts, level by level."""

    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Logits (prompts, V) after whole prompts."""

    def children(self, parents: Tensor, tokens: Tensor) -> Tensor:
        """Logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits, and
        ``tokens`` continues them.
        """


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
    finish: NDArray[np.int8]
    curve: Curve | None = None

    def finish_reason(self, row: int) -> str:
        """Why an answer ends: stop, length, or closed (it is right whatever follows)."""
        return FINISH_REASONS[self.finish[row]]


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
    reading = _Reading(requests, vocabulary, generation)

    count = len(conditions)
    tokens = torch.zeros((count, width), dtype=torch.long, device=device)
    token_logprobs = torch.zeros((count, width), device=device)
    sampling_logprobs = torch.zeros((count, width), device=device)
    top_logprobs = torch.full((count, width, top), -torch.inf, device=device)  # beyond a small vocabulary: p = 0
    lengths = torch.zeros(count, dtype=torch.long, device=device)
    finish = torch.full((count,), LENGTH, dtype=torch.int8, device=device)

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

        reading.visit(adjusted, alive, node, step)
        size = logits.shape[1]
        distinct, which = torch.unique(node * size + drawn.tokens, return_inverse=True)
        ended = reading.ended(distinct // size, distinct % size)[which]
        finish[alive] = ended
        goes_on = (ended == LENGTH) & (lengths[alive] < limit[alive])
        alive = alive[goes_on]
        if len(alive) == 0:
            break
        continued, node = torch.unique(which[goes_on], return_inverse=True)
        parents, continuations = distinct[continued] // size, distinct[continued] % size
        if generation.repetition_penalty != 1.0:
            pairs = zip(parents.tolist(), continuations.tolist(), strict=True)
            occurred = [occurred[parent] + [token] for parent, token in pairs]
        reading.descend(adjusted, parents, continuations)
        logits = prefixes.children(parents, continuations)

    columns = tokens, lengths, token_logprobs, sampling_logprobs, top_logprobs, finish
    return _by_request(requests, reading.curves(), *columns)


class _Reading:
    """Follows the text of the prefixes, where something depends on it: stop strings, and which answers are right."""

    def __init__(self, requests: Sequence[Request], vocabulary: Vocabulary, generation: Generation) -> None:
        self._requests = requests
        self._vocabulary = vocabulary
        self._generation = generation
        self._first = np.cumsum([0, *(request.answers for request in requests)])
        self._estimates = [
            CombinedEstimate(request.matcher, request.temperatures, request.trials, vocabulary)
            if request.matcher and 0 not in request.temperatures
            else None
            for request in requests
        ]
        self._reads = bool(vocabulary.stop) or any(self._estimates)
        self._question = np.arange(len(requests))
        self._texts = [b""] * len(requests)
        self._closed: list[Ids] = []

    def visit(self, logits: Tensor, alive: Tensor, node: Tensor, step: int) -> None:
        """Count what ends rightly after each prefix of a level; ``node`` (a,) is where the draws ``alive`` (a,) are."""
        self._closed = [np.empty(0, dtype=np.intp)] * len(self._texts)
        if not any(self._estimates):
            return
        draws, rows = alive.cpu().numpy(), node.cpu().numpy()
        for index, (a, b) in enumerate(self._bounds()):
            estimate = self._estimates[index]
            if estimate is None or a == b:
                continue
            own = (rows >= a) & (rows < b)
            last = step == self._requests[index].max_new_tokens - 1
            self._closed[a:b] = estimate.visit(
                logits[a:b], self._texts[a:b], draws[own] - self._first[index], rows[own] - a, self._generation, last
            )

    def ended(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """(m,) why an answer ends with these tokens after these prefixes; LENGTH where it does not."""
        ended = torch.where(self._vocabulary.ends[tokens], STOP, LENGTH).to(torch.int8)
        if not self._reads:
            return ended
        found = ended.cpu().numpy()
        for place, (row, token) in enumerate(zip(rows.tolist(), tokens.tolist(), strict=True)):
            text = self._texts[row] + self._vocabulary.texts.raw[token]
            if any(stop in text for stop in self._vocabulary.stop):
                found[place] = STOP
            elif not self._requests[self._question[row]].whole and token in self._closed[row]:
                found[place] = CLOSED
        return torch.from_numpy(found).to(ended.device)

    def descend(self, logits: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Go on to the next level's prefixes: ``tokens`` (m,) after the rows ``parents`` (m,) of this one."""
        if not self._reads:
            return
        rows, ids = parents.cpu().numpy(), tokens.cpu().numpy()
        for estimate, (a, b) in zip(self._estimates, self._bounds(), strict=True):
            if estimate is not None:
                own = (rows >= a) & (rows < b)
                estimate.descend(logits[a:b], rows[own] - a, ids[own], self._generation)
        raw = self._vocabulary.texts.raw
        self._texts = [self._texts[row] + raw[token] for row, token in zip(rows, ids, strict=True)]
        self._question = self._question[rows]

    def curves(self) -> list[Curve | None]:
        """What each request's draws say of the probability of a right answer."""
        return [estimate.curve() if estimate else None for estimate in self._estimates]

    def _bounds(self) -> list[tuple[int, int]]:
        """First row and end of each request's prefixes in the level."""
        places = np.searchsorted(self._question, np.arange(len(self._requests) + 1)).tolist()
        return list(itertools.pairwise(places))


def _by_request(requests: Sequence[Request], curves: Sequence[Curve | None], *arrays: Tensor) -> list[Paths]:
    """The answers of a block, in the order of :class:`Paths`' fields, parted into those to each request."""
    bounds = np.cumsum([0, *(request.answers for request in requests)])
    columns = [array.cpu().numpy() for array in arrays]
    paths = []
    for request, curve, start, stop in zip(requests, curves, bounds[:-1], bounds[1:], strict=True):
        ids, length, logprobs, sampled, largest, finish = (column[start:stop] for column in columns)
        paths.append(
            Paths(
                temperatures=np.repeat(request.temperatures, request.trials),
                trials=np.tile(np.arange(request.trials), len(request.temperatures)),
                tokens=ids,
                lengths=length,
                token_logprobs=logprobs,
                sampling_logprobs=sampled,
                top_logprobs=largest[..., : request.top_logprobs] if request.top_logprobs else None,
                finish=finish,
                curve=curve,
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
