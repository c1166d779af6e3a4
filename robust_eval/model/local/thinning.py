"""Thinning of candidates to N, and top-k elements of long rows.

Sums over the kept candidates, each divided by its probability, stay unbiased (Fearnhead & Clifford, "On-line inference
for hidden Markov models via particle filters", J. R. Statist. Soc. B 65 (2003), §2.3): heavy candidates are kept for
certain, the others with probability in proportion to their score, by systematic sampling.

A level of an answer tree has a million candidates for a question. The largest candidates lie in the blocks with the
largest maxima. A cumulative sum passes a value in the block in which the cumulative sum of whole blocks passes it. So
only a few blocks are read, whereas torch's ``topk`` and ``cumsum`` read everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.local.device import to_device
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
        """Return the sample of :func:`thin` from its fetched output for one tree."""
        places = np.flatnonzero(probability > 0)
        indices, first = np.unique(index[places].astype(np.intp), return_index=True)
        return cls(indices, probability[places][first], places[first])


def thin(
    scores: Tensor, sizes: Sequence[int], counts: Sequence[int], uniforms: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Choose some of the candidates of each of t trees, without waiting for the device.

    The number of kernels does not grow with the trees, and the choice for one does not depend on the others.

    Parameters
    ----------
    scores
        :func:`score_blocks` of n rows, not negative; candidates that score 0 are never kept. The kept ones that are
        certain are overwritten with 0.
    sizes
        (t,) the number of rows of each tree, one at least.
    counts
        (t,) the number to keep in each tree; if no more score above 0, all of those are kept.
    uniforms
        (t,) random numbers in [0, 1).

    Returns
    -------
    Indices (t, m) in the flat blocks, and the probability (t, m), in float64, of keeping each: 0 for dropped ones. An
    index may occur twice.

    Notes
    -----
    A candidate is kept with probability min(1, score / c), with the c for which these add up to the count. Systematic
    sampling spreads the random ones evenly over the order of the candidates.
    """
    blocks = _TreeScores(scores, sizes)
    device, most = scores.device, max(counts)
    count = to_device(np.array(counts)[:, None], device)
    uniform = to_device(np.array(uniforms)[:, None], device)
    largest, place, holding = blocks.largest(most + 1)
    counted = torch.arange(largest.shape[1], device=device) <= count
    positive = ((largest > 0) & counted).sum(1, keepdim=True)  # one more than the places, if there are more
    largest, place = largest[:, :most], place[:, :most]
    rank = torch.arange(most, device=device)[: largest.shape[1]]
    heavy = largest.double().masked_fill(rank >= count, 0)
    rest = blocks.sums.sum(1, keepdim=True) - (heavy.cumsum(1) - heavy)  # score of all but the first i
    certain = (heavy * (count - rank) > rest).long().cumprod(1).sum(1, keepdim=True)
    certain = torch.where(positive <= count, positive, certain)  # all, if there are no more candidates than places
    is_certain = rank < certain
    places = (count - certain).clamp(min=1)  # for the random ones
    blocks.remove(place, largest, is_certain, holding)
    draws = torch.arange(most, device=device)
    sampled, score, total = blocks.search((uniform + draws) / places)
    probability = torch.where(draws < count - certain, (score * places / total).clamp(max=1), 0.0)
    probability = torch.where(positive <= count, 0.0, probability)
    return torch.cat([place, sampled], dim=1), torch.cat([is_certain.double(), probability], dim=1)


def score_blocks(rows: int, size: int, device: torch.device) -> Tensor:
    """Return zeros (rows + 1, blocks, BLOCK) for scores of rows of ``size`` tokens; the last row stays 0."""
    return torch.zeros((rows + 1, -(-size // BLOCK), BLOCK), device=device)


class _TreeScores:
    """Scores of the rows of t trees; ``sums`` (t, blocks), in float64, of the blocks of each tree.

    Trees with fewer rows than others have the last row of the scores, which is 0, in their place.
    """

    def __init__(self, scores: Tensor, sizes: Sequence[int]) -> None:
        counts, place = np.array(sizes)[:, None], np.arange(max(sizes))
        rows = np.where(place < counts, np.cumsum(counts)[:, None] - counts + place, len(scores) - 1)
        number = scores.shape[1]
        blocks = (rows[:, :, None] * number + np.arange(number)).reshape(len(rows), -1)
        self._block = to_device(blocks, scores.device)
        self._scores = scores.view(-1, BLOCK)
        self._maxima = self._scores.amax(1)[self._block]
        self.sums = self._scores.sum(1, dtype=torch.float64)[self._block]

    def largest(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ``count`` largest scores of each tree (t, k), largest first, their flat indices, and the blocks
        (t, b) that hold them. Of equal ones the first are returned.
        """
        _, place = _ordered_topk(self._maxima, min(count, self._maxima.shape[1]))
        place = place.sort(dim=1).values
        block = self._block.gather(1, place)
        values = self._scores[block].flatten(1)
        top, inside = _ordered_topk(values, min(count, values.shape[1]))
        return top, block.gather(1, inside // BLOCK) * BLOCK + inside % BLOCK, place

    def remove(self, place: Tensor, values: Tensor, which: Tensor, holding: Tensor) -> None:
        """Set the scores at ``place`` (t, k), which are ``values`` in the blocks ``holding``, to 0 where ``which``."""
        # trees may share places of padding, which are 0 and stay so
        self._scores.view(-1).scatter_(0, place.flatten(), values.masked_fill(which, 0).flatten())
        sums = self._scores[self._block.gather(1, holding)].sum(2, dtype=torch.float64)
        self.sums.scatter_(1, holding, sums)

    def search(self, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the flat indices (t, k) at which the cumulative sum of a tree first exceeds ``shares`` (t, k) of its
        total, the scores there, and the totals (t, 1), in float64.

        Rounding beyond the end falls on the last element above 0.
        """
        cumulative = self.sums.cumsum(1)
        total = cumulative[:, -1:]
        target = shares * total
        place = _passed(cumulative, target)
        block = self._block.gather(1, place)
        values = self._scores[block].double()
        before = cumulative.gather(1, place) - self.sums.gather(1, place)
        inside = _passed(values.cumsum(2), (target - before)[:, :, None])
        return block * BLOCK + inside[:, :, 0], values.gather(2, inside)[:, :, 0], total


def _ordered_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest of each row of float32 numbers ≥ 0 and their indices, of equal ones the first.

    The bits of such numbers are ordered like the numbers.
    """
    index = torch.arange(values.shape[1], device=values.device)
    key = (values.view(torch.int32).long() << 32) | (values.shape[1] - index)
    place = values.shape[1] - (key.topk(count, dim=1).values & 0xFFFFFFFF)
    return values.gather(1, place), place


def _passed(cumulative: Tensor, target: Tensor) -> Tensor:
    """Return the first indices at which cumulative sums exceed targets, or else the last at which they rise."""
    last = torch.searchsorted(cumulative, cumulative[..., -1:].contiguous())
    return torch.minimum(torch.searchsorted(cumulative, target, right=True), last)
