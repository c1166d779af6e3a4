"""Thinning of candidates to N, such that sums over the kept ones, each divided by its probability, stay unbiased.

Fearnhead & Clifford, "On-line inference for hidden Markov models via particle filters", J. R. Statist. Soc. B 65
(2003), §2.3: heavy candidates are kept for certain, the others with probability in proportion to their score, by
systematic sampling.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.local.blockwise_topk import search, topk
from robust_eval.model.token_texts import Ids


@dataclass(frozen=True)
class ThinnedSample:
    """Indices (m,) of the kept candidates, ascending, the probability (m,) of keeping each, and its ``place`` (m,) in
    the output of :func:`thin`.
    """

    index: Ids
    probability: Floats
    place: Ids

    @classmethod
    def of(cls, index: Floats | Ids, probability: Floats) -> "ThinnedSample":
        """Return the sample of :func:`thin` from its fetched output."""
        places = np.flatnonzero(probability > 0)
        indices, first = np.unique(index[places].astype(np.intp), return_index=True)
        return cls(indices, probability[places][first], places[first])


def thin(scores: Tensor, count: int, uniform: float) -> tuple[Tensor, Tensor]:
    """Choose ``count`` of n candidates, without waiting for the device.

    Parameters
    ----------
    scores
        (n,), not negative; candidates that score 0 are never kept.
    count
        The number to keep; if no more score above 0, all of those are kept.
    uniform
        A random number in [0, 1).

    Returns
    -------
    Indices (m,) and the probability (m,), in float64, of keeping each: 0 for dropped ones. An index may occur twice.

    Notes
    -----
    A candidate is kept with probability min(1, score / c), with the c for which these add up to ``count``. Systematic
    sampling spreads the random ones evenly over the order of the candidates.
    """
    largest, place = topk(scores[None], min(count + 1, len(scores)))
    positive = (largest > 0).sum()  # one more than the places, if there are more
    largest, place = largest[0, :count].double(), place[0, :count]
    rank = torch.arange(len(place), device=scores.device)
    rest = scores.sum(dtype=torch.float64) - (largest.cumsum(0) - largest)  # score of all but the first i
    certain = (largest * (count - rank) > rest).long().cumprod(0).sum()
    certain = torch.where(positive <= count, positive, certain)  # all, if there are no more candidates than places
    is_certain = rank < certain
    places = (count - certain).clamp(min=1)  # for the random ones
    light = scores.scatter(0, place, torch.where(is_certain, 0.0, largest).to(scores.dtype))
    sampled, total = search(light, (uniform + rank) / places)
    probability = torch.where(rank < count - certain, (light[sampled].double() * places / total).clamp(max=1), 0.0)
    probability = torch.where(positive <= count, 0.0, probability)
    return torch.cat([place, sampled]), torch.cat([is_certain.double(), probability])
