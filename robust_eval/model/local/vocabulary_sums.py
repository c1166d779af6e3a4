"""Sums of exp(x / t) over the vocabulary, for CUDA, in an order that depends only on the tokens of a sum.

So a row has the same sums alone and in any batch. Triton's kernels read the logits x once for all temperatures t, and
once for the tokens with each outcome. Where they cannot be used, torch's operations compute the same sums.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from subprocess import SubprocessError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robust_eval.error import first_line
from robust_eval.model.base import Floats
from robust_eval.model.local.device import is_out_of_memory, sent, to_device
from robust_eval.model.local.vocabulary import OTHER, RIGHT, OutcomeTable, TokenSets
from robust_eval.model.token_texts import Ids, NextTokenOutcomes

try:
    import triton
    import triton.language as tl
except ImportError:  # torch's builds for CUDA bring it
    triton = tl = None

log = logging.getLogger(__name__)

CHUNK = 64
"""Number of terms of a set that torch's operations add up at once."""
TILE = 8192
"""Number of powers, tokens × temperatures, that a program of a kernel holds at once."""
TOLERANCES = 1e-6, 1e-6, 1e-5, 0.0
"""Maximum relative errors of a kernel's totals, sums over outcomes, importance, and likeliest tokens."""


def row_sums(values: Tensor) -> Tensor:
    """Return the sums (n,) of rows (n, V) in float64."""
    if values.device.type == "cpu":
        return values.sum(dim=-1, dtype=torch.float64)
    return halved(values.to(torch.float64, copy=True))


def set_sums(
    sets: TokenSets, values: Callable[[Tensor, Tensor], Tensor], device: torch.device, in_chunks: bool
) -> Tensor:
    """Return (n, k, T) sums in float64 over k sets of tokens of each of n rows; CUDA needs them ``in_chunks``.

    ``values`` is asked for the numbers (m, T) of m tokens by their rows (m,) and ids (m,).
    """
    rows, _, ids = sets.expanded()
    counts = sets.counts
    terms = values(*sent(device, rows, ids)).double()
    if in_chunks:
        sums = chunked(terms, counts.ravel())
    else:
        lengths = to_device(counts.ravel(), device)
        sums = torch.segment_reduce(terms, "sum", lengths=lengths, axis=0, unsafe=True)
    return sums.view(*counts.shape, terms.shape[1])


