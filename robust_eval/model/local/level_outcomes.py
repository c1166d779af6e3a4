"""Outcomes of the prefixes of a tree level: answers that end there, and scores for the expansion of the others.

They are computed for many questions together, before the device is waited for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.device import fetched, sent, to_device
from robust_eval.model.local.draw import refuse_undefined
from robust_eval.model.local.tempered import possible_masks, tempered_masses
from robust_eval.model.local.thinning import TreeScores, score_blocks, topk
from robust_eval.model.local.vocabulary import TokenSets
from robust_eval.model.token_texts import Ids

SETS = ("right", "wrong", "open", "begun")
"""The sets of next tokens of each prefix, in this order."""
RIGHT, WRONG, OPEN, BEGUN = range(len(SETS))
ENDS = OPEN + 1
"""Number of sets, the first ones, whose tokens end an answer or may."""
SD_OPEN, SD_BEGUN, SD_OTHER = 0.12, 0.8, 0.15
"""Prior standard deviations of the verdict on an answer: right already but unfinished, begun with a right answer, and
any other. They decide the allocation of the nodes, and stand in for prefixes without a sample."""
RELATIVE_SDS = np.array([0.0, 0.0, SD_OPEN / SD_OTHER, SD_BEGUN / SD_OTHER], dtype=np.float32)
"""Standard deviations after the tokens of each set, relative to SD_OTHER; no answer continues after an end."""


class Outcomes(NamedTuple):
    """Next-token outcomes of the n prefixes of a tree level, as arrays.

    ``log_total`` (n, T) and ``shares`` (n, 3, T) are the masses of the tokens that end an answer rightly, wrongly, or
    leave it open; ``ends`` the likeliest of each (n, 3), −1 if there is none. ``certain`` (s,) are the rows of the
    prefixes that were kept with probability 1, as were all of their ancestors; ``tokens`` (s, k) are the likeliest
    continuations of those, ``logits`` (s, k) theirs, −∞ beyond the last one, ``cut`` their mask (s · k, T) of
    :func:`possible_masks`, if any, and ``scores`` (s, k) those for their expansion. ``highest`` (n,) are the largest
    logits. ``largest`` are those of :meth:`TreeScores.largest` for t trees; empty after the last token.
    """

    log_total: Floats
    shares: Floats
    ends: Ids
    certain: Ids
    tokens: Ids
    logits: Floats
    cut: list[Floats]
    scores: Floats
    highest: Floats
    largest: list[Floats]


def outcomes(
    logits: Tensor,
    sets: TokenSets,
    weight: Floats | None,
    certain: Ids,
    count: int,
    sizes: Sequence[int],
    budget: int,
    temperatures: Sequence[float],
    generation: Generation,
) -> tuple[Outcomes, TreeScores]:
    """Return the outcomes of a level's n prefixes of t trees, and scores for the expansion with each token.

    A score is the root of the sum, over temperatures, of the squared probability of the longer prefix, times the prior
    standard deviation of its verdict.

    Parameters
    ----------
    logits
        (n, V), those after the prefixes.
    sets
        The :data:`SETS` of next tokens of each prefix.
    weight
        (n, T) weights of the prefixes at each temperature; None if the next token is the last.
    certain, count
        The rows (s,) whose ``count`` likeliest tokens are returned.
    sizes, budget
        (t,) the number of prefixes of each tree, and the maximum number of prefixes of a tree in the next level.
    temperatures, generation
        (T,), and the truncation at each.
    """
    device, (rows, size) = logits.device, logits.shape
    blocks = score_blocks(rows, size, device)
    ends = _Ends(sets, size, weight is None)
    certain_rows, *places = sent(device, certain, *ends.places())
    scores = blocks.flatten(1)[:rows, :size]
    weights = None if weight is None else to_device(weight, device)
    masses = tempered_masses(logits, temperatures, sets.first(ENDS), generation, weights, scores)
    if weights is not None:
        flat, factors = sent(device, *ends.factors(blocks[0].numel()))
        scores.mul_(SD_OTHER).index_fill_(1, places[0], 0)
        blocks.view(-1).scatter_reduce_(0, flat, factors, "prod")  # no token is in two of the sets
    likeliest = index = expansion_scores = logits.new_empty((len(certain), 0))
    masks: list[Tensor] = []
    if width := min(count, size):
        expansion = blocks.flatten(1)[certain_rows]
        possible = logits[certain_rows].masked_fill(expansion[:, :size] == 0, -torch.inf)
        likeliest, index = topk(possible, width)
        expansion_scores = expansion.gather(1, index)
        if generation.truncates:
            chosen = certain_rows[:, None] * size + index.clamp(max=size - 1)
            masks = possible_masks(logits, chosen.flatten(), temperatures, generation)
    trees = TreeScores(blocks, sizes)
    candidates = () if weight is None else trees.largest(budget + 1)
    numbers = masses.log_total, masses.shares, masses.highest, likeliest, expansion_scores, index
    log_total, shares, highest, top, top_scores, top_ids, *rest = fetched(
        *numbers, *ends.search(logits, *places), *candidates, *masks
    )
    refuse_undefined(log_total)
    of_ends, largest, cut = rest[:3], rest[3 : 3 + len(candidates)], rest[3 + len(candidates) :]
    return Outcomes(
        log_total,
        shares,
        ends.likeliest(*of_ends),
        certain,
        top_ids.astype(np.intp),
        top,
        cut,
        top_scores,
        highest,
        largest,
    ), trees


class _Ends:
    """Search for the likeliest token of each set of n prefixes whose tokens end an answer or may end it.

    Most of these tokens end an answer after every prefix, rightly or wrongly. These ``common`` ones are searched
    together, and only the rare ones are looked up one by one. At the last token of an answer all are common.
    """

    def __init__(self, sets: TokenSets, size: int, last: bool) -> None:
        self._size, self._last = size, last
        self._rows = len(sets.states)
        self._common, rare = (np.arange(size), sets) if last else _common_ends(sets, size)
        self._row, self._side, self._token = rare.expanded()
        self._is_end = self._side < ENDS

    def factors(self, stride: int) -> tuple[Ids, NDArray[np.float32]]:
        """Return the places (m,) of tokens of the sets in scores with ``stride`` columns, and factors (m,) for these.

        The common wrong ends are not among them; their factor is 0.
        """
        return self._row * stride + self._token, RELATIVE_SDS[self._side]

    def places(self) -> tuple[Ids, Ids, Ids]:
        """Return the common ends (k,), the flat places of right ones in n rows of k, and those of rare ends in the
        logits (n, V).
        """
        is_right = self._side == RIGHT
        row, token = self._row[is_right], self._token[is_right]
        column = np.searchsorted(self._common, token)
        is_common = np.append(self._common, -1)[column] == token
        right = (row * len(self._common) + column)[is_common]
        rare = (self._row * self._size + self._token)[self._is_end]
        return self._common[:0] if self._last else self._common, right, rare

    def search(self, logits: Tensor, common: Tensor, right: Tensor, rare: Tensor) -> tuple[Tensor, ...]:
        """Return the largest logit (n,) of wrong common ends, its column (n,) in them, and the logits of rare ends.

        ``logits`` are (n, V); the rest is what :meth:`places` returned, on their device.
        """
        of_common = logits.clone() if self._last else logits.index_select(1, common)
        of_common.view(-1).index_fill_(0, right, -torch.inf)
        largest, column = of_common.max(dim=1) if len(self._common) else (logits[:0, 0], common)
        return largest, column, logits.take(rare)

    def likeliest(self, largest: Floats, column: Floats, rare: Floats) -> Ids:
        """Return (n, 3) the likeliest token of each set, the lowest of equals, −1 if no token of the set is possible.

        The parameters are what :meth:`search` returned.
        """
        tokens, owners = self._token[self._is_end], (self._row * len(SETS) + self._side)[self._is_end]
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        likeliest, highest = np.full((self._rows, len(SETS)), -1), np.full((self._rows, len(SETS)), -np.inf)
        if len(owners):
            filled = owners[starts]
            highest.flat[filled] = np.maximum.reduceat(rare, starts)
            places = np.flatnonzero(rare == highest.flat[owners])
            likeliest.flat[filled] = tokens[places[np.searchsorted(places, starts)]]
        likeliest[highest == -np.inf] = -1
        if len(largest):
            common, rest = self._common[column.astype(np.intp)], highest[:, WRONG]
            is_first = (largest == rest) & (largest > -np.inf) & (common < likeliest[:, WRONG])
            wins = (largest > rest) | is_first
            likeliest[wins, WRONG] = common[wins]
        return likeliest[:, :ENDS]


def _common_ends(sets: TokenSets, size: int) -> tuple[Ids, TokenSets]:
    """Return the tokens that end an answer after every prefix, and the sets without those of them that are wrong."""
    columns = sets.columns
    is_common = np.bincount(sets.tokens[columns <= WRONG], minlength=size) == len(sets.sizes)
    return np.flatnonzero(is_common), sets.only(~((columns == WRONG) & is_common[sets.tokens]))
