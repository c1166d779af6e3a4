"""One row of logits serves every temperature: probabilities of sets of next tokens, at all of them at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.draw import EPSILON
from robust_eval.model.local.transfers import fetched, to_device
from robust_eval.model.token_texts import Ids, Mask

ROWS_AT_ONCE = {False: 8, True: 1024}
"""Rows of logits in work at once: 8 × 50,000 tokens are 1.6 MB, which stay in a processor's cache; on CUDA (True) many,
for there every call costs the same."""


@dataclass(frozen=True)
class Masses:
    """Of n prefixes at T temperatures: ``log_total`` (n, T) is log Σ exp(x / t) over the vocabulary, x the logits less
    the row's largest; ``shares`` (n, sets, T) the probability of each set of tokens. Both lie on the logits' device.
    """

    log_total: Tensor
    shares: Tensor

    def arrays(self) -> tuple[Floats, Floats]:
        """Return both as arrays."""
        log_total, shares = fetched(self.log_total, self.shares)
        return log_total, shares


def tempered_masses(
    logits: Tensor,
    temperatures: Sequence[float],
    sets: Sequence[Sequence[Ids]],
    generation: Generation,
    visit: Callable[[int, int, Tensor, Tensor], None] | None = None,
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
    visit
        Called with the first row, the index of the temperature, the weights (m, V), relative to the largest, and
        their totals (m,) in float64.
    """
    count = len(sets[0]) if len(sets) else 0
    order = [(i, False) for i in range(len(temperatures))] if generation.truncates else _by_halves(temperatures)
    log_total = torch.empty((len(logits), len(temperatures)), dtype=torch.float64, device=logits.device)
    sums = log_total.new_zeros((len(logits), count, len(temperatures)))
    at_once = ROWS_AT_ONCE[logits.is_cuda]
    for start in range(0, len(logits), at_once):
        x = logits[start : start + at_once].float()
        x = x - x.amax(dim=-1, keepdim=True)
        members = [ids for row in sets[start : start + len(x)] for ids in row]
        sizes = [len(ids) for ids in members]
        rows = to_device(np.repeat(np.repeat(np.arange(len(x)), count), sizes), x.device)
        lengths = to_device(np.array(sizes, dtype=np.int64), x.device)
        columns = to_device(np.concatenate(members) if members else np.empty(0, np.intp), x.device)
        totals = torch.empty((len(temperatures), len(x)), dtype=torch.float64, device=x.device)
        parts = torch.zeros((len(temperatures), len(members)), dtype=torch.float64, device=x.device)
        weights = torch.empty_like(x)
        for index, squared in order:
            if squared:
                weights.square_()
            else:
                torch.mul(x, 1 / max(temperatures[index], EPSILON), out=weights)
                if generation.truncates:
                    weights = generation.truncated(weights)
                weights.exp_()
            totals[index] = weights.sum(dim=-1)  # pairwise, in float32: right to 1e-7, and five times as fast
            own = weights[rows, columns].double()
            parts[index] = torch.segment_reduce(own, "sum", lengths=lengths, unsafe=True)  # in the same order each time
            if visit is not None:
                visit(start, index, weights, totals[index])
        log_total[start : start + len(x)] = totals.log().T
        shares = parts.view(len(temperatures), len(x), count) / totals[:, :, None]
        sums[start : start + len(x)] = shares.permute(1, 2, 0)
    return Masses(log_total, sums)


def _by_halves(temperatures: Sequence[float]) -> list[tuple[int, bool]]:
    """Return all temperatures, by index, so that as many as possible directly follow twice their own (True): exp(x / t)
    is the square of exp(x / 2t), and to square is eight times as fast as to take exponentials.

    >>> _by_halves([0.2, 0.4, 0.6, 0.8, 1.0])
    [(4, False), (3, False), (1, True), (0, True), (2, False)]
    """
    place = {temperature: index for index, temperature in enumerate(temperatures) if temperature >= EPSILON}
    order = [(index, False) for index, temperature in enumerate(temperatures) if temperature < EPSILON]
    for temperature in sorted(place, reverse=True):
        if 2 * temperature not in place:
            order.append((place[temperature], False))
            while (temperature := temperature / 2) in place:
                order.append((place[temperature], True))
    return order


def tempered_logprobs(
    logits: Tensor, rows: Ids, tokens: Ids, log_total: Floats, temperatures: Sequence[float], generation: Generation
) -> Floats:
    """Return (m, T) log-probabilities of the next tokens ``tokens`` (m,) after the prefixes ``rows`` (m,); −inf where
    cut.
    """
    own = np.unique(rows) if generation.truncates else rows  # of the others nothing need be cut
    place = to_device(np.searchsorted(own, rows) if generation.truncates else rows, logits.device)
    chosen = to_device(tokens, logits.device)
    if generation.truncates:
        logits = logits[to_device(own, logits.device)]
    offsets, *possible = fetched(*offsets_of(logits, place, chosen, temperatures, generation))
    return offset_logprobs(offsets, log_total[rows], temperatures, possible[0] > 0 if possible else None)


def offsets_of(
    logits: Tensor, rows: Tensor, tokens: Tensor, temperatures: Sequence[float], generation: Generation
) -> list[Tensor]:
    """Return what :func:`offset_logprobs` needs to know of tokens (m,) after rows (m,) of logits, on their device:
    offsets (m,) and, where the vocabulary is truncated, which tokens are left at each temperature (m, T).
    """
    offsets = [logits[rows, tokens].float() - logits.amax(dim=-1).float()[rows]]
    if generation.truncates:
        at = [max(temperature, EPSILON) for temperature in temperatures]
        kept = [generation.truncated(logits.float() / temperature)[rows, tokens] for temperature in at]
        offsets.append(~torch.stack(kept, dim=-1).isinf())
    return offsets


def offset_logprobs(
    offsets: Floats, log_total: Floats, temperatures: Sequence[float], possible: Mask | None = None
) -> Floats:
    """Return (m, T) log-probabilities of tokens whose logits lie ``offsets`` (m,) below the largest of their rows.

    ``log_total`` (m, T) are the rows' totals; where a token is not ``possible`` (m, T), it is −inf.
    """
    logprobs: Floats = offsets[:, None] / np.maximum(np.asarray(temperatures), EPSILON) - log_total
    return logprobs if possible is None else np.where(possible, logprobs, -np.inf)
