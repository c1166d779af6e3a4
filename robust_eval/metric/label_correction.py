"""Means over a table of answers, corrected by human labels of some of them (docs/methods.md, §5)."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.metric.metric_spec import MetricSpec, point
from robust_eval.metric.score import (
    HUMAN_LABEL,
    HUMAN_LABEL_WEIGHT,
    Correction,
    Score,
    question_groups,
    question_rows,
    reply_weights,
    verdicts,
)
from robust_eval.question import Question
from robust_eval.stats.correction import corrected_curve
from robust_eval.stats.interval import Floats

NAME = "corrected"
"""Name of the score among those of a run."""


def corrected_score(corrections: Sequence[Correction]) -> Score | None:
    """Return some ``corrections`` as a score; None if no label was of an answer that counts."""
    score = Score()
    declarations: list[MetricSpec] = []
    for each in corrections:
        score.values |= each.values
        score.curves |= each.curves
        declarations += each.declared
    score.declared = declarations
    return None if all(math.isnan(estimate.value) for estimate in score.metrics().values()) else score


BY_LABELS = "corrected by labels"
"""Addition to the label of a metric."""


def corrected_spec(spec: MetricSpec, name: str) -> MetricSpec:
    """Return the spec of a metric corrected by labels, under its own name."""
    return MetricSpec(
        name,
        f"{spec.label}, {BY_LABELS}",
        unit=spec.unit,
        limits=spec.limits,
        more_is_better=spec.more_is_better,
        mean=False,
    )


def add_corrected_curve(
    correction: Correction,
    name: str,
    of: str,
    questions: Sequence[Question],
    graded: pa.Table,
    errors: bool = False,
    chosen: NDArray[np.bool_] | None = None,
) -> None:
    """Add to ``correction`` the mean over questions of the share of right answers, or of ``errors``, by temperature.

    ``graded`` has the columns of :data:`~robust_eval.metric.score.HUMAN_LABEL`. ``chosen`` (N,) are the answers that
    count; by default all that have a verdict do. The metric is called ``name`` and corrects the curve ``of``.
    """
    keep = ~np.isnan(verdicts(graded)) if chosen is None else chosen & ~np.isnan(verdicts(graded))
    table = graded.filter(pa.array(keep))
    if not table.num_rows:
        return
    judged, people = verdicts(table), table[HUMAN_LABEL].to_numpy()
    if errors:
        judged, people = 1 - judged, 1 - people
    temperatures = table["temperature"].to_numpy()
    levels = np.where(np.isnan(temperatures), np.inf, temperatures)
    row = question_rows([question.id for question in questions], table)
    curve = corrected_curve(
        judged,
        people,
        levels,
        questions=units(questions)[row],
        weights=table[HUMAN_LABEL_WEIGHT].to_numpy(),
        counts=_shares(reply_weights(table), row, levels),
    )
    correction.curves[name] = {(DEFAULT_TEMPERATURE if math.isinf(t) else t): each for t, each in curve.items()}
    for t in correction.curves[name]:
        at_level = levels == (math.inf if math.isnan(t) else t)
        correction.of[point(name, t)] = point(of, t)
        correction.labels[point(name, t)] = int(np.count_nonzero(~np.isnan(people[at_level])))


def units(questions: Sequence[Question]) -> NDArray[np.intp]:
    """Return (n,) the number of each question, or of its group of dependent questions."""
    groups = question_groups(questions)
    if groups is None:
        return np.arange(len(questions))
    return np.asarray(np.unique(np.asarray(groups), return_inverse=True)[1])


def _shares(weights: Floats, row: NDArray[np.intp], levels: Floats) -> Floats:
    """Return (N,) the weight of each answer, such that all questions weigh the same at a temperature."""
    column = np.unique(levels, return_inverse=True)[1]
    place = row * (int(column.max()) + 1) + column
    return np.asarray(np.maximum(weights, 1e-12) / np.maximum(np.bincount(place, weights)[place], 1e-12))
