"""What becomes of the prefixes of a level: what ends at each of them, and how much it matters to go on, and to what.

All of it is computed for many questions at once, before the device is waited for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import Floats
from robust_eval.model.generation import Generation
from robust_eval.model.local.blockwise_topk import topk
from robust_eval.model.local.tempered import Masses, offset_logprobs, offsets_of, tempered_masses
from robust_eval.model.local.token_outcomes import Kinds
from robust_eval.model.local.transfers import fetched, to_device
from robust_eval.model.token_texts import Ids

SPREAD_OPEN, SPREAD_BEGUN, SPREAD_OTHER = 0.12, 0.8, 0.15
"""How uncertain it is whether an answer ends rightly, as a standard deviation about what it is taken for: where it is
right already but may go on, where it has begun with a right answer, and elsewhere. They decide how the nodes are spent,
and what is assumed of the few that no sample says anything of."""


class Outcomes(NamedTuple):
    """What the rows of logits of n prefixes say, as arrays.

    ``log_total`` (n, T) and ``shares`` (n, 3, T) are the masses of the tokens that end an answer rightly, wrongly, or
    leave it open; ``ends`` the likeliest of each (n, 3), −1 where there is none. Of the prefixes that were kept for
    certain, all of whose beginnings were as well, ``sure`` (s,) are the rows, ``tokens`` (s, k) the likeliest after
    which answers go on, ``logprobs`` (s, k, T) their log-probabilities, −∞ where there are fewer.
    """

    log_total: Floats
    shares: Floats
    ends: Ids
    sure: Ids
    tokens: Ids
    logprobs: Floats


def outcomes(
    logits: Tensor,
    kinds: Sequence[Kinds],
    weight: Floats | None,
    sure: Ids,
    count: int,
    temperatures: Sequence[float],
    generation: Generation,
) -> tuple[Outcomes, Tensor]:
    """Return what ends at n prefixes and may follow, and scores (n, V): how much it matters to go on to each token.

    Parameters
    ----------
    logits
        (n, V), those after the prefixes.
    kinds
        (n,) what next tokens make of them.
    weight
        (n, T) how much each prefix matters at each temperature; None where no token follows the next one.
    sure, count
        The rows (s,) after which the ``count`` likeliest tokens are wanted.
    temperatures, generation
        (T,), and the truncation at each.
    """
    device, sets = logits.device, [(kind.right, kind.wrong, kind.open) for kind in kinds]
    masses, scores = _scored(logits, kinds, weight, temperatures, generation)
    rows, tokens = _pairs([ids for three in sets for ids in three])
    values = logits[to_device(rows // 3, device), to_device(tokens, device)]
    others = logits.new_empty(0)
    if weight is None:  # all that are not right are wrong
        right = [to_device(part, device) for part in _pairs([kind.right for kind in kinds])]
        others = logits.index_put(tuple(right), logits.new_full((), -torch.inf)).argmax(dim=-1)
    at, most = to_device(sure, device), min(count, logits.shape[1])
    largest, ids = topk(logits[at].masked_fill(scores[at] == 0, -torch.inf), most)
    offsets = offsets_of(logits, at.repeat_interleave(most), ids.flatten(), temperatures, generation)
    columns = masses.log_total, masses.shares, values, others, largest, ids, *offsets
    log_total, shares, value, other, highest, token, offset, *possible = fetched(*columns)
    below = np.where(highest.flatten() > -np.inf, offset, -np.inf)
    totals = log_total[np.repeat(sure, most)]
    logprobs = offset_logprobs(below, totals, temperatures, *(kept > 0 for kept in possible))
    ranked = logprobs.reshape(len(sure), most, len(temperatures))
    found = Outcomes(log_total, shares, _likeliest(sets, value, other), sure, token.astype(np.intp), ranked)
    return found, scores


def _scored(
    logits: Tensor,
    kinds: Sequence[Kinds],
    weight: Floats | None,
    temperatures: Sequence[float],
    generation: Generation,
) -> tuple[Masses, Tensor]:
    """Return the masses of what ends at n prefixes, and scores (n, V): how much it matters to go on to each token.

    A score is the root of the sum, over temperatures, of the squared probability of what begins so, times how uncertain
    it is whether that will be right. After the last token nothing goes on, and all scores are 0.
    """
    sets = [(kind.right, kind.wrong, kind.open) for kind in kinds]
    if weight is None:
        return tempered_masses(logits, temperatures, sets, generation), torch.zeros_like(logits)
    masses = tempered_masses(logits, temperatures, sets, generation, to_device(weight, logits.device))
    assert masses.importance is not None
    scores = masses.importance.mul_(SPREAD_OTHER)
    for name, factor in (
        ("begun", SPREAD_BEGUN / SPREAD_OTHER),
        ("open", SPREAD_OPEN / SPREAD_OTHER),
        ("right", 0.0),
        ("wrong", 0.0),
    ):
        rows, tokens = (to_device(part, logits.device) for part in _pairs([getattr(kind, name) for kind in kinds]))
        scores[rows, tokens] = scores[rows, tokens] * factor
    return masses, scores


def _pairs(sets: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Return the rows (m,) and the tokens (m,) of the n sets of tokens, one for each row."""
    return np.repeat(np.arange(len(sets)), [len(ids) for ids in sets]), np.concatenate(sets)


def _likeliest(sets: Sequence[tuple[Ids, ...]], logits: Floats, others: Floats) -> Ids:
    """Return (n, 3) the likeliest tokens of the three sets of each of n prefixes, −1 where a set is empty.

    ``logits`` (m,) are those of all tokens of all sets; ``others`` (n,), if there are any, stand for the second sets.
    """
    found = np.full((len(sets), 3), -1, dtype=np.intp)
    start = 0
    for row, three in enumerate(sets):
        for column, ids in enumerate(three):
            if len(ids):
                found[row, column] = ids[logits[start : start + len(ids)].argmax()]
            start += len(ids)
    if len(others):
        found[:, 1] = others
    return found
