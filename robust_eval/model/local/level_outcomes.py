"""Outcomes of the prefixes of a level: the answers that end there, and scores for the expansion of the others.

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
from robust_eval.model.local.tempered import Masses, offset_logprobs, offsets_of, tempered_masses
from robust_eval.model.local.thinning import score_blocks, topk
from robust_eval.model.local.vocabulary import NextTokenSets
from robust_eval.model.token_texts import Ids

SD_OPEN, SD_BEGUN, SD_OTHER = 0.12, 0.8, 0.15
"""Prior standard deviations of the verdict on an answer: right already but unfinished, begun with a right answer, and
any other. They decide the allocation of the nodes, and stand in for prefixes without a sample."""


class Outcomes(NamedTuple):
    """Next-token outcomes of n prefixes, as arrays.

    ``log_total`` (n, T) and ``shares`` (n, 3, T) are the masses of the tokens that end an answer rightly, wrongly, or
    leave it open; ``ends`` the likeliest of each (n, 3), −1 if there is none. ``certain`` (s,) are the rows of the
    prefixes that were kept with probability 1, as were all of their ancestors; ``tokens`` (s, k) are the likeliest
    continuations of those, ``logprobs`` (s, k, T) their log-probabilities, −∞ beyond the last one.
    """

    log_total: Floats
    shares: Floats
    ends: Ids
    certain: Ids
    tokens: Ids
    logprobs: Floats


def outcomes(
    logits: Tensor,
    token_sets: Sequence[NextTokenSets],
    weight: Floats | None,
    certain: Ids,
    count: int,
    temperatures: Sequence[float],
    generation: Generation,
) -> tuple[Outcomes, Tensor]:
    """Return the outcomes of n prefixes, and :func:`score_blocks` for the expansion with each token.

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
    temperatures, generation
        (T,), and the truncation at each.
    """
    device, sets = logits.device, [(token_set.right, token_set.wrong, token_set.open) for token_set in token_sets]
    blocks = score_blocks(len(logits), logits.shape[1], device)
    scores = blocks.flatten(1)[: len(logits), : logits.shape[1]]
    masses = _scored(logits, token_sets, weight, temperatures, generation, scores)
    rows, tokens = _pairs([ids for three in sets for ids in three])
    values = logits[to_device(rows // 3, device), to_device(tokens, device)]
    likeliest_wrong = logits.new_empty(0)
    if weight is None:  # all that are not right are wrong
        right = [to_device(part, device) for part in _pairs([token_set.right for token_set in token_sets])]
        likeliest_wrong = logits.index_put(tuple(right), logits.new_full((), -torch.inf)).argmax(dim=-1)
    certain_rows, width = to_device(certain, device), min(count, logits.shape[1])
    largest, ids = topk(logits[certain_rows].masked_fill(scores[certain_rows] == 0, -torch.inf), width)
    offsets = offsets_of(logits, certain_rows.repeat_interleave(width), ids.flatten(), temperatures, generation)
    columns = masses.log_total, masses.shares, values, likeliest_wrong, largest, ids, *offsets
    log_total, shares, value, wrong_tokens, highest, token, offset, *possible = fetched(*columns)
    below = np.where(highest.flatten() > -np.inf, offset, -np.inf)
    totals = log_total[np.repeat(certain, width)]
    logprobs = offset_logprobs(below, totals, temperatures, *(mask > 0 for mask in possible))
    ranked = logprobs.reshape(len(certain), width, len(temperatures))
    summary = Outcomes(log_total, shares, _likeliest(sets, value, wrong_tokens), certain, token.astype(np.intp), ranked)
    return summary, blocks


def _scored(
    logits: Tensor,
    token_sets: Sequence[NextTokenSets],
    weight: Floats | None,
    temperatures: Sequence[float],
    generation: Generation,
    scores: Tensor,
) -> Masses:
    """Return the masses of the answers that end at n prefixes, and write the ``scores`` (n, V) of each next token.

    A score is the root of the sum, over temperatures, of the squared probability of the longer prefix, times the prior
    standard deviation of its verdict. After the last token all scores stay 0.
    """
    sets = [(token_set.right, token_set.wrong, token_set.open) for token_set in token_sets]
    if weight is None:
        return tempered_masses(logits, temperatures, sets, generation)
    masses = tempered_masses(logits, temperatures, sets, generation, to_device(weight, logits.device), scores)
    scores.mul_(SD_OTHER)
    factors = {"begun": SD_BEGUN / SD_OTHER, "open": SD_OPEN / SD_OTHER, "right": 0.0, "wrong": 0.0}
    pairs = [_pairs([getattr(token_set, name) for token_set in token_sets]) for name in factors]
    factor = np.repeat(np.array([*factors.values()], dtype=np.float32), [len(rows) for rows, _ in pairs])
    place = tuple(to_device(np.concatenate(part), logits.device) for part in zip(*pairs, strict=True))
    scores[place] = scores[place] * to_device(factor, logits.device)
    return masses


def _pairs(sets: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Return the rows (m,) and the tokens (m,) of n sets of tokens, one set for each row."""
    return np.repeat(np.arange(len(sets)), [len(ids) for ids in sets]), np.concatenate(sets)


def _likeliest(sets: Sequence[tuple[Ids, ...]], logits: Floats, likeliest_wrong: Floats) -> Ids:
    """Return (n, 3) the likeliest tokens of the three sets of each of n prefixes, −1 for an empty set.

    ``logits`` (m,) are those of all tokens of all sets; ``likeliest_wrong`` (n,), if any, replace the second sets.
    """
    likeliest = np.full((len(sets), 3), -1, dtype=np.intp)
    start = 0
    for row, three in enumerate(sets):
        for column, ids in enumerate(three):
            if len(ids):
                likeliest[row, column] = ids[logits[start : start + len(ids)].argmax()]
            start += len(ids)
    if len(likeliest_wrong):
        likeliest[:, 1] = likeliest_wrong
    return likeliest
