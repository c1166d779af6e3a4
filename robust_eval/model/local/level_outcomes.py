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
from robust_eval.model.local.tempered import Masses, offset_logprobs, possible_masks, tempered_masses
from robust_eval.model.local.thinning import TreeScores, score_blocks, topk
from robust_eval.model.local.vocabulary import NextTokenSets, TokenSets
from robust_eval.model.token_texts import Ids

SD_OPEN, SD_BEGUN, SD_OTHER = 0.12, 0.8, 0.15
"""Prior standard deviations of the verdict on an answer: right already but unfinished, begun with a right answer, and
any other. They decide the allocation of the nodes, and stand in for prefixes without a sample."""


class Outcomes(NamedTuple):
    """Next-token outcomes of the n prefixes of a tree level, as arrays.

    ``log_total`` (n, T) and ``shares`` (n, 3, T) are the masses of the tokens that end an answer rightly, wrongly, or
    leave it open; ``ends`` the likeliest of each (n, 3), −1 if there is none. ``certain`` (s,) are the rows of the
    prefixes that were kept with probability 1, as were all of their ancestors; ``tokens`` (s, k) are the likeliest
    continuations of those, ``logprobs`` (s, k, T) their log-probabilities, −∞ beyond the last one, ``scores`` (s, k)
    those for their expansion. ``highest`` (n,) are the largest logits. ``largest`` are those of
    :meth:`TreeScores.largest` for t trees; empty after the last token.
    """

    log_total: Floats
    shares: Floats
    ends: Ids
    certain: Ids
    tokens: Ids
    logprobs: Floats
    scores: Floats
    highest: Floats
    largest: list[Floats]


def outcomes(
    logits: Tensor,
    token_sets: Sequence[NextTokenSets],
    weight: Floats | None,
    certain: Ids,
    count: int,
    sizes: Sequence[int],
    budget: int,
    temperatures: Sequence[float],
    generation: Generation,
) -> tuple[Outcomes, TreeScores]:
    """Return the outcomes of a level's n prefixes of t trees, and scores for the expansion with each token.

    Parameters
    ----------
    logits
        (n, V), those after the prefixes.
    token_sets
        (n,) classes of the next tokens.
    weight
        (n, T) weights of the prefixes at each temperature; None if the next token is the last.
    certain, count
        The rows (s,) whose ``count`` likeliest tokens are returned.
    sizes, budget
        (t,) the number of prefixes of each tree, and the maximum number of prefixes of a tree in the next level.
    temperatures, generation
        (T,), and the truncation at each.
    """
    device, sets = logits.device, TokenSets.of_rows(token_sets, "right", "wrong", "open")
    blocks = score_blocks(len(logits), logits.shape[1], device)
    if weight is None:
        masses = tempered_masses(logits, temperatures, sets, generation)
    else:
        begun = TokenSets.of_rows(token_sets, "begun")
        masses = _scored(logits, sets, begun, weight, temperatures, generation, blocks)
    certain_rows, rows, tokens = sent(device, certain, sets.members // 3, sets.tokens)
    likeliest_wrong = logits.new_empty(0)
    if weight is None:  # all that are not right are wrong
        right = TokenSets.of_rows(token_sets, "right")
        at = tuple(sent(device, right.members, right.tokens))
        likeliest_wrong = logits.index_put(at, logits.new_full((), -torch.inf)).argmax(dim=-1)
    likeliest = index = scores = logits.new_empty((len(certain), 0))
    cut: list[Tensor] = []
    if width := min(count, logits.shape[1]):
        expansion = blocks.flatten(1)[certain_rows]
        possible = logits[certain_rows].masked_fill(expansion[:, : logits.shape[1]] == 0, -torch.inf)
        likeliest, index = topk(possible, width)
        scores = expansion.gather(1, index)
        if generation.truncates:
            chosen = certain_rows[:, None] * logits.shape[1] + index.clamp(max=logits.shape[1] - 1)
            cut = possible_masks(logits, chosen.flatten(), temperatures, generation)
    trees = TreeScores(blocks, sizes)
    candidates = () if weight is None else trees.largest(budget + 1)
    columns = masses.log_total, masses.shares, logits[rows, tokens], likeliest_wrong, likeliest, index
    arrays = fetched(*columns, scores, masses.highest, *candidates, *cut)
    log_total, shares, value, wrong, top, top_ids, top_scores, highest, *rest = arrays
    refuse_undefined(log_total)
    largest, masks = rest[: len(candidates)], rest[len(candidates) :]
    row = np.repeat(certain, width)
    logprobs = offset_logprobs(top.ravel(), highest[row], log_total[row], temperatures, masks)
    ranked = logprobs.reshape(len(certain), width, len(temperatures))
    ends, likely = _likeliest(sets, value, wrong), top_ids.astype(np.intp)
    return Outcomes(log_total, shares, ends, certain, likely, ranked, top_scores, highest, largest), trees


def _scored(
    logits: Tensor,
    sets: TokenSets,
    begun: TokenSets,
    weight: Floats,
    temperatures: Sequence[float],
    generation: Generation,
    blocks: Tensor,
) -> Masses:
    """Return the masses of answers that end at the n prefixes of a level; write the next tokens' scores to ``blocks``.

    A score is the root of the sum, over temperatures, of the squared probability of the longer prefix, times the prior
    standard deviation of its verdict. ``sets`` are the right, wrong and open tokens of each prefix.
    """
    scores = blocks.flatten(1)[: len(logits), : logits.shape[1]]
    masses = tempered_masses(logits, temperatures, sets, generation, to_device(weight, logits.device), scores)
    scores.mul_(SD_OTHER)
    rows = np.concatenate([sets.members // 3, begun.members])
    tokens = np.concatenate([sets.tokens, begun.tokens])
    of_three = np.tile([0.0, 0.0, SD_OPEN / SD_OTHER], len(logits))
    factors = np.append(np.repeat(of_three, sets.sizes), np.full(len(begun.tokens), SD_BEGUN / SD_OTHER))
    place, by = sent(logits.device, rows * blocks[0].numel() + tokens, factors.astype(np.float32))
    blocks.view(-1).scatter_reduce_(0, place, by, "prod")  # no token is in two of the sets
    return masses


def _likeliest(sets: TokenSets, logits: Floats, likeliest_wrong: Floats) -> Ids:
    """Return (n, 3) the likeliest token of each of the three sets of n prefixes, −1 for an empty set.

    ``logits`` (m,) are those of all tokens of all sets; ``likeliest_wrong`` (n,), if any, replace the second sets.
    """
    likeliest = np.full(len(sets), -1, dtype=np.intp)
    sizes, starts = sets.sizes[sets.sizes > 0], (sets.sizes.cumsum() - sets.sizes)[sets.sizes > 0]
    highest = np.maximum.reduceat(logits, starts) if len(starts) else logits
    places = np.flatnonzero(logits == np.repeat(highest, sizes))
    filled, first = np.unique(sets.members[places], return_index=True)
    likeliest[filled] = sets.tokens[places[first]]
    ends = likeliest.reshape(-1, 3)
    if len(likeliest_wrong):
        ends[:, 1] = likeliest_wrong
    return ends
