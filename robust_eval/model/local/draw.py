"""Random draws of tokens by a local model, independent of the rest of the batch.

Every answer has a counter-based stream of random numbers, and a token is drawn from a *blocked* cumulative
distribution: a block of the vocabulary, then a part of the block, then the token, each with a fresh uniform number.
Rounding noise in the logits (another batch size, another kernel) only moves a boundary within its level, so it changes
far fewer answers than in one flat cumulative distribution over the vocabulary.
"""

import hashlib
from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import fetched, rows_per_batch, sent, to_device
from robust_eval.model.token_texts import Ids

EPSILON = 1e-4
"""Minimum divisor of logits (Fastowski et al., Eq. 2); temperature 0 is greedy."""
PART = 16
BLOCK = PART * PART
LEVELS = 3
"""Uniform numbers of one token: for its block, its part of the block, and its place in the part."""
PAIRS_PER_BATCH = 16
"""Number of (node, temperature) pairs whose weights are held in memory together on the CPU: 16 × 150,000 tokens are 10
MB."""


def answer_uniforms(
    seed: int, question_id: str, rewrite: int, conditions: Sequence[tuple[float, int]], tokens: int
) -> NDArray[np.float64]:
    """Return the uniform numbers in [0, 1) for draws of answers (a,) by temperature and trial, (a, tokens, LEVELS): the
    same in every batch.

    Philox-4x64 (Salmon et al. 2011): the key is a hash of (seed, question, rewrite), and the upper half of the counter
    holds temperature and trial, so that no two streams overlap.
    """
    name = "\0".join([str(seed), question_id, str(rewrite)]).encode()
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint64)
    counters = np.zeros((len(conditions), 4), dtype=np.uint64)
    counters[:, 2] = [trial for _, trial in conditions]
    counters[:, 3] = np.array([temperature for temperature, _ in conditions], dtype=np.float64).view(np.uint64)
    bits = np.random.Philox(key=key)
    stream, state = np.random.Generator(bits), bits.state
    uniforms = np.empty((len(conditions), tokens, LEVELS))
    for answer, counter in zip(uniforms, counters, strict=True):  # a stream that is set costs less than a new one
        state["state"]["counter"] = counter
        bits.state = state
        stream.random(out=answer)
    return uniforms


class TokenDraws(NamedTuple):
    """Drawn tokens (a,) of a answers, their log-probabilities (a,) at temperature 1, and those (a,) at the sampling
    temperature, after truncation; ``top_logprobs`` (n, k) are the largest after each prefix, at temperature 1.
    """

    tokens: Ids
    token_logprobs: Floats
    sampling_logprobs: Floats
    top_logprobs: Floats


