"""Keep N of very many candidates so that sums over the kept ones, each divided by its probability, stay unbiased.

Fearnhead & Clifford, "On-line inference for hidden Markov models via particle filters", J. R. Statist. Soc. B 65
(2003), §2.3: heavy candidates are kept for certain, the others with probability in proportion to their score, by
systematic sampling.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kept:
    """Indices (m,) of the candidates that are kept, ascending, and the probability (m,) with which each was."""

    index: Tensor
    probability: Tensor


def thin(scores: Tensor, count: int, uniform: float) -> Kept:
    """Keep ``count`` of n candidates.

    Parameters
    ----------
    scores
        (n,), not negative; candidates that score 0 are never kept.
    count
        How many are kept; all that score above 0 where these are no more.
    uniform
        A random number in [0, 1).

    Notes
    -----
    A candidate is kept with probability min(1, score / c), with the c for which these add up to ``count``. Systematic
    sampling spreads those that are left to chance evenly over the order of the candidates.
    """
    positive = int((scores > 0).sum())
    if positive <= count:
        index = torch.nonzero(scores > 0).squeeze(1)
        return Kept(index, torch.ones(len(index), dtype=torch.float64, device=scores.device))
    largest, place = scores.topk(count)
    largest = largest.double()
    rest = scores.sum(dtype=torch.float64) - (largest.cumsum(0) - largest)  # score of all but the first i
    places = torch.arange(count, 0, -1, device=scores.device)
    certain = int((largest * places > rest).long().cumprod(0).sum())
    step = float(rest[certain] / (count - certain))
    light = scores.to(torch.float64, copy=True)
    light[place[:certain]] = 0
    cumulative = light.cumsum(0)
    at = (uniform + torch.arange(count - certain, dtype=torch.float64, device=scores.device)) * step
    drawn = torch.searchsorted(cumulative, at * (cumulative[-1] / (step * (count - certain))), right=True)
    drawn = torch.unique(drawn.clamp(max=len(scores) - 1))
    index, order = torch.cat([place[:certain], drawn]).sort()
    sure = torch.ones(certain, dtype=torch.float64, device=scores.device)
    probability = torch.cat([sure, (light[drawn] / step).clamp(max=1)])
    return Kept(index, probability[order])
