"""Thinning of candidates to N, and top-k elements of long rows.

Sums over the kept candidates, each divided by its probability, stay unbiased (Fearnhead & Clifford, "On-line inference
for hidden Markov models via particle filters", J. R. Statist. Soc. B 65 (2003), §2.3): heavy candidates are kept for
certain, the others with probability in proportion to their score, by systematic sampling.

A level of an answer tree has a million candidates for a question. The largest candidates lie in the blocks with the
largest maxima. A cumulative sum passes a value in the block in which the cumulative sum of whole blocks passes it. So
only a few blocks are read, whereas torch's ``topk`` and ``cumsum`` read everything.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.token_texts import Ids

BLOCK = 512
"""Number of elements of a block."""


def topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest of each row (m, n), largest first, and their indices in the row.

    >>> topk(torch.arange(10_000.0)[None], 2)
    (tensor([[9999., 9998.]]), tensor([[9999, 9998]]))
    """
    blocks, tail = divmod(values.shape[1], BLOCK)
    if blocks <= count:
        largest = values.topk(count, dim=1)
        return largest.values, largest.indices
    whole = values[:, : blocks * BLOCK].view(len(values), blocks, BLOCK)
    first = whole.amax(dim=2).topk(count, dim=1).indices
    inside = torch.arange(BLOCK, device=values.device)
    rest = torch.arange(blocks * BLOCK, values.shape[1], device=values.device).expand(len(values), tail)
    place = torch.cat([(first[:, :, None] * BLOCK + inside).flatten(1), rest], dim=1)
    top, order = values.gather(1, place).topk(count, dim=1)
    return top, place.gather(1, order)


def search(values: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices (k,) at which the cumulative sum of ``values`` (n,) first exceeds ``shares`` (k,) of the
    total, and the total, in float64.

    ``values`` are not negative. Rounding beyond the end falls on the last element above 0.

    >>> search(torch.tensor([0.0, 1.0, 0.0, 3.0]), torch.tensor([0.2, 0.25, 1.0]))
    (tensor([1, 3, 3]), tensor(4., dtype=torch.float64))
    """
    blocks = len(values) // BLOCK
    sums = values[: blocks * BLOCK].view(blocks, BLOCK).sum(dim=1, dtype=torch.float64)
    sums = torch.cat([sums, values[blocks * BLOCK :].sum(dtype=torch.float64)[None]])
    cumulative = sums.cumsum(0)
    target = shares * cumulative[-1]
    block = _passed(cumulative, target)
    place = block[:, None] * BLOCK + torch.arange(BLOCK, device=values.device)
    block_values = values[place.clamp(max=len(values) - 1)].double().masked_fill(place >= len(values), 0)
    inside = _passed(block_values.cumsum(1), (target - cumulative[block] + sums[block])[:, None])
    return block * BLOCK + inside[:, 0], cumulative[-1]


def _passed(cumulative: Tensor, target: Tensor) -> Tensor:
    """Return the first indices at which cumulative sums exceed targets, or else the last at which they rise."""
    last = torch.searchsorted(cumulative, cumulative[..., -1:].contiguous())
    return torch.minimum(torch.searchsorted(cumulative, target, right=True), last)


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
