"""Outcomes of the prefixes of a tree level: answers that end there, and scores for the expansion of the others.

They are computed for many questions together, before the device is waited for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
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
RELATIVE_SDS = (0.0, 0.0, SD_OPEN / SD_OTHER, SD_BEGUN / SD_OTHER)
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
    last = weight is None  # then all tokens that are not right are wrong
    common, few = (np.arange(size), sets) if last else _common_ends(sets, size)
    row, side, ids = few.expanded()
    places = np.searchsorted(common, ids)
    is_other = (side == RIGHT) & (np.append(common, -1)[places] == ids)  # among the common ends, but not wrong
    others = (row * len(common) + places)[is_other]
    sds = np.array(RELATIVE_SDS, dtype=np.float32)[side]
    blocks = score_blocks(rows, size, device)
    certain_rows, at_rows, at, removed, at_common, flat, factors = sent(
        device, certain, row, ids, others, common[:0] if last else common, row * blocks[0].numel() + ids, sds
    )
    if weight is None:
        masses = tempered_masses(logits, temperatures, sets.first(ENDS), generation)
        ends = logits.clone()
    else:
        scores = blocks.flatten(1)[:rows, :size]
        weights = to_device(weight, device)
        masses = tempered_masses(logits, temperatures, sets.first(ENDS), generation, weights, scores)
        scores.mul_(SD_OTHER)
        scores.index_fill_(1, at_common, 0)
        blocks.view(-1).scatter_reduce_(0, flat, factors, "prod")  # no token is in two of the sets
        ends = logits.index_select(1, at_common)
    ends.view(-1).index_fill_(0, removed, -torch.inf)
    common_ends = ends.max(dim=1) if len(common) else (logits[:0, 0], at[:0])
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
    numbers = masses.log_total, masses.shares, masses.highest, likeliest, expansion_scores
    log_total, shares, highest, top, top_scores, of_ids, of_common, in_common, top_ids, *rest = fetched(
        *numbers, logits[at_rows, at], *common_ends, index, *candidates, *masks
    )
    refuse_undefined(log_total)
    has_common = np.flatnonzero(of_common > -np.inf)
    likeliest_ends = _likeliest(
        np.concatenate([len(SETS) * row + side, len(SETS) * has_common + WRONG]),
        np.concatenate([ids, common[in_common[has_common].astype(np.intp)]]),
        np.concatenate([of_ids, of_common[has_common]]),
        len(SETS) * rows,
    ).reshape(rows, len(SETS))[:, :ENDS]
    largest, cut = rest[: len(candidates)], rest[len(candidates) :]
    return Outcomes(
        log_total, shares, likeliest_ends, certain, top_ids.astype(np.intp), top, cut, top_scores, highest, largest
    ), trees


def _common_ends(sets: TokenSets, size: int) -> tuple[Ids, TokenSets]:
    """Return the tokens that end an answer after every prefix, ascending, and the sets without them as wrong ones.

    They are nearly all tokens of the sets; so only the others are looked up one by one.
    """
    columns = sets.columns
    is_common = np.bincount(sets.tokens[columns <= WRONG], minlength=size) == len(sets.sizes)
    return np.flatnonzero(is_common), sets.only(~((columns == WRONG) & is_common[sets.tokens]))


def _likeliest(sets: Ids, tokens: Ids, logits: Floats, count: int) -> Ids:
    """Return (n,) the likeliest token of each of ``count`` sets, the lowest of equals, −1 for an empty set.

    ``logits`` (m,) are those of the ``tokens`` (m,), ``sets`` (m,) the sets of these.
    """
    order = np.lexsort((tokens, -logits, sets))
    filled, first = np.unique(sets[order], return_index=True)
    likeliest = np.full(count, -1, dtype=np.intp)
    likeliest[filled] = tokens[order[first]]
    return likeliest
