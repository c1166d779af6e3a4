"""All answers to a question, at every temperature, are paths in one tree: each distinct prefix is evaluated once.

The logits after a prefix depend neither on the temperature nor on the trial. So the prompt part that all questions
share goes through the model once, each question's own tokens once, and then, level by level, every distinct prefix of
the answers to many questions once, whatever the number of trials. One row of logits serves all temperatures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import COMMON, Curve, Floats, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.combined import CombinedEstimates
from robust_eval.model.local.common_draw import CommonNumbers
from robust_eval.model.local.draw import LEVELS, Drawn, Independent, Picks, answer_uniforms, draw
from robust_eval.model.local.output_head import rows_at_once
from robust_eval.model.local.tempered import offsets_of, tempered_masses
from robust_eval.model.local.token_outcomes import Kinds
from robust_eval.model.local.transfers import fetched, to_device
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import Ids, Mask

FINISH_REASONS = ("length", "stop", "closed")
LENGTH, STOP, CLOSED = range(3)


class Logits(Protocol):
    """Logits (n, V) after n prefixes; some rows at a time, because all of them may not fit into the memory."""

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


class Prefixes(Protocol):
    """Evaluates the prefixes of the answers to a block of prompts, level by level."""

    def roots(self, prompts: Sequence[Sequence[int]]) -> Logits:
        """Return logits (prompts, V) after whole prompts."""

    def children(self, parents: Ids, tokens: Ids) -> Logits:
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
    width = max(request.max_new_tokens for request in requests)
    top = max(request.top_logprobs for request in requests)
    conditions = [(request, *condition) for request in requests for condition in request.wanted]
    temperature = np.array([t for _, t, _ in conditions])
    limit = np.array([r.max_new_tokens for r, _, _ in conditions])
    reading = _Reading(requests, vocabulary)

    count = len(conditions)
    tokens = np.zeros((count, width), dtype=np.int64)
    token_logprobs, sampling_logprobs = np.zeros((2, count, width), dtype=np.float32)
    top_logprobs = np.full((count, width, top), -np.inf, dtype=np.float32)  # beyond a small vocabulary: p = 0
    lengths = np.zeros(count, dtype=np.int64)
    finish = np.full(count, LENGTH, dtype=np.int8)

    alive = np.arange(count)
    node = np.repeat(np.arange(len(requests)), [request.answers for request in requests])
    occurred = [list(prompt) for prompt in prompts]
    size = len(vocabulary.ends)
    level = prefixes.roots(prompts)
    at_once = rows_at_once(size, level.device)
    picks = _picks(conditions, width, size, level.device)
    for step in range(width):
        grown: list[tuple[Ids, Ids, Ids, Ids]] = []
        nodes = 0
        for first in range(0, len(level), at_once):
            raw = level[first : first + at_once]
            here = (node >= first) & (node < first + len(raw))
            own, row = alive[here], node[here] - first
            logits = generation.penalized(raw, occurred[first : first + len(raw)])
            drawn = draw(logits, row, temperature[own], picks(step, own), generation)
            seen = _seen(raw, logits, row, drawn, min(top, size), reading.visit(first, len(raw), step), generation)
            tokens[own, step] = seen.tokens
            token_logprobs[own, step] = seen.token_logprobs
            sampling_logprobs[own, step] = seen.sampling_logprobs
            top_logprobs[own, step, : seen.top_logprobs.shape[-1]] = seen.top_logprobs[row]
            lengths[own] = step + 1

            reading.count(seen, own, row)
            distinct, some, which = np.unique(row * size + seen.tokens, return_index=True, return_inverse=True)
            parents, continuations = np.divmod(distinct, size)
            ended = reading.ended(parents, continuations)[which]
            finish[own] = ended
            goes_on = (ended == LENGTH) & (lengths[own] < limit[own])
            continued, place = np.unique(which[goes_on], return_inverse=True)
            parents, continuations = parents[continued], continuations[continued]
            reading.descend(parents, continuations, seen, some[continued])
            grown.append((own[goes_on], nodes + place, first + parents, continuations))
            nodes += len(parents)
        if nodes == 0:
            break
        alive, node, parents, continuations = (np.concatenate(part) for part in zip(*grown, strict=True))
        if generation.repetition_penalty != 1.0:
            pairs = zip(parents.tolist(), continuations.tolist(), strict=True)
            occurred = [occurred[parent] + [token] for parent, token in pairs]
        reading.go_on()
        level = prefixes.children(parents, continuations)

    columns = tokens, lengths, token_logprobs, sampling_logprobs, top_logprobs, finish
    return _by_request(requests, [reading.curve(index) for index in range(len(requests))], *columns)


class _Wanted(NamedTuple):
    """Of which of the rows visited the probabilities of which tokens are wanted, at which temperatures."""

    rows: Ids
    sets: list[tuple[Ids, Ids]]
    temperatures: Sequence[float]


class _Seen(NamedTuple):
    """What the device has computed of a draws and n prefixes, as arrays.

    ``top_logprobs`` is (n, k); ``log_total`` and ``shares`` are the masses that were wanted, ``offsets`` (a,) and
    ``possible`` (a, T) those of :func:`offsets_of`.
    """

    tokens: Ids
    token_logprobs: Floats
    sampling_logprobs: Floats
    top_logprobs: Floats
    log_total: Floats
    shares: Floats
    offsets: Floats
    possible: Mask | None


def _seen(
    raw: Tensor, logits: Tensor, row: Ids, drawn: Drawn, top: int, wanted: _Wanted, generation: Generation
) -> _Seen:
    """Return what was drawn after rows of logits, ``raw`` and penalised, and what is wanted of them.

    All of it is computed before the device is waited for, once.
    """
    rows = to_device(row, raw.device)
    normaliser = raw.logsumexp(dim=-1)
    likeliest = raw.topk(top, dim=-1).values - normaliser[:, None] if top else raw[:, :0]
    columns = [drawn.tokens, raw[rows, drawn.tokens] - normaliser[rows], drawn.logprobs.float(), likeliest]
    visited = logits[to_device(wanted.rows, raw.device)]
    masses = tempered_masses(visited, wanted.temperatures, wanted.sets, generation)
    columns += [masses.log_total, masses.shares]
    if wanted.temperatures:
        columns += offsets_of(logits, rows, drawn.tokens, wanted.temperatures, generation)
    tokens, token_logprobs, sampled, largest, log_total, shares, *rest = fetched(*columns)
    offsets = rest[0] if rest else np.empty(0)
    possible = rest[1] > 0 if len(rest) > 1 else None
    return _Seen(tokens.astype(np.int64), token_logprobs, sampled, largest, log_total, shares, offsets, possible)


class _Reading:
    """Follows the text of the prefixes, where something depends on it: stop strings, and which answers are right."""

    def __init__(self, requests: Sequence[Request], vocabulary: Vocabulary) -> None:
        self._requests = requests
        self._vocabulary = vocabulary
        self._estimates = CombinedEstimates(requests, vocabulary)
        self._reads = bool(vocabulary.stop) or bool(self._estimates)
        self._question = np.arange(len(requests))
        self._texts = [b""] * len(requests)
        self._begins = 0
        self._kinds: list[Kinds | None] = []
        self._following: list[tuple[int, bytes]] = []

    def visit(self, begins: int, rows: int, step: int) -> _Wanted:
        """Read some prefixes of the level, ``rows`` from ``begins`` on, and return what is wanted of them."""
        self._begins = begins
        if not self._estimates:
            return _Wanted(np.empty(0, dtype=np.intp), [], ())
        questions, texts = self._question[begins : begins + rows], self._texts[begins : begins + rows]
        lasts = [step == self._requests[question].max_new_tokens - 1 for question in questions]
        self._kinds = [self._estimates.kinds(*of) for of in zip(questions, texts, lasts, strict=True)]
        return _Wanted(*self._estimates.visit(begins, self._kinds, lasts), self._estimates.temperatures)

    def count(self, seen: _Seen, draws: Ids, rows: Ids) -> None:
        """Count what ends rightly after the prefixes visited; ``rows`` (a,) is where the draws ``draws`` (a,) are."""
        if self._estimates:
            self._estimates.count(seen.log_total, seen.shares, draws, rows)

    def ended(self, rows: Ids, tokens: Ids) -> NDArray[np.int8]:
        """Return (m,) why an answer ends with these tokens after these prefixes; LENGTH where it does not."""
        ended = np.where(self._vocabulary.ends[tokens], STOP, LENGTH).astype(np.int8)
        for place, (row, token) in enumerate(zip(rows.tolist(), tokens.tolist(), strict=True)) if self._reads else ():
            text = self._texts[self._begins + row] + self._vocabulary.texts.raw[token]
            kinds = self._kinds[row] if self._estimates else None
            whole = self._requests[self._question[self._begins + row]].whole
            if any(stop in text for stop in self._vocabulary.stop):
                ended[place] = STOP
            elif not whole and kinds is not None and token in kinds.closed:
                ended[place] = CLOSED
        return ended

    def descend(self, rows: Ids, tokens: Ids, seen: _Seen, draws: Ids) -> None:
        """Add prefixes of the next level: ``tokens`` (m,) after the rows (m,) that were visited, as drawn by some of
        the ``draws`` (m,) that were seen.
        """
        if not self._reads:
            return
        if self._estimates:
            possible = None if seen.possible is None else seen.possible[draws]
            self._estimates.descend(rows, tokens, seen.offsets[draws], possible)
        raw = self._vocabulary.texts.raw
        for row, token in zip(self._begins + rows, tokens, strict=True):
            self._following.append((self._question[row], self._texts[row] + raw[token]))

    def go_on(self) -> None:
        """Make the next level, whose prefixes are complete, the level."""
        if self._reads:
            self._question = np.array([question for question, _ in self._following])
            self._texts = [text for _, text in self._following]
            self._following = []
        if self._estimates:
            self._estimates.go_on()

    def curve(self, question: int) -> Curve | None:
        """Return what a request's draws say of the probability of a right answer."""
        return self._estimates.curve(question)


