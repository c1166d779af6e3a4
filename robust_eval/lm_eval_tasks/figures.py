"""Figures of lm-eval's tasks: the mean of questions, and beside it the ends of its 95 % interval."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from robust_eval.metric.score import mean_estimate, question_groups
from robust_eval.question import Question

SEED = 0
"""Of the bootstrap, where an interval is one: that of a run of ours."""
ENDS = ("", "_low", "_high")
"""What follows the name of a figure: nothing for its value, and for the ends of its interval."""


class Found(NamedTuple):
    """A figure of one question, which lm-eval keeps in its samples as a list."""

    value: float | None
    """None where it is undefined."""
    question: str
    group: str
    highest: float
    """The highest value that is possible; the lowest is 0."""


def aggregations(figure: str) -> dict[str, Callable[[Sequence[Found]], float]]:
    """Return what lm-eval makes of the questions' values: the mean under the name of the figure, and the ends."""
    return {f"{figure}{end}": partial(_part, place) for place, end in enumerate(ENDS)}


def _part(place: int, found: Sequence[Found]) -> float:
    """Return value, low or high of a mean over questions, undefined ones left out; NaN where there is none."""
    each = [Found(*one) for one in found]
    values = np.array([math.nan if one.value is None else one.value for one in each])
    groups = question_groups([Question(one.question, "", group=one.group) for one in each])
    return mean_estimate(values, groups, (0.0, max(one.highest for one in each)))[place]
