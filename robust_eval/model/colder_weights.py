"""The accuracy at all temperatures below one at which answers were drawn, by the weights of those answers.

An answer drawn at t₀ counts at t ≤ t₀ with Π P_t(token) / P_t₀(token), which the log-probabilities of its tokens and of
the largest ones at their places bound. Never the other way: of what is probable only when it is hotter, draws at t₀ say
nothing, whatever their weights look like.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Floats
from robust_eval.model.tail_bounds import unseen_sums


class Place(NamedTuple):
    """One token of a drawn answer: its log-probability and the largest ones at its place, at temperature 1."""

    logprob: float
    largest: Sequence[float]


class Weights(NamedTuple):
    """Weights of n answers at T temperatures, (n, T), with certain bounds."""

    lower: Floats
    likely: Floats
    upper: Floats


def colder_weights(
    answers: Sequence[Sequence[Place]], drawn_at: float, temperatures: Sequence[float], most: int, error: float
) -> Weights:
    """Return what answers that were drawn at one temperature weigh at others, none of which may be higher.

    ``most`` is the number of tokens that the model has at most, ``error`` how far a log-probability may be from what it
    stands for. ValueError for a temperature above ``drawn_at``.
    """
    if hotter := [t for t in temperatures if t > drawn_at]:
        raise ValueError(f"draws at {drawn_at:g} say nothing of {hotter[0]:g}")
    logs = np.zeros((3, len(answers), len(temperatures)))
    for row, places in enumerate(answers):
        for place in places:
            logs[:, row] += _place(place, drawn_at, temperatures, most, error)
    with np.errstate(over="ignore"):
        return Weights(*np.exp(logs))


def _place(place: Place, drawn_at: float, temperatures: Sequence[float], most: int, error: float) -> Floats:
    """Return (3, T) the logarithm of what one token adds to a weight: at least, likely, at most."""
    s, s0 = 1 / np.asarray(temperatures, dtype=float), 1 / drawn_at
    low, high = _log_totals(place, np.append(s, s0), most, error)
    gained = (s - s0) * place.logprob
    slack = (s - s0) * error
    middle = (low + high) / 2
    logs = np.stack(
        [
            gained - slack - high[:-1] + low[-1],
            gained - middle[:-1] + middle[-1],
            gained + slack - low[:-1] + high[-1],
        ]
    )
    return np.asarray(logs)


def _log_totals(place: Place, s: Floats, most: int, error: float) -> tuple[Floats, Floats]:
    """Return the bounds of log Σ p^s over all tokens at a place."""
    seen = np.asarray(place.largest, dtype=float)
    unseen = unseen_sums(seen.tolist(), (1 / s).tolist(), most, error)
    shift = seen.max() if len(seen) else 0.0
    total = np.exp((seen[:, None] - shift) * s).sum(axis=0)
    bounds = []
    for sign, rest in zip((-1, 1), unseen, strict=True):
        with np.errstate(divide="ignore"):
            bounds.append(np.log(total * np.exp(sign * s * error) + rest * np.exp(-shift * s)) + shift * s)
    whole = s == 1  # of which the sum is known
    return np.where(whole, 0.0, bounds[0]), np.where(whole, 0.0, bounds[1])


def effective_size(weights: Floats) -> Floats:
    """Return (T,) how many answers of equal weight tell as much as these, (n, T): (Σw)² / Σw².

    >>> effective_size(np.array([[1.0, 1.0], [1.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    squares = (weights**2).sum(axis=0)
    zeros = np.zeros(len(squares))
    return np.asarray(np.divide(weights.sum(axis=0) ** 2, squares, out=zeros, where=squares > 0))
