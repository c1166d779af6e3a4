"""Means of a table of answers, corrected by the labels that people gave to some of them (docs/methods.md, §5)."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import OWN
from robust_eval.metric.metric_spec import Figure, point
from robust_eval.metric.score import (
    PERSON,
    PERSON_WEIGHT,
    Correction,
    question_groups,
    reply_weights,
    verdicts,
)
from robust_eval.question import Question
from robust_eval.stats.correction import Corrected, corrected_curve, corrected_mean
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats

BY_LABELS = "corrected by labels"
"""What is added to the label of a figure."""


def corrected_figure(figure: Figure, name: str) -> Figure:
    """Return the declaration of what labels make of a figure, under its own name."""
    return Figure(
        name,
        f"{figure.label}, {BY_LABELS}",
        unit=figure.unit,
        limits=figure.limits,
        more_is_better=figure.more_is_better,
        mean=False,
    )


def add_corrected_curve(
    found: Correction,
    name: str,
    of: str,
    questions: Sequence[Question],
    graded: pa.Table,
    errors: bool = False,
    chosen: NDArray[np.bool_] | None = None,
) -> None:
    """Add to ``found`` the mean over questions of the share of right answers, or of ``errors``, at each temperature.

    ``graded`` has the columns of :data:`~robust_eval.metric.score.PERSON`. ``chosen`` (N,) are the answers that count;
    by default all that have a verdict do. The figure is called ``name`` and corrects the curve ``of``.
    """
    keep = ~np.isnan(verdicts(graded)) if chosen is None else chosen & ~np.isnan(verdicts(graded))
    table = graded.filter(pa.array(keep))
    if not table.num_rows:
        return
    judged, people = verdicts(table), table[PERSON].to_numpy()
    if errors:
        judged, people = 1 - judged, 1 - people
    temperatures = table["temperature"].to_numpy()
    levels = np.where(np.isnan(temperatures), np.inf, temperatures)
    ids = {question.id: row for row, question in enumerate(questions)}
    row = np.array([ids[question_id] for question_id in table["question_id"].to_pylist()], dtype=np.intp)
    curve = corrected_curve(
        judged,
        people,
        levels,
        questions=units(questions)[row],
        weights=table[PERSON_WEIGHT].to_numpy(),
        counts=_shares(reply_weights(table), row, levels),
    )
    found.curves[name] = {(OWN if math.isinf(t) else t): as_estimate(each) for t, each in curve.items()}
    for t in found.curves[name]:
        here = levels == (math.inf if math.isnan(t) else t)
        found.of[point(name, t)] = point(of, t)
        found.labels[point(name, t)] = int(np.count_nonzero(~np.isnan(people[here])))


def corrected_share(judged: Floats, people: Floats, questions: Sequence[Question]) -> Corrected:
    """Return the mean of a value of 0 or 1 (n,) that each question has by the grader (``judged``), and some by people;
    NaN elsewhere.
    """
    return corrected_mean(judged, np.where(np.isnan(judged), np.nan, people), questions=units(questions))


def as_estimate(found: Corrected) -> Estimate:
    """Return a corrected mean as an estimate."""
    return Estimate(found.estimate, found.low, found.high)


def units(questions: Sequence[Question]) -> NDArray[np.intp]:
    """Return (n,) the number of the question, or of the group of questions that depend on one another."""
    groups = question_groups(questions)
    if groups is None:
        return np.arange(len(questions))
    return np.asarray(np.unique(np.asarray(groups), return_inverse=True)[1])


def _shares(weights: Floats, row: NDArray[np.intp], levels: Floats) -> Floats:
    """Return (N,) how much each answer counts where all questions count alike at a temperature."""
    column = np.unique(levels, return_inverse=True)[1]
    place = row * (int(column.max()) + 1) + column
    return np.asarray(np.maximum(weights, 1e-12) / np.maximum(np.bincount(place, weights)[place], 1e-12))
