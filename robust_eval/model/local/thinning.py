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
from robust_eval.model.local.device import sent
from robust_eval.model.token_texts import Ids, Mask

BLOCK = 512
"""Number of elements of a block."""


def topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest elements of each row (m, n), largest first, and their indices in the row.

    >>> topk(torch.arange(10_000.0)[None], 2)
    (tensor([[9999., 9998.]]), tensor([[9999, 9998]]))
    """
    blocks, tail = divmod(values.shape[1], BLOCK)
    if blocks <= count:
        largest = values.topk(count, dim=1)
        return largest.values, largest.indices
    if tail:
        values = torch.nn.functional.pad(values, (0, BLOCK - tail), value=-torch.inf)
    in_blocks = values.view(len(values), -1, BLOCK)
    first = in_blocks.amax(dim=2).topk(count, dim=1).indices[:, :, None]
    index = torch.add(torch.arange(BLOCK, device=values.device), first, alpha=BLOCK).flatten(1)
    top, order = in_blocks.gather(1, first.expand(-1, -1, BLOCK)).flatten(1).topk(count, dim=1)
    return top, index.gather(1, order)


@dataclass(frozen=True)
class ThinnedSample:
    """Thinned candidates: indices (m,) of those kept, ascending, the probability (m,) of keeping each, and its
    ``place`` (m,) among the chosen ones.
    """

    index: Ids
    probability: Floats
    place: Ids

    @classmethod
    def of(cls, index: Ids, probability: Floats) -> "ThinnedSample":
        """Return the sample of one tree from all that were chosen: some twice, dropped ones with probability 0."""
        places = np.flatnonzero(probability > 0)
        indices, first = np.unique(index[places], return_index=True)
        return cls(indices, probability[places][first], places[first])


def certain_and_random(largest: Floats, excluded: Mask, totals: Floats, counts: Ids) -> tuple[Mask, Ids]:
    """Return which of the ``largest`` candidates (t, k) of t trees, largest first, are certain if thinning keeps
    ``counts`` (t,) of those that are not ``excluded`` (t, k), and how many (t,) it leaves to chance.

    ``totals`` (t,) are the sums of all scores but those of the excluded. All candidates above 0 are certain if there
    are no more than the count.
    """
    rank = (~excluded).cumsum(axis=1) - 1  # of a candidate that is not excluded, among them
    heavy = np.where(excluded, 0.0, largest)
    left = counts[:, None]
    is_few = ((heavy > 0) & (rank <= left)).sum(axis=1) <= counts
    among = ~excluded & (rank < left)
    rest = totals[:, None] - (heavy.cumsum(axis=1) - heavy)  # score of all but the first
    outweighs = excluded | (among & (heavy * (left - rank) > rest))
    is_certain = np.where(is_few[:, None], heavy > 0, among & np.logical_and.accumulate(outweighs, axis=1))
    return is_certain, np.where(is_few, 0, counts - is_certain.sum(axis=1))


def systematic_shares(uniforms: Floats, draws: Ids) -> Floats:
    """Return the places of t systematic samples of ``draws`` (t,) in the cumulative sums, as shares (t, most draws) of
    the totals, below 1; 0 beyond the last one.
    """
    numbers = np.arange(draws.max(initial=0))
    shares = np.minimum((uniforms[:, None] + numbers) / np.maximum(draws, 1)[:, None], np.nextafter(1, 0))
    return np.where(numbers < draws[:, None], shares, 0.0)


def score_blocks(rows: int, size: int, device: torch.device) -> Tensor:
    """Return zeros (rows + 1, blocks, BLOCK) for scores of rows of ``size`` tokens; the last row stays 0."""
    return torch.zeros((rows + 1, -(-size // BLOCK), BLOCK), device=device)


class TreeScores:
    """Scores of the candidates of t trees, for thinning without waiting for the device.

    A candidate is kept with probability min(1, score / c), with the c for which these add up to the number to keep:
    :func:`certain_and_random` says which are certain. Systematic sampling spreads the others evenly over the order of
    the candidates. The number of kernels does not grow with the trees, and the choice for one does not depend on the
    others.

    Parameters
    ----------
    scores
        :func:`score_blocks` of n rows, not negative; candidates that score 0 are never kept.
    sizes
        (t,) the number of rows of each tree, one at least.
    """

    def __init__(self, scores: Tensor, sizes: Sequence[int]) -> None:
        counts, place = np.array(sizes)[:, None], np.arange(-1, max(sizes))
        # the last row, which is 0, precedes each tree, and follows those with fewer rows than others
        in_tree = (place >= 0) & (place < counts)
        rows = np.where(in_tree, np.cumsum(counts)[:, None] - counts + place, len(scores) - 1)
        starts = rows[:, :, None] * scores[0].numel(), np.arange(scores.shape[1]) * BLOCK, np.arange(BLOCK)
        self._row, first, offset, self._inside = sent(scores.device, rows, *starts)
        self._start = (first + offset).flatten(1)
        self._scores = scores

    def largest(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ``count`` largest scores of each tree (t, k), largest first, their flat indices (t, k), and the
        sum (t,) of all scores, in float64.
        """
        maxima = self._scores.amax(2)[self._row].flatten(1)
        place = maxima.topk(min(count, maxima.shape[1]), dim=1).indices
        index = self._indices(place).flatten(1)
        top, inside = self._scores.take(index).topk(min(count, index.shape[1]), dim=1)
        return top, index.gather(1, inside), self._cumulative()[:, -1]

    def sample(self, removed: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Set the scores at the flat indices ``removed`` to 0. Return the flat indices (t, d) at which the cumulative
        sum of a tree first exceeds ``shares`` (t, d) of its total, the scores there, and the totals (t,), in float64.
        """
        self._scores.view(-1).index_fill_(0, removed, 0)
        cumulative = self._cumulative()
        target = shares * cumulative[:, -1:]
        place = torch.searchsorted(cumulative, target, right=True).clamp_(max=cumulative.shape[1] - 1)
        index = self._indices(place)
        values = self._scores.take(index)
        inside = values.cumsum(2, dtype=torch.float64)
        beyond = (target - cumulative.gather(1, place - 1))[:, :, None]
        # rounding beyond the end of a block falls on its last element above 0
        last = torch.searchsorted(inside, inside[:, :, -1:].contiguous())
        first = torch.minimum(torch.searchsorted(inside, beyond, right=True), last)
        return index.gather(2, first)[:, :, 0], values.gather(2, first)[:, :, 0], cumulative[:, -1]

    def _cumulative(self) -> Tensor:
        """Return the cumulative sums (t, blocks) of candidates' scores over the blocks of each tree; the first is 0."""
        return self._scores.sum(2, dtype=torch.float64)[self._row].flatten(1).cumsum(1)

    def _indices(self, place: Tensor) -> Tensor:
        """Return the flat indices (t, k, BLOCK) of the candidates' scores in blocks ``place`` (t, k) of the trees."""
        return self._start.gather(1, place)[:, :, None] + self._inside