def _by_request(requests: Sequence[Request], curves: Sequence[Curve | None], *columns: NDArray[Any]) -> list[Paths]:
    """Return the answers of a block, in the order of :class:`Paths`' fields, parted into those to each request."""
    bounds = np.cumsum([0, *(request.answers for request in requests)])
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


def _picks(
    conditions: Sequence[tuple[Request, float, int]], width: int, vocabulary: int, device: torch.device
) -> Callable[[int, Ids], Picks]:
    """Return what picks the tokens at a step of some answers (a,)."""
    if conditions and conditions[0][0].coupling == COMMON:
        answers = [(request, trial) for request, _, trial in conditions]
        return CommonNumbers(answers, width, vocabulary, device).at
    uniforms = _uniforms(conditions, width)
    return lambda step, own: Independent(to_device(uniforms[own, step], device))


def _uniforms(conditions: Sequence[tuple[Request, float, int]], width: int) -> NDArray[np.float64]:
    """Return (answers, width, LEVELS) uniform numbers; greedy answers need none."""
    uniforms = np.zeros((len(conditions), width, LEVELS))
    for row, (request, temperature, trial) in zip(uniforms, conditions, strict=True):
        if temperature > 0:
            row[:] = answer_uniforms(request.seed, request.question_id, request.rewrite, temperature, trial, width)
    return uniforms