class LevelDraws:
    """Random draws of one token for each of a answers after the prefixes of a level; logits come in batches of rows.

    Each batch draws a block of the vocabulary for each answer; :meth:`result` draws the rest for all answers together,
    and waits for the device once.

    Parameters
    ----------
    node, temperature
        (a,) and (a,): the prefix that an answer continues, and its temperature (0: the most probable token, the first
        of equals). Equal (node, temperature) pairs are evaluated once.
    uniforms
        (a, LEVELS) the random numbers of the answers.
    generation
        Truncation; by default none.
    top
        Number of ``top_logprobs``.

    Notes
    -----
    p_i ∝ exp(log P_i / max(t, ε)) (Fastowski et al., Eq. 2). Weights are float32 relative to the largest; all sums
    over the vocabulary are float64.
    """

    def __init__(
        self, node: Ids, temperature: Floats, uniforms: Floats, generation: Generation | None = None, top: int = 0
    ) -> None:
        self._generation, self._top = generation or Generation(), top
        self._greedy = np.flatnonzero(temperature == 0)
        self._greedy = self._greedy[np.argsort(node[self._greedy], kind="stable")]
        sampled = np.flatnonzero(temperature != 0)
        levels, level = np.unique(temperature[sampled], return_inverse=True)
        pairs, pair = np.unique(node[sampled] * len(levels) + level, return_inverse=True)
        order = np.argsort(pair, kind="stable")
        self._sampled, self._pair = sampled[order], pair[order]
        self._pair_node, pair_level = np.divmod(pairs, max(1, len(levels)))
        self._divisors = np.maximum(levels, EPSILON).astype(np.float32)[pair_level]
        self._node, self._uniforms = node, uniforms
        self._rows = 0
        self._batches: list[list[Tensor]] = []
        self._chunks: list[list[Tensor]] = []

    def add(self, raw: Tensor, penalized: Tensor) -> None:
        """Draw blocks of tokens after a level's next rows: ``raw`` logits (m, V), and those that are drawn from."""
        first, self._rows = self._rows, self._rows + len(raw)
        normaliser, device = raw.logsumexp(dim=-1), raw.device
        largest = raw.topk(self._top, dim=-1).values if self._top else raw[:, :0]
        node = self._node[self._greedy]
        greedy = to_device(node[slice(*np.searchsorted(node, [first, self._rows]))] - first, device)
        best = penalized[greedy].argmax(dim=-1) if len(greedy) else greedy
        self._batches.append([normaliser, largest, best, raw[greedy, best] if len(greedy) else raw[0, :0]])

        start, stop = np.searchsorted(self._pair_node, [first, self._rows])
        answers = slice(*np.searchsorted(self._pair, [start, stop]))
        pair = self._pair[answers] - start
        size = rows_per_batch(raw.shape[1], device) if raw.is_cuda else PAIRS_PER_BATCH
        rows, divisors, within, row, uniforms = sent(
            device,
            self._pair_node[start:stop] - first,
            self._divisors[start:stop],
            pair % size,
            self._node[self._sampled[answers]] - first,
            self._uniforms[self._sampled[answers], 0],
        )
        values = _in_blocks(raw)
        below = penalized - penalized.amax(dim=-1, keepdim=True) if len(rows) else penalized
        for begin in range(0, len(rows), size):
            chunk, of_chunk = slice(begin, begin + size), slice(*np.searchsorted(pair, [begin, begin + size]))
            scaled = below[rows[chunk]]  # a copy, so that what follows can happen in place
            scaled /= divisors[chunk, None]
            if self._generation.truncates:
                scaled = self._generation.truncated(scaled)
            weights = _in_blocks(scaled.exp_())
            sums = weights.sum(dim=-1, dtype=torch.float64)
            block = _pick(sums[within[of_chunk]], uniforms[of_chunk])
            of_block = weights[within[of_chunk], block], values[row[of_chunk], block]
            self._chunks.append([block, sums.sum(dim=-1).log(), *of_block])

    def result(self) -> TokenDraws:
        """Return the draws, in the order of the answers."""
        columns = [*zip(*self._batches, strict=True)]
        if self._chunks:
            *known, weights, block_values = zip(*self._chunks, strict=True)
            part_uniforms, uniforms = sent(weights[0].device, *self._uniforms[self._sampled, 1:].T)
            inside = torch.cat(weights).view(-1, PART, PART).double()
            part = _pick(inside.sum(dim=-1), part_uniforms)
            leaf = inside.gather(1, part[:, None, None].expand(-1, 1, PART)).squeeze(1)
            place = _pick(leaf, uniforms)
            offset = torch.add(place, part, alpha=PART)[:, None]
            weight = leaf.gather(1, place[:, None])
            columns += [*known, (offset,), (torch.cat(block_values).gather(1, offset),), (weight.log(),)]
        arrays = iter(fetched(*chain.from_iterable(columns)))
        numbers = (np.concatenate([*islice(arrays, len(column))]) for column in columns)
        normalisers, likeliest, best_tokens, best_values, *drawn = numbers
        tokens, values, logprobs = np.zeros(len(self._node), dtype=np.intp), *np.zeros((2, len(self._node)))
        tokens[self._greedy], values[self._greedy] = best_tokens, best_values
        if drawn:
            blocks, log_totals, offsets, drawn_values, log_weights = drawn
            tokens[self._sampled], values[self._sampled] = blocks * BLOCK + offsets[:, 0], drawn_values[:, 0]
            logprobs[self._sampled] = log_weights[:, 0] - log_totals[self._pair]
        refuse_undefined(normalisers)
        at_one = np.subtract(values, normalisers[self._node], dtype=np.float32)  # as precise as the logits
        top = np.subtract(likeliest, normalisers[:, None], dtype=np.float32)
        return TokenDraws(tokens, at_one, logprobs, top)


def refuse_undefined(totals: Floats) -> None:
    """Raise FloatingPointError if a sum over logits is infinite or NaN, which shows that some logits are."""
    if not np.isfinite(totals).all():
        raise FloatingPointError("its logits are infinite or not numbers")


def _in_blocks(weights: Tensor) -> Tensor:
    """Return weights or logits (p, V) as (p, blocks, BLOCK), filled up with zeros."""
    if padding := -weights.shape[1] % BLOCK:
        weights = torch.nn.functional.pad(weights, (0, padding))
    return weights.view(len(weights), -1, BLOCK)


def _pick(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw indices (a,) with probability ∝ weights (a, m) ≥ 0 by the inverse cumulative distribution.

    A float64 ``uniform`` (a,) below 1 times the sum is below the sum, however it is rounded, so that no weight of 0 is
    drawn. If the weights are undefined, the index is arbitrary but valid; :func:`refuse_undefined` then ends the run.
    """
    cumulative = weights.cumsum(dim=-1)
    index = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True).squeeze(1)
    return index.clamp_(max=weights.shape[-1] - 1)
