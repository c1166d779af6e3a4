"""The accuracy at all temperatures up to the one at which answers were drawn, of a server that does no more than draw.

Each answer counts at a lower temperature with its weight (:mod:`robust_eval.model.colder_weights`). What the answers
that were drawn weigh together bounds the probability of a right one with certainty, whatever was not drawn.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Floats
from robust_eval.model.colder_weights import Place, colder_weights, effective_size
from robust_eval.model.served.seen_draws import SPREAD
from robust_eval.model.served.seen_tokens import Position
from robust_eval.model.served.seen_vocabulary import SeenVocabulary
from robust_eval.model.tail_bounds import Resolved, precision


class Capped(NamedTuple):
    """At T temperatures, (T,): the probability of a right answer, its standard error, how many answers of equal weight
    say as much, and what is certain; and what each answer weighs among all, (n, T).
    """

    accuracy: Floats
    error: Floats
    effective: Floats
    bounds: Resolved
    weights: Floats


def capped(
    answers: Sequence[Sequence[Position]],
    right: Sequence[bool],
    drawn_at: float,
    temperatures: Sequence[float],
    vocabulary: SeenVocabulary,
) -> Capped:
    """Return what answers that were drawn at one temperature, not above 1, tell of the temperatures up to it.

    ``answers`` are their places, up to the token that ended each. ``right`` are their verdicts.
    """
    paths = [
        [Place(each.chosen.logprob, [one.logprob for one in each.largest]) for each in places] for places in answers
    ]
    error = max((precision(place.largest) for places in paths for place in places), default=0.0)
    verdicts = np.array(right, dtype=float)
    weights = colder_weights(paths, drawn_at, temperatures, vocabulary.most, error).likely
    total = weights.sum(axis=0)
    accuracy = (weights * verdicts[:, None]).sum(axis=0) / total
    squares = (weights * (verdicts[:, None] - accuracy)) ** 2
    deviation = np.sqrt(squares.sum(axis=0) + (weights.max(axis=0) * SPREAD) ** 2) / total

    first: dict[tuple[int | bytes, ...], int] = {}
    for row, places in enumerate(answers):
        first.setdefault(tuple(place.chosen.name for place in places), row)
    rows = list(first.values())
    distinct = [paths[row] for row in rows]
    at_one = [math.exp(sum(place.logprob - error for place in places)) for places in distinct]
    least = colder_weights(distinct, 1.0, temperatures, vocabulary.most, error).lower * np.array(at_one)[:, None]
    rightly = np.array([right[row] for row in rows], dtype=bool)
    bounds = Resolved(least[rightly].sum(axis=0), least[~rightly].sum(axis=0))
    found = np.clip(accuracy, bounds.lower, bounds.upper)
    return Capped(found, deviation, effective_size(weights), bounds, weights / total)
