"""Tree of all sampled answers to a question, at every temperature: each distinct prefix is evaluated once.

The logits after a prefix depend neither on the temperature nor on the trial. So the model evaluates the shared part of
all prompts once, the rest of each prompt once, and then, level by level, every distinct prefix of the answers to many
questions once, for any number of trials. One row of logits serves all temperatures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robust_eval.model.base import Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import rows_per_batch
from robust_eval.model.local.draw import LevelDraws, answer_uniforms
from robust_eval.model.local.prefixes import Prefixes
from robust_eval.model.local.vocabulary import NextTokenClassifier, Vocabulary
from robust_eval.model.token_texts import Ids

FINISH_REASONS = ("length", "stop", "closed")
LENGTH, STOP, CLOSED = range(3)


@dataclass(frozen=True)
class TokenPaths:
    """Sampled answers to one prompt as token paths: a = temperatures × trials, temperature-major, n tokens wide.

    ``lengths`` (a,) counts each answer's tokens; entries beyond are undefined. ``top_logprobs`` is (a, n, k).
    """

    temperatures: NDArray[np.float64]
    trials: NDArray[np.int64]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    token_logprobs: NDArray[np.float32]
    sampling_logprobs: NDArray[np.float32]
    top_logprobs: NDArray[np.float32] | None
    finish: NDArray[np.int8]

    def answers(self) -> list[tuple[int, ...]]:
        """Return the tokens of each sampled answer."""
        return [tuple(row[:length]) for row, length in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]

    def finish_reasons(self) -> list[str]:
        """Return the finish reason of each: stop, length, or closed (no continuation can make it wrong)."""
        return [FINISH_REASONS[place] for place in self.finish.tolist()]


@torch.inference_mode()
def sample_answers(
    prefixes: Prefixes,
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> list[TokenPaths]:
    """Sample the answers to a block of requests from a tree; ``prompts`` are their token ids."""
    width = max(request.max_new_tokens for request in requests)
    top = max(request.top_logprobs for request in requests)
    pending = [request.pending for request in requests]
    counts = [len(conditions) for conditions in pending]
    temperature, trial = np.array([condition for conditions in pending for condition in conditions]).T
    limit = np.repeat([request.max_new_tokens for request in requests], counts)
    tracker = _PrefixTracker(requests, vocabulary)
    uniforms = np.concatenate(
        [answer_uniforms(r.seed, r.question_id, r.variant, c, width) for r, c in zip(requests, pending, strict=True)]
    )

    count = len(temperature)
    tokens = np.zeros((count, width), dtype=np.int64)
    token_logprobs, sampling_logprobs = np.zeros((2, count, width), dtype=np.float32)
    top_logprobs = np.full((count, width, top), -np.inf, dtype=np.float32)  # beyond a small vocabulary: p = 0
    lengths = np.zeros(count, dtype=np.int64)
    finish = np.full(count, LENGTH, dtype=np.int8)

    alive = np.arange(count)
    node = np.repeat(np.arange(len(requests)), counts)
    occurred = [list(prompt) for prompt in prompts]
    size = len(vocabulary.ends)
    level = prefixes.roots(prompts)
    batch_rows = rows_per_batch(size, level.device)
    for step in range(width):
        draws = LevelDraws(node, temperature[alive], uniforms[alive, step], generation, min(top, size))
        for first in range(0, len(level), batch_rows):
            raw = level[first : first + batch_rows]
            draws.add(raw, generation.penalized(raw, occurred[first : first + len(raw)]))
        drawn = draws.result()
        tokens[alive, step] = drawn.tokens
        token_logprobs[alive, step] = drawn.token_logprobs
        sampling_logprobs[alive, step] = drawn.sampling_logprobs
        top_logprobs[alive, step, : drawn.top_logprobs.shape[-1]] = drawn.top_logprobs[node]
        lengths[alive] = step + 1

        distinct, which = np.unique(node * size + drawn.tokens, return_inverse=True)
        parents, continuations = np.divmod(distinct, size)
        ended = tracker.ended(parents, continuations)[which]
        finish[alive] = ended
        unfinished = (ended == LENGTH) & (lengths[alive] < limit[alive])
        continued, node = np.unique(which[unfinished], return_inverse=True)
        alive, parents, continuations = alive[unfinished], parents[continued], continuations[continued]
        if not len(alive):
            break
        if generation.repetition_penalty != 1.0:
            pairs = zip(parents.tolist(), continuations.tolist(), strict=True)
            occurred = [occurred[parent] + [token] for parent, token in pairs]
        tracker.descend(parents, continuations)
        level = prefixes.children(parents, continuations)

    columns = temperature, trial.astype(np.intp), tokens, lengths, token_logprobs, sampling_logprobs
    return _by_request(requests, counts, *columns, top_logprobs, finish)


class _PrefixTracker:
    """Texts of the tree's prefixes, for ends that depend on them: stop strings, and a stop at a right answer."""

    def __init__(self, requests: Sequence[Request], vocabulary: Vocabulary) -> None:
        matchers = [request.matcher if request.stop_on_match else None for request in requests]
        self._classifiers = [
            None if matcher is None else NextTokenClassifier(matcher, vocabulary) for matcher in matchers
        ]
        self._vocabulary = vocabulary
        self._reads = bool(vocabulary.stop) or any(self._classifiers)
        self._question = np.arange(len(requests))
        self._texts = [b""] * len(requests)

    def ended(self, prefixes: Ids, tokens: Ids) -> NDArray[np.int8]:
        """Return the finish (m,) of answers with these tokens after these prefixes; LENGTH for unfinished ones."""
        ended = np.where(self._vocabulary.ends[tokens], STOP, LENGTH).astype(np.int8)
        for place, (prefix, token) in enumerate(self._pairs(prefixes, tokens)):
            before, classifier = self._texts[prefix], self._classifiers[self._question[prefix]]
            text = before + self._vocabulary.texts.raw[token]
            if any(stop in text for stop in self._vocabulary.stop):
                ended[place] = STOP
            elif classifier is not None and classifier.decides(before, token):
                ended[place] = CLOSED
        return ended

    def descend(self, parents: Ids, tokens: Ids) -> None:
        """Descend to the next level of the sampled tree: ``tokens`` (m,) after ``parents`` (m,) of this one."""
        if self._reads:
            self._texts = [self._extended(parent, token) for parent, token in self._pairs(parents, tokens)]
            self._question = self._question[parents]

    def _extended(self, prefix: int, token: int) -> bytes:
        text, classifier = self._texts[prefix], self._classifiers[int(self._question[prefix])]
        if classifier is None:
            return text + self._vocabulary.texts.raw[token]
        return classifier.extended([text], [token])[0]

    def _pairs(self, prefixes: Ids, tokens: Ids) -> Iterable[tuple[int, int]]:
        """Return prefixes of sampled answers with their next tokens; none if no text is tracked."""
        return zip(prefixes.tolist(), tokens.tolist(), strict=True) if self._reads else ()


def _by_request(requests: Sequence[Request], counts: Sequence[int], *columns: NDArray[Any]) -> list[TokenPaths]:
    """Return the token paths of each request from the columns of a block, the fields of :class:`TokenPaths`, and the
    ``counts`` of answers to each.
    """
    bounds = np.cumsum([0, *counts])
    paths = []
    for request, start, stop in zip(requests, bounds[:-1], bounds[1:], strict=True):
        temperatures, trials, ids, length, logprobs, sampled, largest, finish = (c[start:stop] for c in columns)
        top = largest[..., : request.top_logprobs] if request.top_logprobs else None
        paths.append(TokenPaths(temperatures, trials, ids, length, logprobs, sampled, top, finish))
    return paths
