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
from robust_eval.model.local.device import fetched, to_device
from robust_eval.model.local.draw import refuse_undefined
from robust_eval.model.local.tempered import Weighted, possible_masks, tempered_masses
from robust_eval.model.local.thinning import TreeScores, score_blocks, topk
from robust_eval.model.local.vocabulary import BEGUN, OPEN, OTHER, RIGHT, WRONG, OutcomeTable
from robust_eval.model.token_texts import Ids

ENDS = RIGHT, WRONG, OPEN
"""Outcomes of tokens that end an answer, or may end it."""
SD_OPEN, SD_BEGUN, SD_OTHER = 0.12, 0.8, 0.15
"""Prior standard deviations of the verdict on an answer: right already but unfinished, begun with a right answer, and
any other. They decide the allocation of the nodes, and stand in for prefixes without a sample."""
SDS = np.zeros(1 + BEGUN)
SDS[[OTHER, OPEN, BEGUN]] = SD_OTHER, SD_OPEN, SD_BEGUN
"""Standard deviations after a token with each outcome; no answer continues after an end."""


class Outcomes(NamedTuple):
    """Next-token outcomes of the n prefixes of a tree level, as arrays.

    ``log_total`` (n, T) and ``shares`` (n, 3, T) are the masses of the tokens of the outcomes ``ENDS``; ``ends`` the
    likeliest of each (n, 3), −1 if there is none. ``certain`` (s,) are the rows of the prefixes that were kept with
    probability 1, as were all of their ancestors; ``tokens`` (s, k) are the likeliest continuations of those,
    ``logits`` (s, k) theirs, −∞ beyond the last one, ``cut`` their mask (s · k, T) of :func:`possible_masks`, if any,
    and ``scores`` (s, k) those for their expansion. ``highest`` (n,) are the largest logits. ``largest`` are those of
    :meth:`TreeScores.largest` for t trees; empty after the last token.
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
    table: OutcomeTable,
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
    table
        Outcomes of the tokens after each prefix.
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
    certain_rows = to_device(certain, device)
    scores = blocks.flatten(1)[:rows, :size]
    weighted = None if weight is None else Weighted(to_device(weight, device), scores, SDS)
    # the last token ends any answer
    masses = tempered_masses(logits, temperatures, table, generation, OTHER if weight is None else RIGHT, weighted)
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
    numbers = masses.log_total, masses.shares[:, : len(ENDS)], masses.highest, masses.likeliest
    log_total, shares, highest, ends, top, top_scores, top_ids, *rest = fetched(
        *numbers, likeliest, expansion_scores, index, *candidates, *masks
    )
    refuse_undefined(log_total)
    largest, cut = rest[: len(candidates)], rest[len(candidates) :]
    return Outcomes(
        log_total,
        shares,
        ends.astype(np.intp)[:, [RIGHT, OTHER, OPEN] if weight is None else [outcome - RIGHT for outcome in ENDS]],
        certain,
        top_ids.astype(np.intp),
        top,
        cut,
        top_scores,
        highest,
        largest,
    ), trees
