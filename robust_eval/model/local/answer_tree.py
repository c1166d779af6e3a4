"""All answers to a question, at every temperature, are paths in one tree: each distinct prefix is evaluated once.

The logits after a prefix depend neither on the temperature nor on the trial. So the prompt part that all questions
share goes through the model once, each question's own tokens once, and then, level by level, every distinct prefix of
the answers to many questions once, whatever the number of trials. One row of logits serves all temperatures.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import COMMON, Curve, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.combined import CombinedEstimate
from robust_eval.model.local.common_draw import CommonNumbers
from robust_eval.model.local.draw import LEVELS, Independent, Picks, answer_uniforms, draw
from robust_eval.model.local.output_head import rows_at_once
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import Ids

FINISH_REASONS = ("length", "stop", "closed")
LENGTH, STOP, CLOSED = range(3)


class Logits(Protocol):
    """Logits (n, V) after n prefixes; some rows at a time, because all of them may not fit into the memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


class Prefixes(Protocol):
    """Evaluates the prefixes of the answers to a block of prompts, level by level."""

    def roots(self, prompts: Sequence[Sequence[int]]) -> Logits:
        """Return logits (prompts, V) after whole prompts."""

    def children(self, parents: Tensor, tokens: Tensor) -> Logits:
        """Return logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits,
        and ``tokens`` continues them.
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
        """Say why an answer ends: stop, length, or closed (it is right whatever follows)."""
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
    conditions = [(request, *condition) for request in requests for condition in request.wanted]
    temperature = torch.tensor([t for _, t, _ in conditions], dtype=torch.float64, device=device)
    limit = torch.tensor([r.max_new_tokens for r, _, _ in conditions], device=device)
    numbers = _numbers(conditions, width, vocabulary)
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
    size = len(vocabulary.ends)
    level = prefixes.roots(prompts)
    for step in range(width):
        grown: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        nodes = 0
        for first in range(0, len(level), rows_at_once(size, device)):
            raw = level[first : first + rows_at_once(size, device)]
            here = (node >= first) & (node < first + len(raw))
            own, row = alive[here], node[here] - first
            logits = generation.penalized(raw, occurred[first : first + len(raw)])
            drawn = draw(logits, row, temperature[own], numbers(step, own), generation)
            normaliser = raw.logsumexp(dim=-1)
            tokens[own, step] = drawn.tokens
            token_logprobs[own, step] = raw[row, drawn.tokens] - normaliser[row]
            sampling_logprobs[own, step] = drawn.logprobs.float()
            if top:
                likeliest = raw.topk(min(top, size), dim=-1).values
                top_logprobs[own, step, : likeliest.shape[-1]] = (likeliest - normaliser[:, None])[row]
            lengths[own] = step + 1

            reading.visit(logits, first, own, row, step)
            distinct, which = torch.unique(row * size + drawn.tokens, return_inverse=True)
            ended = reading.ended(distinct // size, distinct % size)[which]
            finish[own] = ended
            goes_on = (ended == LENGTH) & (lengths[own] < limit[own])
            continued, place = torch.unique(which[goes_on], return_inverse=True)
            parents, continuations = distinct[continued] // size, distinct[continued] % size
            reading.descend(logits, parents, continuations)
            grown.append((own[goes_on], nodes + place, first + parents, continuations))
            nodes += len(parents)
        if nodes == 0:
            break
        alive, node, parents, continuations = (torch.cat(part) for part in zip(*grown, strict=True))
        if generation.repetition_penalty != 1.0:
            pairs = zip(parents.tolist(), continuations.tolist(), strict=True)
            occurred = [occurred[parent] + [token] for parent, token in pairs]
        reading.go_on()
        level = prefixes.children(parents, continuations)

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
            CombinedEstimate(request.matcher, request.temperatures, request.trials, vocabulary, request.coupling)
            if request.matcher and 0 not in request.temperatures
            else None
            for request in requests
        ]
        self._reads = bool(vocabulary.stop) or any(self._estimates)
        self._question = np.arange(len(requests))
        self._texts = [b""] * len(requests)
        self._begins = 0
        self._closed: list[Ids] = []
        self._following: list[tuple[int, bytes]] = []

    def visit(self, logits: Tensor, begins: int, draws: Tensor, rows: Tensor, step: int) -> None:
        """Count what ends rightly after some prefixes of the level, from the row ``begins`` on.

        ``logits`` (n, V) are theirs; ``rows`` (a,) among them is where the draws ``draws`` (a,) are.
        """
        self._begins = begins
        self._closed = [np.empty(0, dtype=np.intp)] * len(logits)
        if not any(self._estimates):
            return
        drawn, places = draws.cpu().numpy(), rows.cpu().numpy()
        for estimate, index, a, b in self._parts(len(logits)):
            own = (places >= a) & (places < b)
            last = step == self._requests[index].max_new_tokens - 1
            texts = self._texts[begins + a : begins + b]
            self._closed[a:b] = estimate.visit(
                logits[a:b], texts, drawn[own] - self._first[index], places[own] - a, self._generation, last
            )

    def ended(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Return (m,) why an answer ends with these tokens after these prefixes; LENGTH where it does not."""
        ended = torch.where(self._vocabulary.ends[tokens], STOP, LENGTH).to(torch.int8)
        if not self._reads:
            return ended
        found = ended.cpu().numpy()
        for place, (row, token) in enumerate(zip(rows.tolist(), tokens.tolist(), strict=True)):
            text = self._texts[self._begins + row] + self._vocabulary.texts.raw[token]
            if any(stop in text for stop in self._vocabulary.stop):
                found[place] = STOP
            elif not self._requests[self._question[self._begins + row]].whole and token in self._closed[row]:
                found[place] = CLOSED
        return torch.from_numpy(found).to(ended.device)

    def descend(self, logits: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Add prefixes of the next level: ``tokens`` (m,) after the rows ``parents`` (m,) that were visited."""
        if not self._reads:
            return
        rows, ids = parents.cpu().numpy(), tokens.cpu().numpy()
        for estimate, _, a, b in self._parts(len(logits)):
            own = (rows >= a) & (rows < b)
            estimate.descend(logits[a:b], rows[own] - a, ids[own], self._generation)
        raw = self._vocabulary.texts.raw
        for row, token in zip(self._begins + rows, ids, strict=True):
            self._following.append((self._question[row], self._texts[row] + raw[token]))

    def go_on(self) -> None:
        """Make the next level, whose prefixes are complete, the level."""
        if self._reads:
            self._question = np.array([question for question, _ in self._following])
            self._texts = [text for _, text in self._following]
            self._following = []
            for estimate in self._estimates:
                if estimate is not None:
                    estimate.go_on()

    def curves(self) -> list[Curve | None]:
        """Return what each request's draws say of the probability of a right answer."""
        return [estimate.curve() if estimate else None for estimate in self._estimates]

    def _parts(self, rows: int) -> Iterator[tuple[CombinedEstimate, int, int, int]]:
        """Yield each estimate with prefixes among the ``rows`` visited, its question, its first row and its end."""
        questions, firsts = np.unique(self._question[self._begins : self._begins + rows], return_index=True)
        for index, a, b in zip(questions.tolist(), firsts.tolist(), [*firsts[1:].tolist(), rows], strict=True):
            estimate = self._estimates[index]
            if estimate is not None:
                yield estimate, index, a, b


def _by_request(requests: Sequence[Request], curves: Sequence[Curve | None], *arrays: Tensor) -> list[Paths]:
    """Return the answers of a block, in the order of :class:`Paths`' fields, parted into those to each request."""
    bounds = np.cumsum([0, *(request.answers for request in requests)])
    columns = [array.cpu().numpy() for array in arrays]
    paths = []
    for request, curve, start, stop in zip(requests, curves, bounds[:-1], bounds[1:], strict=True):
        wanted = request.wanted
        ids, length, logprobs, sampled, largest, finish = (column[start:stop] for column in columns)
        paths.append(
            Paths(
                temperatures=np.array([temperature for temperature, _ in wanted]),
                trials=np.array([trial for _, trial in wanted], dtype=np.intp),
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


def _numbers(
    conditions: Sequence[tuple[Request, float, int]], width: int, vocabulary: Vocabulary
) -> Callable[[int, Tensor], Picks]:
    """Return what picks the tokens at a step of some answers (a,)."""
    device = vocabulary.ends.device
    if conditions and conditions[0][0].coupling == COMMON:
        answers = [(request, trial) for request, _, trial in conditions]
        return CommonNumbers(answers, width, len(vocabulary.ends), device).at
    uniforms = torch.from_numpy(_uniforms(conditions, width)).to(device)
    return lambda step, own: Independent(uniforms[own, step])


def _uniforms(conditions: Sequence[tuple[Request, float, int]], width: int) -> NDArray[np.float64]:
    """Return (answers, width, LEVELS) uniform numbers; greedy answers need none."""
    uniforms = np.zeros((len(conditions), width, LEVELS))
    for row, (request, temperature, trial) in zip(uniforms, conditions, strict=True):
        if temperature > 0:
            row[:] = answer_uniforms(request.seed, request.question_id, request.rewrite, temperature, trial, width)
    return uniforms
