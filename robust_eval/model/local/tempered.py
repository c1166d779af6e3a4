"""Probabilities of sets of next tokens at all temperatures, from one row of logits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.draw import EPSILON
from robust_eval.model.local.logit_histogram import LogitHistogram, summed
from robust_eval.model.local.transfers import fetched, to_device
from robust_eval.model.token_texts import Ids, Mask

ROWS_PER_BATCH = {False: 8, True: 256}
"""Number of rows of logits in a batch: 8 × 50,000 tokens are 1.6 MB, which stay in a processor's cache; many on CUDA
(True), where every call costs the same."""


@dataclass(frozen=True)
class Masses:
    """Probability masses of n prefixes at T temperatures, on the logits' device.

    ``log_total`` (n, T) is log Σ exp(x / t) over the vocabulary, x the logits less the row's largest; ``shares`` (n,
    sets, T) the probability of each set of tokens. ``importance`` (n, V), if requested, is the root of the sum, over
    temperatures, of the squared product of a token's probability and the weight of its row; tokens with nearly equal
    logits have the same.
    """

    log_total: Tensor
    shares: Tensor
    importance: Tensor | None = None

    def arrays(self) -> tuple[Floats, Floats]:
        """Return totals and shares as arrays."""
        log_total, shares = fetched(self.log_total, self.shares)
        return log_total, shares


def tempered_masses(
    logits: Tensor,
    temperatures: Sequence[float],
    sets: Sequence[Sequence[Ids]],
    generation: Generation,
    weight: Tensor | None = None,
) -> Masses:
    """Return probabilities of sets of next tokens.

    Parameters
    ----------
    logits
        (n, V).
    temperatures
        (T,), above 0.
    sets
        For each of the n rows, the same number of sets of token ids.
    generation
        Truncation at each temperature.
    weight
        (n, T) in float64, weights of the rows at each temperature; they add the importance of all tokens.
    """
    at = [max(temperature, EPSILON) for temperature in temperatures]
    log_total = torch.empty((len(logits), len(at)), dtype=torch.float64, device=logits.device)
    shares = log_total.new_zeros((len(logits), len(sets[0]) if len(sets) else 0, len(at)))
    importance = None if weight is None else torch.empty_like(logits)
    if not log_total.numel():
        return Masses(log_total, shares, importance)
    rows = ROWS_PER_BATCH[logits.is_cuda]
    powers: LogitHistogram | _TruncatedPowers = (
        _TruncatedPowers(at, generation)
        if generation.truncates
        else LogitHistogram(at, rows, logits.shape[1], logits.device)
    )
    for start in range(0, len(logits), rows):
        part = slice(start, start + rows)
        x = logits[part].float()
        x = x - x.amax(dim=-1, keepdim=True)
        totals = powers.totals(x)
        log_total[part] = totals.log()
        if of := shares.shape[1]:
            members = [ids for row in sets[part] for ids in row]
            sums = powers.of_sets(x, np.repeat(np.arange(len(x)), of).tolist(), members)
            shares[part] = sums.view(len(x), of, -1) / totals[:, None]
        if weight is not None and importance is not None:
            powers.importance(weight[part] / totals, importance[part])
    return Masses(log_total, shares, importance)


class _TruncatedPowers:
    """exp(x / t) of a block of logits at each temperature, 0 for tokens that the truncation cuts."""

    def __init__(self, temperatures: Sequence[float], generation: Generation) -> None:
        self._temperatures, self._generation = temperatures, generation
        self._powers: list[Tensor] = []

    def totals(self, x: Tensor) -> Tensor:
        """Return (m, T) the sums over each row of x (m, V), the logits less the largest, in float64."""
        self._powers = [self._generation.truncated(x / t).exp_() for t in self._temperatures]
        return torch.stack([power.sum(dim=-1, dtype=torch.float64) for power in self._powers], dim=-1)

    def of_sets(self, x: Tensor, rows: Sequence[int], sets: Sequence[Ids]) -> Tensor:
        """Return (n, T) their sums in float64 over n sets of tokens, those of ``rows`` (n,) of the same block x."""
        return summed(rows, sets, lambda *at: torch.stack([power[at] for power in self._powers], dim=-1), x.device)

    def importance(self, weights: Tensor, out: Tensor) -> None:
        """Write to ``out`` (m, V) the root of Σ (w · exp(x / t))² over temperatures, ``weights`` (m, T)."""
        squares = [
            (power * weight.to(power.dtype)[:, None]).square_()
            for power, weight in zip(self._powers, weights.T, strict=True)
        ]
        out.copy_(torch.stack(squares).sum(dim=0).sqrt_())


def tempered_logprobs(
    logits: Tensor, rows: Ids, tokens: Ids, log_total: Floats, temperatures: Sequence[float], generation: Generation
) -> Floats:
    """Return (m, T) log-probabilities of the next tokens ``tokens`` (m,) after the prefixes ``rows`` (m,); −inf where
    cut.
    """
    cut_rows = np.unique(rows) if generation.truncates else rows  # only these need truncation
    place = to_device(np.searchsorted(cut_rows, rows) if generation.truncates else rows, logits.device)
    chosen = to_device(tokens, logits.device)
    if generation.truncates:
        logits = logits[to_device(cut_rows, logits.device)]
    offsets, *possible = fetched(*offsets_of(logits, place, chosen, temperatures, generation))
    return offset_logprobs(offsets, log_total[rows], temperatures, possible[0] > 0 if possible else None)


def offsets_of(
    logits: Tensor, rows: Tensor, tokens: Tensor, temperatures: Sequence[float], generation: Generation
) -> list[Tensor]:
    """Return the arguments of :func:`offset_logprobs` for tokens (m,) after rows (m,) of logits, on their device:
    offsets (m,) and, if the vocabulary is truncated, masks (m, T) of the tokens that remain at each temperature.
    """
    offsets = [logits[rows, tokens].float() - logits.amax(dim=-1).float()[rows]]
    if generation.truncates:
        at = [max(temperature, EPSILON) for temperature in temperatures]
        masks = [generation.truncated(logits.float() / temperature)[rows, tokens] for temperature in at]
        offsets.append(~torch.stack(masks, dim=-1).isinf())
    return offsets


def offset_logprobs(
    offsets: Floats, log_total: Floats, temperatures: Sequence[float], possible: Mask | None = None
) -> Floats:
    """Return (m, T) log-probabilities of tokens whose logits lie ``offsets`` (m,) below the largest of their rows.

    ``log_total`` (m, T) are the rows' totals; tokens that are not ``possible`` (m, T) have −inf.
    """
    logprobs: Floats = offsets[:, None] / np.maximum(np.asarray(temperatures), EPSILON) - log_total
    return logprobs if possible is None else np.where(possible, logprobs, -np.inf)
