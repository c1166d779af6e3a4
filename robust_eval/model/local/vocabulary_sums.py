"""Sums of exp(x / t) over the vocabulary in an order that depends on nothing but the number of terms, for CUDA.

So a row has the same sums alone and in any batch. Triton's kernels read the logits x once for all temperatures t. Where
they cannot be used, torch's operations compute the same sums.
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
from robust_eval.model.local.device import is_out_of_memory, sent, to_device
from robust_eval.model.local.vocabulary import TokenSets
from robust_eval.model.token_texts import Ids

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
TOLERANCES = 1e-6, 1e-6, 1e-5
"""Maximum relative errors of a kernel's totals, sums over sets, and importance."""


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


class TorchSums:
    """Sums over the vocabulary for a block of rows by torch's operations, in float64."""

    def __init__(self, temperatures: Sequence[float]) -> None:
        self._temperatures = temperatures

    def totals(self, x: Tensor) -> Tensor:
        """Return (m, T) Σ exp(x / t) in float64 over each row of x (m, V), the logits less the largest."""
        self._x = x
        return torch.stack([halved(self._powers(t)) for t in self._temperatures], dim=-1)

    def of_sets(self, x: Tensor, sets: TokenSets) -> Tensor:
        """Return (n, k, T) Σ exp(x / t) in float64 over k sets of tokens of each row of the same block x."""
        temperatures = to_device(np.array(self._temperatures), x.device)
        return set_sums(sets, lambda *at: (x[at].double()[:, None] / temperatures).exp_(), x.device, in_chunks=True)

    def importance(self, weights: Tensor, out: Tensor) -> None:
        """Write to ``out`` (m, V) the root of Σ (w · exp(x / t))² over temperatures, ``weights`` (m, T)."""
        squares = torch.zeros_like(self._x, dtype=torch.float64)
        for t, weight in zip(self._temperatures, weights.T, strict=True):
            squares += self._powers(t).mul_(weight[:, None]).square_()
        out.copy_(squares.sqrt_())

    def _powers(self, temperature: float) -> Tensor:
        return self._x.double().div_(temperature).exp_()


class TritonSums:
    """Sums over the vocabulary by Triton's kernels: a program for each row, set of tokens, or tile of a row.

    Powers are float32, and their sums float64.
    """

    def __init__(self, temperatures: Sequence[float], device: torch.device) -> None:
        self._count = len(temperatures)
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
        self._launch(_totals_kernel, (len(x),), out, x.shape[1])
        return out

    def of_sets(self, x: Tensor, sets: TokenSets) -> Tensor:
        """Return sums over sets of tokens by Triton; see :class:`TorchSums`."""
        grid = len(x), sets.sizes.shape[1]
        places = sent(x.device, sets.states, np.append(0, sets.sizes.cumsum()), sets.tokens)
        out = x.new_empty((*grid, self._count), dtype=torch.float64)
        self._launch(_sets_kernel, grid, *places, out, x.shape[1], grid[1])
        return out

    def importance(self, weights: Tensor, out: Tensor) -> None:
        """Write the importance of the vocabulary's tokens by Triton; see :class:`TorchSums`."""
        grid = len(out), triton.cdiv(out.shape[1], self._constants["block"])
        self._launch(_importance_kernel, grid, weights.contiguous(), out, out.stride(0), out.shape[1])

    def _launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any) -> None:
        with torch.cuda.device(self._x.get_device()):
            kernel[grid](self._x, self._factors, *arguments, **self._constants)


def cuda_sums(temperatures: Sequence[float], size: int, device: torch.device) -> TorchSums | TritonSums:
    """Return the sums over a vocabulary of ``size`` tokens: by Triton's kernels, or by torch's operations if Triton is
    missing or its kernels fail.
    """
    works = triton is not None and _kernels_work(tuple(temperatures), size, device)
    return TritonSums(temperatures, device) if works else TorchSums(temperatures)


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
    weights = to_device(random.random((2, len(temperatures))), device)
    sets = TokenSets.of([[np.arange(1), np.arange(0)], [np.arange(0, size, 3), np.arange(1)]])[np.array([1, 0])]
    results = []
    for sums in (TritonSums(temperatures, device), TorchSums(temperatures)):
        totals, set_totals = sums.totals(x), sums.of_sets(x, sets)
        importance = torch.empty_like(x)
        sums.importance(weights, importance)
        results.append((totals, set_totals, importance))
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
    def _sets_kernel(
        logits: tl.tensor,
        factors: tl.tensor,
        states: tl.tensor,
        bounds: tl.tensor,
        tokens: tl.tensor,
        out: tl.tensor,
        size: tl.tensor,
        sets: tl.tensor,
        count: tl.constexpr,
        padded: tl.constexpr,
        block: tl.constexpr,
    ) -> None:
        row, t = tl.program_id(0).to(tl.int64), tl.arange(0, padded)
        number = tl.load(states + row) * sets + tl.program_id(1)
        end = tl.load(bounds + number + 1)
        total = tl.zeros((block, padded), tl.float64)
        for start in range(tl.load(bounds + number), end, block):
            place = start + tl.arange(0, block)
            token = tl.load(tokens + place, mask=place < end, other=0)
            x = tl.load(logits + row * size + token, mask=place < end, other=-1e30)
            total += _powers(x, factors, padded).to(tl.float64)
        tl.store(out + (row * sets + tl.program_id(1)) * count + t, tl.sum(total, axis=0), mask=t < count)

    @_jit
    def _importance_kernel(
        logits: tl.tensor,
        factors: tl.tensor,
        weights: tl.tensor,
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
        tl.store(out + row * stride + token, root * 2.0**-40, mask=token < size)
