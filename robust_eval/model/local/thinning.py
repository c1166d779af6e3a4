"""Keep N of very many candidates so that sums over the kept ones, each divided by its probability, stay unbiased.

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
class Kept:
    """Indices (m,) of the candidates that are kept, ascending, the probability (m,) with which each was, and the
    ``place`` (m,) of each in what :func:`thin` has returned.
    """

    index: Ids
    probability: Floats
    place: Ids

    @classmethod
    def of(cls, index: Floats | Ids, probability: Floats) -> "Kept":
        """Return what :func:`thin` has chosen, fetched from the device."""
        drawn = np.flatnonzero(probability > 0)
        kept, first = np.unique(index[drawn].astype(np.intp), return_index=True)
        return cls(kept, probability[drawn][first], drawn[first])


def thin(scores: Tensor, count: int, uniform: float) -> tuple[Tensor, Tensor]:
    """Choose ``count`` of n candidates, without waiting for the device.

    Parameters
    ----------
    scores
        (n,), not negative; candidates that score 0 are never kept.
    count
        How many are kept; all that score above 0 where these are no more.
    uniform
        A random number in [0, 1).

    Returns
    -------
    Indices (m,) and the probability (m,), in float64, with which each is kept: 0 where it is not. One may come twice.

    Notes
    -----
    A candidate is kept with probability min(1, score / c), with the c for which these add up to ``count``. Systematic
    sampling spreads those that are left to chance evenly over the order of the candidates.
    """
    largest, place = topk(scores[None], min(count + 1, len(scores)))
    positive = (largest > 0).sum()  # one more than there are places, where there are more
    largest, place = largest[0, :count].double(), place[0, :count]
    ahead = torch.arange(len(place), device=scores.device)
    rest = scores.sum(dtype=torch.float64) - (largest.cumsum(0) - largest)  # score of all but the first i
    certain = (largest * (count - ahead) > rest).long().cumprod(0).sum()
    certain = torch.where(positive <= count, positive, certain)  # of no more candidates than places all are
    sure = ahead < certain
    places = (count - certain).clamp(min=1)  # for those that are left to chance
    light = scores.scatter(0, place, torch.where(sure, 0.0, largest).to(scores.dtype))
    drawn, total = search(light, (uniform + ahead) / places)
    chance = torch.where(ahead < count - certain, (light[drawn].double() * places / total).clamp(max=1), 0.0)
    chance = torch.where(positive <= count, 0.0, chance)
    return torch.cat([place, drawn]), torch.cat([sure.double(), chance])