def chunked(terms: Tensor, sizes: Ids) -> Tensor:
    """Return the sums (n, T) of consecutive rows of terms (m, T), ``sizes`` (n,) of them each: sums of chunks, then of
    chunks of those, until one is left.
    """
    while True:
        chunks = np.maximum(-(-sizes // CHUNK), 1)
        gaps = CHUNK * chunks - sizes  # zeros behind the terms of each sum
        place = np.arange(sizes.sum()) + np.repeat(gaps.cumsum() - gaps, sizes)
        padded = terms.new_zeros((CHUNK * int(chunks.sum()), terms.shape[1]))
        padded.index_copy_(0, to_device(place, terms.device), terms)
        terms, sizes = halved(padded.view(-1, CHUNK, terms.shape[1])), chunks
        if chunks.max(initial=1) == 1:
            return terms


def halved(terms: Tensor) -> Tensor:
    """Return the sums (n, …) of terms (n, m, …), which are overwritten.

    The second half of the terms is added to the first, element by element, until one is left. Zeros at the end do not
    change a sum.
    """
    size = terms.shape[1]
    while size > 1:
        half = 1 << (size - 1).bit_length() - 1
        terms[:, : size - half] += terms[:, half:size]
        size = half
    return terms[:, 0].clone()  # which does not hold the memory of the terms


class OutcomeSets:
    """Operations on the tokens with each outcome after n prefixes, by torch."""

    def __init__(self, table: OutcomeTable) -> None:
        self._sets = table.sets

    def likeliest(self, logits: Tensor, part: slice, first: int) -> Tensor:
        """Return the likeliest tokens (m, …) of each outcome from ``first`` on, after a ``part`` of the prefixes with
        logits (m, V): the lowest id among equals, −1 if no token of an outcome is possible.
        """
        rows, columns, ids = sent(logits.device, *self._sets[part].expanded())
        shape, size = (len(logits), self._sets.sizes.shape[1]), logits.shape[1]
        place, values = rows * shape[1] + columns, logits[rows, ids]
        highest = values.new_full(shape, -torch.inf).view(-1).scatter_reduce_(0, place, values, "amax")
        candidates = ids.masked_fill((values < highest[place]) | (values == -torch.inf), size)
        likeliest = ids.new_full(shape, size).view(-1).scatter_reduce_(0, place, candidates, "amin").view(shape)
        likeliest.masked_fill_(likeliest == size, -1)
        if first > OTHER:
            return likeliest[:, first - 1 :]
        largest, other = logits.index_put((rows, ids), logits.new_full((), -torch.inf)).max(dim=1, keepdim=True)
        return torch.cat([other.masked_fill_(largest == -torch.inf, -1), likeliest], dim=1)

    def scale(self, scores: Tensor, part: slice, factors: Floats) -> None:
        """Multiply the scores (m, V) of tokens after a ``part`` of the prefixes by the factors of their outcomes."""
        rows, columns, ids = self._sets[part].expanded()
        row, token, factor = sent(scores.device, rows, ids, factors[1 + columns].astype(np.float32))
        scaled = scores[row, token] * factor
        scores.mul_(float(factors[OTHER])).index_put_((row, token), scaled)


class TorchSums(OutcomeSets):
    """Sums over the vocabulary for blocks of n prefixes by torch's operations, in float64."""

    def __init__(self, temperatures: Sequence[float], table: OutcomeTable) -> None:
        super().__init__(table)
        self._temperatures = temperatures

    def totals(self, x: Tensor) -> Tensor:
        """Return (m, T) Σ exp(x / t) in float64 over each row of x (m, V), the logits less the largest."""
        self._x = x
        return torch.stack([halved(self._powers(t)) for t in self._temperatures], dim=-1)

    def of_outcomes(self, part: slice) -> Tensor:
        """Return (m, k, T) Σ exp(x / t) in float64 over the tokens with each outcome above 0, after the ``part`` of the
        prefixes whose totals were computed last.
        """
        x, temperatures = self._x, to_device(np.array(self._temperatures), self._x.device)
        sets = self._sets[part]
        return set_sums(sets, lambda *at: (x[at].double()[:, None] / temperatures).exp_(), x.device, in_chunks=True)

    def importance(self, weights: Tensor, out: Tensor, part: slice, factors: Floats) -> None:
        """Write to ``out`` (m, V) the root of Σ (w · exp(x / t))² over temperatures, ``weights`` (m, T), times the
        factor of each token's outcome, after the ``part`` of the prefixes whose totals were computed last.
        """
        squares = torch.zeros_like(self._x, dtype=torch.float64)
        for t, weight in zip(self._temperatures, weights.T, strict=True):
            squares += self._powers(t).mul_(weight[:, None]).square_()
        out.copy_(squares.sqrt_())
        self.scale(out, part, factors)

    def _powers(self, temperature: float) -> Tensor:
        return self._x.double().div_(temperature).exp_()


class TritonSums:
    """Sums over the vocabulary by Triton's kernels: a program for each row, outcome in a row, or tile of a row.

    Powers are float32, and their sums float64.
    """

    def __init__(self, temperatures: Sequence[float], table: OutcomeTable, device: torch.device) -> None:
        self._table, self._count = table, len(temperatures)
        usual, rows, places, outcomes, self._states = sent(
            device, table.usual, table.rows, table.places, table.outcomes, table.states
        )
        self._outcomes = usual.index_select(0, rows)  # of all states
        self._outcomes.view(-1).index_copy_(0, places, outcomes)
        padded = triton.next_power_of_2(self._count)
        exponents = np.log2(np.e) / np.array(temperatures)
        factors = np.zeros((2, padded), dtype=np.float32)
        factors[0, : self._count] = exponents
        factors[1, : self._count] = exponents - factors[0, : self._count]
        self._factors = to_device(factors, device)
        self._constants = {"count": self._count, "padded": padded, "block": max(16, TILE // padded), "num_warps": 8}

    def totals(self, x: Tensor) -> Tensor:
        """Return sums over the vocabulary by Triton; see :class:`TorchSums`."""
        self._x = x.contiguous()
        out = x.new_empty((len(x), self._count), dtype=torch.float64)
        self._launch(_totals_kernel, (len(x),), self._x, self._factors, out, x.shape[1], **self._constants)
        return out

    def of_outcomes(self, part: slice) -> Tensor:
        """Return sums over the tokens with each outcome by Triton; see :class:`TorchSums`."""
        x, grid = self._x, (len(self._x), self._table.count)
        out = x.new_empty((*grid, self._count), dtype=torch.float64)
        self._launch(_outcomes_kernel, grid, x, self._factors, *self._of(part), out, x.shape[1], **self._constants)
        return out

    def importance(self, weights: Tensor, out: Tensor, part: slice, factors: Floats) -> None:
        """Write the importance of the vocabulary's tokens by Triton; see :class:`TorchSums`."""
        grid = len(out), triton.cdiv(out.shape[1], self._constants["block"])
        of_outcomes = to_device(factors.astype(np.float32), out.device)
        given = self._x, self._factors, weights.contiguous(), *self._of(part), of_outcomes, out
        self._launch(_importance_kernel, grid, *given, out.stride(0), out.shape[1], **self._constants)

    def likeliest(self, logits: Tensor, part: slice, first: int) -> Tensor:
        """Return the likeliest tokens with each outcome by Triton; see :class:`OutcomeSets`."""
        grid = len(logits), self._table.count + 1 - first
        out = logits.new_empty(grid, dtype=torch.int64)
        given = logits.contiguous(), *self._of(part), out, first, logits.shape[1]
        self._launch(_likeliest_kernel, grid, *given, block=TILE, num_warps=8)
        return out

    def _of(self, part: slice) -> tuple[Tensor, Tensor]:
        """Return the states (m,) of a part of the prefixes, and the outcomes (s, V) of the tokens after each state."""
        return self._states[part], self._outcomes

    def _launch(self, kernel: Any, grid: tuple[int, ...], *given: Any, **constants: Any) -> None:
        with torch.cuda.device(self._outcomes.get_device()):
            kernel[grid](*given, **constants)


def cuda_sums(temperatures: Sequence[float], table: OutcomeTable, device: torch.device) -> TorchSums | TritonSums:
    """Return sums over the vocabulary: by Triton's kernels, or by torch's operations if Triton is missing or its
    kernels fail.
    """
    works = triton is not None and _kernels_work(tuple(temperatures), table.usual.shape[1], device)
    return TritonSums(temperatures, table, device) if works else TorchSums(temperatures, table)


@cache
def _kernels_work(temperatures: tuple[float, ...], size: int, device: torch.device) -> bool:
    """Return whether Triton compiles the kernels for a device, and they agree with torch; log a warning if not."""
    try:
        _check_kernels(temperatures, size, device)
    except (triton.TritonError, ArithmeticError, ImportError, OSError, RuntimeError, SubprocessError) as problem:
        if is_out_of_memory(problem):
            raise
        log.warning("sums on %s are slower, because Triton's kernels cannot be used: %s", device, first_line(problem))
        return False
    return True


def _check_kernels(temperatures: tuple[float, ...], size: int, device: torch.device) -> None:
    """Raise ArithmeticError if Triton's sums do not agree with torch's on two rows of random logits."""
    random = np.random.default_rng(0)
    x = to_device(random.normal(scale=3, size=(2, size)).astype(np.float32), device)
    x -= x.amax(dim=-1, keepdim=True)
    weights, factors = to_device(random.random((2, len(temperatures))), device), np.array([1, 0, 2.0])
    usual = np.zeros(size, dtype=np.uint8)
    few, many = (
        NextTokenOutcomes.of(usual, exceptions) for exceptions in ({0: 2}, dict.fromkeys(range(0, size, 3), 1))
    )
    table = OutcomeTable.of([many, few], 2)
    results = []
    for sums in (TritonSums(temperatures, table, device), TorchSums(temperatures, table)):
        totals, of_outcomes = sums.totals(x), sums.of_outcomes(slice(None))
        importance = torch.empty_like(x)
        sums.importance(weights, importance, slice(None), factors)
        likeliest = torch.cat([sums.likeliest(x, slice(None), first) for first in (OTHER, RIGHT)], dim=1)
        results.append((totals, of_outcomes, importance, likeliest))
    for kernels, plain, tolerance in zip(*results, TOLERANCES, strict=True):
        if not torch.allclose(kernels, plain, rtol=tolerance, atol=1e-30):
            raise ArithmeticError(f"they differ from torch by more than {tolerance}")


if triton is not None:
    _jit: Callable[[Any], Any] = triton.jit

    @_jit
    def _powers(x: tl.tensor, factors: tl.tensor, padded: tl.constexpr) -> tl.tensor:
        # exp(x / t) is 2 to the power of x times a factor, the sum of two numbers: the second is a rounding error
        t = tl.arange(0, padded)
        high, low = tl.load(factors + t)[None, :], tl.load(factors + padded + t)[None, :]
        x = tl.where(x < -1e30, -1e30, x)[:, None]  # −∞ times 0 would not be a number
        exponent = x * high
        error = tl.fma(x, high, -exponent) + x * low
        return tl.exp2(exponent) * (1 + error * 0.6931471805599453)

    @_jit
    def _totals_kernel(
        logits: tl.tensor,
        factors: tl.tensor,
        out: tl.tensor,
        size: tl.tensor,
        count: tl.constexpr,
        padded: tl.constexpr,
        block: tl.constexpr,
    ) -> None:
        row, t = tl.program_id(0).to(tl.int64), tl.arange(0, padded)
        total = tl.zeros((block, padded), tl.float64)
        for start in range(0, size, block):
            token = start + tl.arange(0, block)
            x = tl.load(logits + row * size + token, mask=token < size, other=-1e30)
            total += _powers(x, factors, padded).to(tl.float64)
        tl.store(out + row * count + t, tl.sum(total, axis=0), mask=t < count)

    @_jit
    def _outcomes_kernel(
        logits: tl.tensor,
        factors: tl.tensor,
        states: tl.tensor,
        outcomes: tl.tensor,
        out: tl.tensor,
        size: tl.tensor,
        count: tl.constexpr,
        padded: tl.constexpr,
        block: tl.constexpr,
    ) -> None:
        row, column, t = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, padded)
        state = tl.load(states + row)
        total = tl.zeros((block, padded), tl.float64)
        for start in range(0, size, block):
            token = start + tl.arange(0, block)
            has_outcome = tl.load(outcomes + state * size + token, mask=token < size, other=0) == column + 1
            if tl.max(has_outcome.to(tl.int32), axis=0) > 0:  # most tiles have none
                x = tl.load(logits + row * size + token, mask=has_outcome, other=-1e30)
                total += _powers(x, factors, padded).to(tl.float64)
        place = (row * tl.num_programs(1) + column) * count + t
        tl.store(out + place, tl.sum(total, axis=0), mask=t < count)

    @_jit
    def _likeliest_kernel(
        logits: tl.tensor,
        states: tl.tensor,
        outcomes: tl.tensor,
        out: tl.tensor,
        first: tl.tensor,
        size: tl.tensor,
        block: tl.constexpr,
    ) -> None:
        row, column = tl.program_id(0).to(tl.int64), tl.program_id(1)
        state = tl.load(states + row)
        highest, likeliest = tl.full((block,), float("-inf"), tl.float32), tl.full((block,), 2**31 - 1, tl.int32)
        for start in range(0, size, block):
            token = start + tl.arange(0, block)
            has_outcome = tl.load(outcomes + state * size + token, mask=token < size, other=255) == first + column
            x = tl.load(logits + row * size + token, mask=has_outcome, other=float("-inf")).to(tl.float32)
            likeliest = tl.where(x > highest, token, likeliest)
            highest = tl.maximum(x, highest)
        largest = tl.max(highest, axis=0)
        lowest = tl.min(tl.where(highest == largest, likeliest, 2**31 - 1), axis=0)
        tl.store(out + row * tl.num_programs(1) + column, tl.where(largest == float("-inf"), -1, lowest))

    @_jit
    def _importance_kernel(
        logits: tl.tensor,
        factors: tl.tensor,
        weights: tl.tensor,
        states: tl.tensor,
        outcomes: tl.tensor,
        of_outcomes: tl.tensor,
        out: tl.tensor,
        stride: tl.tensor,
        size: tl.tensor,
        count: tl.constexpr,
        padded: tl.constexpr,
        block: tl.constexpr,
    ) -> None:
        row, t = tl.program_id(0).to(tl.int64), tl.arange(0, padded)
        weight = tl.load(weights + row * count + t, mask=t < count, other=0.0) * 2.0**40
        token = tl.program_id(1) * block + tl.arange(0, block)
        x = tl.load(logits + row * size + token, mask=token < size, other=-1e30)
        weighted = _powers(x, factors, padded) * weight.to(tl.float32)[None, :]
        root = tl.sqrt(tl.sum(weighted * weighted, axis=1))  # of squares that are not 0 in float32, thanks to 2⁴⁰
        outcome = tl.load(outcomes + tl.load(states + row) * size + token, mask=token < size, other=0)
        tl.store(out + row * stride + token, root * (2.0**-40 * tl.load(of_outcomes + outcome)), mask=token < size)
