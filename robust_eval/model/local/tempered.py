"""One row of logits serves every temperature: probabilities of sets of next tokens, at all of them at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.draw import EPSILON
from robust_eval.model.token_texts import Ids

_ROWS_AT_ONCE = 8
"""Rows of logits in work at once: 8 × 50,000 tokens are 1.6 MB, which stay in a processor's cache."""


@dataclass(frozen=True)
class Masses:
    """Of n prefixes at T temperatures: ``log_total`` (n, T) is log Σ exp(x / t) over the vocabulary, x the logits less
    the row's largest; ``shares`` (n, sets, T) the probability of each set of tokens.
    """

    log_total: Floats
    shares: Floats


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
    log_total = np.empty((len(logits), len(temperatures)))
    sums = np.zeros((len(logits), count, len(temperatures)))
    for start in range(0, len(logits), _ROWS_AT_ONCE):
        x = logits[start : start + _ROWS_AT_ONCE].float()
        x = x - x.amax(dim=-1, keepdim=True)
        members = [ids for row in sets[start : start + len(x)] for ids in row]
        sizes = [len(ids) for ids in members]
        rows = torch.from_numpy(np.repeat(np.repeat(np.arange(len(x)), count), sizes)).to(x.device)
        segment = torch.from_numpy(np.repeat(np.arange(len(members)), sizes)).to(x.device)
        columns = torch.from_numpy(np.concatenate(members) if members else np.empty(0, np.intp)).to(x.device)
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
            parts[index].index_add_(0, segment, weights[rows, columns].double())
            if visit is not None:
                visit(start, index, weights, totals[index])
        log_total[start : start + len(x)] = totals.log().T.cpu().numpy()
        shares = parts.view(len(temperatures), len(x), count) / totals[:, :, None]
        sums[start : start + len(x)] = shares.permute(1, 2, 0).cpu().numpy()
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
    at = np.maximum(np.asarray(temperatures), EPSILON)
    place = torch.from_numpy(rows).to(logits.device)
    chosen = torch.from_numpy(tokens).to(logits.device)
    x = (logits[place, chosen].float() - logits.amax(dim=-1).float()[place]).double().cpu().numpy()
    logprobs: Floats = x[:, None] / at - log_total[rows]
    if generation.truncates:
        distinct, inverse = torch.unique(place, return_inverse=True)
        for index, temperature in enumerate(at.tolist()):
            kept = generation.truncated(logits[distinct].float() / temperature)[inverse, chosen]
            logprobs[kept.isinf().cpu().numpy(), index] = -np.inf
    return logprobs
