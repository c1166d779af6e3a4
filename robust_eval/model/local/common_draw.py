"""Draws whose random numbers are those of their trial: the same at every temperature and after every prefix.

Token v of weight w_v wins with probability w_v / Σ w where it has the largest w_v / E_v and the E_v are independent
exponential numbers. It is the Gumbel trick: −log E_v is a Gumbel number, and log w_v is log P_v / t but for a constant.
With the same numbers neighbouring temperatures often have the same winner, so that fewer prefixes are distinct.

The numbers come by parts of the vocabulary. The least of n of them is exponential with rate n, belongs to each token
alike, and the others exceed it by exponential numbers of rate 1 (they have no memory). So the least of each part is
drawn first, and the others only in the parts that can win: whose largest weight over that number is not below the best.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from robust_eval.model.base import COMMON, Request
from robust_eval.model.local.draw import BLOCK, PART, Picked, stream_key
from robust_eval.model.local.transfers import to_device
from robust_eval.model.token_texts import Ids

_LIKELY = 8
"""Parts of which the tokens race first, to find what the others have to beat."""
_ODD, _FIRST, _SECOND = (value - 2**64 for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class CommonNumbers:
    """The random numbers of trials at each step, whatever the temperature of an answer.

    ``answers`` are the request and the trial of each. Philox gives each trial a key for each step, and a mixing
    function of this key the number of any token, in any order.
    """

    def __init__(self, answers: Sequence[tuple[Request, int]], steps: int, vocabulary: int, device: torch.device):
        names = [(request.seed, request.question_id, request.rewrite, trial) for request, trial in answers]
        place = {name: row for row, name in enumerate(dict.fromkeys(names))}
        self._trial = to_device(np.array([place[name] for name in names]), device)
        streams = [
            np.random.Philox(
                key=stream_key(seed, question_id, rewrite, COMMON), counter=np.array([0, 0, trial, 0], dtype=np.uint64)
            )
            for seed, question_id, rewrite, trial in place
        ]
        keys = np.stack([stream.random_raw(steps) for stream in streams]).view(np.int64)
        self._keys = to_device(keys, device)
        self._parts = -(-vocabulary // BLOCK) * (BLOCK // PART)
        self._step = -1

    def at(self, step: int, own: Ids) -> "Common":
        """Return what picks the tokens at this step of the answers ``own`` (a,)."""
        if step != self._step:
            self._step, self._numbers = step, _Numbers(self._keys[:, step], self._parts)
        return Common(self._numbers, self._trial[to_device(own, self._trial.device)])


class _Numbers:
    """The numbers of all trials at one step: the ``least`` (trials, parts) of each part, and all of some parts."""

    def __init__(self, keys: Tensor, parts: int) -> None:
        self._keys = keys
        self.least = exponential(uniforms(keys[:, None], torch.arange(parts, device=keys.device))) / PART

    def of(self, trial: Tensor, part: Tensor) -> Tensor:
        """Return (…, PART) the numbers of the tokens of parts (…)."""
        index = torch.arange(1 + PART, device=part.device) + (1 + PART) * part[..., None] + self.least.shape[1]
        drawn = uniforms(self._keys[trial][..., None], index)
        place = (drawn[..., :1] * PART).long()
        beyond = exponential(drawn[..., 1:]).scatter_(-1, place, 0)
        return self.least[trial, part][..., None] + beyond


class Common:
    """Picks tokens with the ``numbers`` of the trials (a,) to which the answers belong."""

    def __init__(self, numbers: _Numbers, trial: Tensor) -> None:
        self._numbers, self._trial = numbers, trial

    def pick(self, weights: Tensor, sums: Tensor, row: Tensor, answers: Tensor) -> Picked:
        """See :class:`robust_eval.model.local.draw.Picks`; the largest weight over its number wins."""
        trial, parts = self._trial[answers], weights.view(len(weights), -1, PART)
        bound = parts.amax(dim=-1).double()[row] / self._numbers.least[trial]
        likely = bound.topk(min(_LIKELY, bound.shape[1]), sorted=False).indices
        race = parts[row[:, None], likely].double() / self._numbers.of(trial[:, None], likely)
        reached = race.flatten(1).amax(dim=1)
        answer, part = torch.nonzero(bound >= reached[:, None], as_tuple=True)
        race = parts[row[answer], part].double() / self._numbers.of(trial[answer], part)
        best, place = race.max(dim=-1)
        won = torch.zeros_like(reached).scatter_reduce(0, answer, best, "amax")
        winning = torch.nonzero(best == won[answer]).squeeze(1)
        winner = torch.empty_like(row).scatter_(0, answer[winning], winning)
        part, place = part[winner], place[winner]
        return Picked(part * PART + place, parts[row, part, place].double())


def exponential(uniform: Tensor) -> Tensor:
    """Return exponential numbers; none is 0, so that no weight is divided by it."""
    return uniform.neg().log1p_().neg_().clamp_(min=2.0**-54)


def uniforms(key: Tensor, index: Tensor) -> Tensor:
    """Return numbers in [0, 1), each of its int64 key and index: those of SplitMix64 (Steele, Lea, Flood 2014)."""
    mixed = key + (index + 1) * _ODD
    mixed = (mixed ^ _shifted(mixed, 30)) * _FIRST
    mixed = (mixed ^ _shifted(mixed, 27)) * _SECOND
    return _shifted(mixed ^ _shifted(mixed, 31), 11).double() * 2.0**-53


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Return 64 bits, each moved to the right, with zeros at the left."""
    return (bits >> places) & ((1 << 64 - places) - 1)
