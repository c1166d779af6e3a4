"""Random draws of tokens, independent of the rest of the batch.

Every answer has a counter-based stream of random numbers, and a token is drawn from a *blocked* cumulative
distribution: a block of the vocabulary, then a part of the block, then the token, each with a fresh uniform number.
Rounding noise in the logits (another batch size, another kernel) only moves a boundary within its level, so it changes
far fewer answers than in one flat cumulative distribution over the vocabulary.
"""

import hashlib
import struct
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import to_device
from robust_eval.model.token_texts import Ids

EPSILON = 1e-4
"""Minimum divisor of logits (Fastowski et al., Eq. 2); temperature 0 is greedy."""
PART = 16
BLOCK = PART * PART
LEVELS = 3
"""Uniform numbers of one token: for its block, its part of the block, and its place in the part."""
PAIRS_PER_BATCH = {False: 16, True: 1024}
"""Number of (node, temperature) pairs whose weights are held in memory together: 16 × 150,000 tokens are 10 MB; many
on CUDA (True), where every call costs the same."""


def answer_uniforms(
    seed: int, question_id: str, rewrite: int, temperature: float, trial: int, tokens: int
) -> NDArray[np.float64]:
    """Return the uniform numbers in [0, 1) of one answer, (tokens, LEVELS): the same in every batch.

    Philox-4x64 (Salmon et al. 2011): the key is a hash of (seed, question, rewrite), and the upper half of the counter
    holds temperature and trial, so that no two streams overlap.
    """
    bits = struct.unpack("<Q", struct.pack("<d", temperature))[0]
    counter = np.array([0, 0, trial, bits], dtype=np.uint64)
    name = "\0".join([str(seed), question_id, str(rewrite)]).encode()
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter)).random((tokens, LEVELS))


class TokenDraws(NamedTuple):
    """Tokens (a,) and their log-probabilities (a,) at the sampling temperature, after truncation."""

    tokens: Tensor
    logprobs: Tensor


def draw(
    logits: Tensor, node: Ids, temperature: Floats, uniforms: Tensor, generation: Generation | None = None
) -> TokenDraws:
    """Draw one token for each of a answers. Nothing here waits for the device.

    Parameters
    ----------
    logits
        (n, V): a row for each distinct prefix.
    node, temperature
        (a,) and (a,): the row that an answer continues, and its temperature (0: the most probable token, the first of
        equals). Equal (node, temperature) pairs are evaluated once.
    uniforms
        (a, LEVELS) the random numbers of the answers, on the device of the logits.
    generation
        Truncation; None or its default draws from the whole vocabulary.

    Notes
    -----
    p_i ∝ exp(log P_i / max(t, ε)) (Fastowski et al., Eq. 2). Weights are float32 relative to the largest; all sums
    over the vocabulary are float64.
    """
    device = logits.device
    tokens = torch.empty(len(node), dtype=torch.long, device=device)
    logprobs = torch.zeros(len(node), dtype=torch.float64, device=device)
    greedy = to_device(np.flatnonzero(temperature == 0), device)
    if len(greedy):
        tokens[greedy] = logits[to_device(node[temperature == 0], device)].argmax(dim=-1)

    sampled = np.flatnonzero(temperature != 0)
    levels, level = np.unique(temperature[sampled], return_inverse=True)
    pairs, pair = np.unique(node[sampled] * len(levels) + level, return_inverse=True)
    order = np.argsort(pair, kind="stable")
    bounds = np.bincount(pair, minlength=len(pairs)).cumsum()
    largest = logits.amax(dim=-1, keepdim=True).float()
    batch_size = PAIRS_PER_BATCH[logits.is_cuda]
    for start in range(0, len(pairs), batch_size):
        chunk = pairs[start : start + batch_size]
        members = order[bounds[start - 1] if start else 0 : bounds[start + len(chunk) - 1]]
        answers = to_device(sampled[members], device)
        rows = to_device(chunk // len(levels), device)
        scaled = logits[rows].float()  # a copy, so that what follows can happen in place
        scaled -= largest[rows]
        divisors = to_device(np.maximum(levels[chunk % len(levels)], EPSILON), device).to(scaled.dtype)
        scaled /= divisors[:, None]
        if generation is not None and generation.truncates:
            scaled = generation.truncated(scaled)
        weights = _in_blocks(scaled.exp_())
        sums = weights.sum(dim=-1, dtype=torch.float64)
        row = to_device(pair[members] - start, device)
        tokens[answers], weight = _pick_tokens(weights, sums, row, uniforms[answers])
        logprobs[answers] = weight.log() - sums.sum(dim=-1)[row].log()
    return TokenDraws(tokens, logprobs)


def _pick_tokens(weights: Tensor, sums: Tensor, row: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens (a,), each picked with probability ∝ weight and never one of weight 0, and their weights (a,).

    ``weights`` (p, blocks, BLOCK) are those of p vocabularies, filled up with zeros, and ``sums`` (p, blocks) add up
    each block; ``row`` (a,) is the vocabulary of each answer, ``uniforms`` (a, LEVELS) its numbers.
    """
    block = _pick(sums[row], uniforms[:, 0])
    inside = weights[row, block].view(-1, PART, PART).double()
    part = _pick(inside.sum(dim=-1), uniforms[:, 1])
    leaf = inside[torch.arange(len(row), device=row.device), part]
    place = _pick(leaf, uniforms[:, 2])
    return block * BLOCK + part * PART + place, leaf.gather(1, place[:, None]).squeeze(1)


def _in_blocks(weights: Tensor) -> Tensor:
    """Return weights (p, V) as (p, blocks, BLOCK), filled up with zeros."""
    if padding := -weights.shape[1] % BLOCK:
        weights = torch.nn.functional.pad(weights, (0, padding))
    return weights.view(len(weights), -1, BLOCK)


def _pick(weights: Tensor, uniform: Tensor) -> Tensor:
    """Return indices (a,) drawn with probability ∝ weights (a, m) > 0 by the inverse cumulative distribution."""
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1:].contiguous()
    index = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)
    last = torch.searchsorted(cumulative, total)  # the last weight above 0: u · total may round up to total
    return torch.minimum(index, last).squeeze(1)
