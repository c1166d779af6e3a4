"""What a run leaves in a tracker as plain values: metrics by step, and the columns of its questions."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from robust_eval.metric.metric_spec import HEADLINE
from robust_eval.metric.score import Score
from robust_eval.question import Question

UNITS = {100: "hundredths", 1000: "thousandths", 10**6: "millionths"}
"""What the steps of a curve are in."""


class Point(NamedTuple):
    """A value of a metric at a step; 0 where it has no curve."""

    name: str
    value: float
    step: int = 0


def metric_points(scores: Sequence[Score], figures: Mapping[str, float]) -> list[Point]:
    """Return what is defined of the figures that a person wants first, with their intervals, of other flat figures, and
    of the curves, each of which is under ``curve/`` by its steps.
    """
    flat: dict[str, float] = {}
    for score in scores:
        for name, estimate in score.headline().figures().items():
            if _shown(score, name):
                bounds = {} if math.isnan(estimate.low) else {"low": estimate.low, "high": estimate.high}
                flat |= {name: estimate.value, **{f"{name}.{end}": bound for end, bound in bounds.items()}}
    points = [Point(name, value) for name, value in (flat | dict(figures)).items()]
    for score in scores:
        for curve_name in (name for name in score.curves if _shown(score, name)):
            curve = score.curves[curve_name]
            unit, steps = integer_steps(list(curve))
            values = (estimate.value for estimate in curve.values())
            points += [Point(f"curve/{curve_name} by t in {unit}", *each) for each in zip(values, steps, strict=True)]
    return [point for point in points if math.isfinite(point.value)]


def question_columns(questions: Sequence[Question]) -> dict[str, list[str]]:
    """Return the columns id, question and answers."""
    return {
        "id": [question.id for question in questions],
        "question": [question.title for question in questions],
        "answers": ["; ".join(question.answers) for question in questions],
    }


def integer_steps(temperatures: Sequence[float]) -> tuple[str, list[int]]:
    """Turn temperatures into MLflow's integer steps: their unit, and each in it.

    These are hundredths, so that curves of different grids lie above one another, or the first of :data:`UNITS` that
    keeps the temperatures. A model's own temperature has no number: its step is 0.

    >>> integer_steps([0.2, 1.0]), integer_steps([0.125])
    (('hundredths', [20, 100]), ('thousandths', [125]))
    """
    known = [t for t in temperatures if not math.isnan(t)]
    scale = next(
        (scale for scale in UNITS if all(abs(round(t * scale) - t * scale) < 1e-9 * scale for t in known)), max(UNITS)
    )
    return UNITS[scale], [0 if math.isnan(t) else round(t * scale) for t in temperatures]


def _shown(score: Score, name: str) -> bool:
    """Tell whether a person wants a figure first, or its metric does not say of any."""
    about = score.about(name)
    return not score.declared if about is None else bool(about.shown == HEADLINE or about.primary or about.short)
