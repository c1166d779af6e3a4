"""Tempered probabilities of next-token outcomes at all temperatures t, from one pass over each row's logits x.

On the CPU, the logits of a row are counted in bins. Bins close to the largest logit are narrow, bins far below it are
wide. With c the centre of a bin and d = x − c, exp(x / t) = exp(c / t) · (1 + d / t + d² / 2t² + …). So three sums in
each bin serve all temperatures: the number of its tokens, Σ d and Σ d². The dropped terms change a total by less than
2 · 10⁻⁷.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import fetched, to_device
from robust_eval.model.local.draw import EPSILON
from robust_eval.model.local.vocabulary import RIGHT, OutcomeTable, TokenSets
from robust_eval.model.local.vocabulary_sums import OutcomeSets, TorchSums, TritonSums, cuda_sums, row_sums, set_sums
from robust_eval.model.token_texts import Ids

FRACTION = 7
"""Number of leading bits of the fraction that index a bin: the width of a bin is at most 2⁻⁷ of its distance from the
largest logit."""
NEAREST, FURTHEST = -12, 15
"""Range of the distances that have bins, as powers of two. All tokens further away have no probability."""
BINS = (FURTHEST - NEAREST) << FRACTION
HISTOGRAM_MIN_TOKENS = 2048
"""Number of tokens of a set above which a separate histogram costs less than exp(x / t) of each token."""
_SHIFT = 23 - FRACTION
"""Number of trailing bits of a float32 that do not index its bin."""
_FIRST = (127 + NEAREST) << FRACTION
"""Leading bits of the smallest distance, as a number."""
_HALF_A_BIN = 1 << (_SHIFT - 1)
"""Added to the smallest number of a bin, this makes its centre."""
_FURTHEST_CENTRE = 2.0**FURTHEST - 2.0 ** (FURTHEST - FRACTION - 2)
"""The centre of the last bin, for all that is further away."""
_ONE = torch.ones(1, dtype=torch.float64)
PRODUCT_ROWS = 8
"""Minimum number of rows of a matrix product. On some processors, products of one or two rows differ from those of more
in the last bit."""


class _Powers(NamedTuple):
    """Contributions of the bins of a histogram of logits at T ``temperatures`` (T,).

    ``of_sums`` (3 · BINS, T) is the contribution to Σ exp(x / t) for each unit of the three sums; ``squared`` (T, BINS)
    is exp(c / t)².
    """

    temperatures: Tensor
    of_sums: Tensor
    squared: Tensor


@lru_cache(maxsize=8)
def _powers(temperatures: tuple[float, ...]) -> _Powers:
    lowest = torch.arange(_FIRST, _FIRST + BINS, dtype=torch.int32) << _SHIFT
    centre = 2.0**NEAREST - (lowest | _HALF_A_BIN).view(torch.float32).double()
    t = torch.tensor(temperatures, dtype=torch.float64)
    power = torch.exp(centre[:, None] / t)
    power[-1] = 0  # the bin of impossible tokens, whose logits are −∞
    of_sums = torch.cat([power, power / t, power / (2 * t**2)])
    return _Powers(t.float(), of_sums, (power**2).T.contiguous())


class LogitHistogram(OutcomeSets):
    """Histogram of logits in bins, for sums at all temperatures on the CPU; one buffer serves blocks of ``rows``."""

    def __init__(self, temperatures: Sequence[float], table: OutcomeTable, rows: int) -> None:
        super().__init__(table)
        is_few = self._sets.sizes < HISTOGRAM_MIN_TOKENS
        few = self._sets.tokens[np.repeat(is_few.ravel(), self._sets.sizes.ravel())]
        self._few = TokenSets(self._sets.sizes * is_few, few, table.states)
        self._powers = _powers(tuple(temperatures))
        shape = (rows, table.usual.shape[1])
        self._distance = torch.empty(shape)
        self._bits = torch.empty(shape, dtype=torch.int32)
        self._bin = torch.empty(shape, dtype=torch.int64)
        self._moment = torch.empty(shape, dtype=torch.float64)
        self._sums = torch.empty((3, max(rows, PRODUCT_ROWS), BINS), dtype=torch.float64)

    def totals(self, x: Tensor) -> Tensor:
        """Count the logits x (m, V), less each row's largest, in bins; return (m, T) tempered Σ exp(x / t) in float64.

        The sums of the bins are exact, and so independent of the order: a float64 has enough bits for the sum of the
        float32 numbers of one bin.
        """
        self._x, m = x, len(x)
        distance, bits, bins, moment = (part[:m] for part in (self._distance, self._bits, self._bin, self._moment))
        torch.neg(x, out=distance).add_(2.0**NEAREST).clamp_(max=_FURTHEST_CENTRE)
        torch.bitwise_right_shift(distance.view(torch.int32), _SHIFT, out=bits)
        bins.copy_(bits.sub_(_FIRST).clamp_(0, BINS - 1))  # NaN gets a bin, too, and makes the total NaN
        torch.bitwise_and(distance.view(torch.int32), -1 << _SHIFT, out=bits)
        centre = bits.bitwise_or_(_HALF_A_BIN).view(torch.float32)
        moment.copy_(torch.sub(centre, distance, out=distance))
        self._count(bins, moment, self._sums.zero_()[:, :m])
        return (torch.cat(tuple(self._sums), dim=1) @ self._powers.of_sums)[:m]

    def of_outcomes(self, part: slice) -> Tensor:
        """Return (m, k, T) Σ exp(x / t) in float64 over the tokens with each outcome above 0, after the ``part`` of the
        prefixes that was counted last.
        """
        x, temperatures, sets = self._x, self._powers.temperatures, self._sets[part]
        sums = set_sums(self._few[part], lambda *at: (x[at][:, None] / temperatures).exp_(), x.device, in_chunks=False)
        starts, counts = sets.starts, sets.counts
        for row, column in np.argwhere(counts >= HISTOGRAM_MIN_TOKENS).tolist():
            tokens = sets.tokens[starts[row, column] :][: counts[row, column]]
            sums[row, column] = self._of_many(row, to_device(tokens, x.device))
        return sums

    def _of_many(self, row: int, tokens: Tensor) -> Tensor:
        """Return (T,) Σ exp(x / t) over many tokens of a row, by their bins."""
        bins, moment = self._bin[row, tokens], self._distance[row, tokens].double()
        sums = moment.new_zeros((3, BINS))
        self._count(bins, moment, sums)
        return sums.flatten() @ self._powers.of_sums

    def _count(self, bins: Tensor, moment: Tensor, sums: Tensor) -> None:
        """Add to ``sums`` (3, …, BINS) the number of tokens in each bin, Σ d and Σ d², ``moment`` being d (…, n)."""
        number, first, second = sums
        number.scatter_add_(-1, bins, _ONE.expand(bins.shape))
        first.scatter_add_(-1, bins, moment)
        second.scatter_add_(-1, bins, moment.square_())

    def importance(self, weights: Tensor, out: Tensor, part: slice, factors: Floats) -> None:
        """Write to ``out`` (m, V), by bins, the root of Σ (w · exp(x / t))² over temperatures, ``weights`` (m, T),
        times the factor of each token's outcome, after the ``part`` that was counted last. Tokens of one bin are taken
        to be alike.
        """
        table = (weights.square() @ self._powers.squared).sqrt_().to(out.dtype)
        torch.gather(table, 1, self._bin[: len(out)], out=out)
        self.scale(out, part, factors)


ROWS_PER_BATCH = {False: 8, True: 256}
"""Number of rows of logits in a batch: 8 × 50,000 tokens are 1.6 MB, which stay in a processor's cache; more on CUDA
(True), as few as that because torch's operations need several times their memory. Triton's kernels take all rows."""


@dataclass(frozen=True)
class Masses:
    """Tempered probability masses of n prefixes at T temperatures, on the logits' device.

    ``log_total`` (n, T) is log Σ exp(x / t) over the vocabulary, x the logits less ``highest`` (n,), the row's largest;
    ``shares`` (n, k, T) is the probability of each outcome above 0, and ``likeliest`` (n, …) the likeliest token with
    each outcome that was asked for, −1 if none is possible.
    """

    log_total: Tensor
    shares: Tensor
    highest: Tensor
    likeliest: Tensor

    def arrays(self) -> tuple[Floats, Floats, Ids]:
        """Return ``log_total``, ``shares`` and ``likeliest`` as arrays."""
        log_total, shares, likeliest = fetched(self.log_total, self.shares, self.likeliest)
        return log_total, shares, likeliest.astype(np.intp)


class Weighted(NamedTuple):
    """Weights of n prefixes at T temperatures, and the importance of the tokens after them.

    The ``importance`` (n, V), which is overwritten, is the root of the sum, over temperatures, of the squared product
    of a token's probability and the ``weight`` (n, T) of its prefix, in float64, times the factor of its outcome in
    ``factors`` (1 + k,). On the CPU, tokens of an outcome with nearly equal logits have the same.
    """

    weight: Tensor
    importance: Tensor
    factors: Floats


def tempered_masses(
    logits: Tensor,
    temperatures: Sequence[float],
    table: OutcomeTable,
    generation: Generation,
    first: int = RIGHT,
    weighted: Weighted | None = None,
) -> Masses:
    """Return tempered probabilities of the next tokens with each outcome, and write the importance of each token.

    Parameters
    ----------
    logits
        (n, V), n above 0.
    temperatures
        (T,), above 0.
    table
        Outcomes of the tokens after the n prefixes.
    generation
        Truncation at each temperature.
    first
        The likeliest token is found for each outcome from this one on.
    weighted
        Weights of the prefixes, and where the importance of each token is written.
    """
    at = [max(temperature, EPSILON) for temperature in temperatures]
    highest = logits.amax(dim=-1)
    rows = min(ROWS_PER_BATCH[logits.is_cuda], len(logits))
    powers: LogitHistogram | TorchSums | TritonSums | _TruncatedPowers
    if generation.truncates:
        powers = _TruncatedPowers(at, table, generation)
    elif logits.is_cuda:
        powers = cuda_sums(at, table, logits.device)
        rows = len(logits) if isinstance(powers, TritonSums) else rows
    else:
        powers = LogitHistogram(at, table, rows)
    totals: list[Tensor] = []
    sums: list[Tensor] = []
    likeliest: list[Tensor] = []
    for start in range(0, len(logits), rows):
        part = slice(start, start + rows)
        x = logits[part].float() - highest[part, None]
        totals.append(powers.totals(x))
        sums.append(powers.of_outcomes(part))
        likeliest.append(powers.likeliest(logits[part], part, first))
        if weighted is not None:
            weights = weighted.weight[part] / totals[-1]
            powers.importance(weights, weighted.importance[part], part, weighted.factors)
    total = _joined(totals)
    return Masses(total.log(), _joined(sums) / total[:, None], highest, _joined(likeliest))


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return rows of all parts; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts])


class _TruncatedPowers(OutcomeSets):
    """Tempered powers exp(x / t) of a block of logits at each temperature, 0 for tokens that the truncation cuts."""

    def __init__(self, temperatures: Sequence[float], table: OutcomeTable, generation: Generation) -> None:
        super().__init__(table)
        self._temperatures, self._generation = temperatures, generation
        self._powers: list[Tensor] = []

    def totals(self, x: Tensor) -> Tensor:
        """Return (m, T) the sums of the powers over each row of x (m, V), the logits less the largest, in float64."""
        self._powers = [self._generation.truncated(x / t).exp_() for t in self._temperatures]
        return torch.stack([row_sums(power) for power in self._powers], dim=-1)

    def of_outcomes(self, part: slice) -> Tensor:
        """Return (m, k, T) the sums of the powers in float64 over the tokens with each outcome above 0, after the
        ``part`` of the prefixes whose totals were computed last.
        """
        powers, device = self._powers, self._powers[0].device

        def values(*at: Tensor) -> Tensor:
            return torch.stack([power[at] for power in powers], dim=-1)

        return set_sums(self._sets[part], values, device, in_chunks=device.type == "cuda")

    def importance(self, weights: Tensor, out: Tensor, part: slice, factors: Floats) -> None:
        """Write to ``out`` (m, V) the root of Σ (w · power)² over temperatures, with the ``weights`` w (m, T), times
        the factor of each token's outcome.
        """
        squares = [
            (power * weight.to(power.dtype)[:, None]).square_()
            for power, weight in zip(self._powers, weights.T, strict=True)
        ]
        out.copy_(torch.stack(squares).sum(dim=0).sqrt_())
        self.scale(out, part, factors)


def tempered_logprobs(
    logits: Tensor, rows: Ids, tokens: Ids, log_total: Floats, temperatures: Sequence[float], generation: Generation
) -> Floats:
    """Return (m, T) tempered log-probabilities of the next ``tokens`` (m,) after the prefixes ``rows`` (m,); −inf where
    cut.
    """
    cut_rows = np.unique(rows) if generation.truncates else rows  # only these need truncation
    place = to_device(np.searchsorted(cut_rows, rows) if generation.truncates else rows, logits.device)
    chosen = to_device(tokens, logits.device)
    if generation.truncates:
        logits = logits[to_device(cut_rows, logits.device)]
    flat = place * logits.shape[1] + chosen
    masks = possible_masks(logits, flat, temperatures, generation)
    values, highest, *possible = fetched(logits.take(flat), logits.amax(dim=-1)[place], *masks)
    return offset_logprobs(values, highest, log_total[rows], temperatures, possible)


def possible_masks(logits: Tensor, flat: Tensor, temperatures: Sequence[float], generation: Generation) -> list[Tensor]:
    """Return the mask (m, T) of the temperatures at which truncation leaves the tokens at ``flat`` (m,) indices of
    logits, on their device; none unless the vocabulary is truncated.
    """
    if not generation.truncates:
        return []
    at = [max(temperature, EPSILON) for temperature in temperatures]
    cut = [generation.truncated(logits.float() / temperature).take(flat).isinf() for temperature in at]
    return [~torch.stack(cut, dim=-1)]


def offset_logprobs(
    values: Floats, highest: Floats, log_total: Floats, temperatures: Sequence[float], possible: Sequence[Floats] = ()
) -> Floats:
    """Return (m, T) tempered log-probabilities of tokens from their logits (m,) and the ``highest`` (m,) of their rows.

    ``log_total`` (m, T) are the rows' totals. ``possible`` has the mask of :func:`possible_masks`, if any: the other
    tokens have −inf.
    """
    offsets = np.subtract(values, highest, dtype=np.float32)  # as precise as the logits
    logprobs: Floats = offsets[:, None] / np.maximum(np.asarray(temperatures), EPSILON) - log_total
    for mask in possible:
        logprobs = np.where(mask > 0, logprobs, -np.inf)
    return logprobs
