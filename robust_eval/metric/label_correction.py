"""Means over a table of answers, corrected by human labels of some of them (docs/methods.md, §5)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.metric.metric_spec import MetricSpec, at_words, curve_and_temperature, point, spec_of
from robust_eval.metric.presentation import PaperTable, Presentation
from robust_eval.metric.score import (
    HUMAN_LABEL,
    HUMAN_LABEL_WEIGHT,
    Correction,
    Score,
    question_groups,
    reply_weights,
    verdicts,
)
from robust_eval.question import Question
from robust_eval.runtime.text import number
from robust_eval.stats.correction import Corrected, corrected_curve, corrected_mean, labels_to_halve
from robust_eval.stats.estimate import Estimate, interval
from robust_eval.stats.interval import Floats

NAME = "corrected"
"""Name of the score among those of a run."""
HEADER = ("figure", "by the grader", "95 % interval", "corrected", "95 % interval", "labels", "labels to halve it")


def corrected_score(corrections: Sequence[Correction], figures: Mapping[str, Estimate], labels: int) -> Score | None:
    """Return some ``corrections`` as a score; None if no label was of an answer that counts.

    ``figures`` are those of the run under their flat names, which are shown beside them, and ``labels`` says how many
    answers have one.
    """
    score = Score()
    declarations: list[MetricSpec] = []
    for each in corrections:
        score.values |= each.values
        score.curves |= each.curves
        declarations += each.declared
    score.declared = declarations
    estimates = score.figures()
    if all(math.isnan(estimate.value) for estimate in estimates.values()):
        return None
    of = {name: of for each in corrections for name, of in each.of.items()}
    number_of = {name: count for each in corrections for name, count in each.labels.items()}
    rows = [
        _row(name, declarations, estimates[name], figures.get(of[name], Estimate(math.nan)), number_of[name])
        for name in score.headline().figures()
        if name in of and not math.isnan(estimates[name].value)
    ]
    title = f"Corrected for the errors of the grader, by the labels of {labels:,} answers"
    reasons: dict[str, list[str]] = {}
    for each in corrections:
        for name, why in each.uncorrected.items():
            reasons.setdefault(why, []).append(name)
    claims = [f"uncorrected {', '.join(names)}: {why}" for why, names in reasons.items()]
    tables = [PaperTable(title, HEADER, rows)]
    score.presentation = Presentation("Corrected by labels", columns=[], tables=tables, notes=claims, tables_alone=True)
    return score


def _row(name: str, declarations: Sequence[MetricSpec], corrected: Estimate, plain: Estimate, labels: int) -> list[str]:
    about = spec_of(name, declarations)
    form, label = (about.form, about.label.rpartition(",")[0]) if about else (".3f", name)
    at = curve_and_temperature(name)
    halve = labels_to_halve(labels, corrected.high - corrected.low, plain.high - plain.low)
    return [
        label + (f" {at_words(at[1])}" if at else ""),
        number(plain.value, form),
        interval(plain),
        number(corrected.value, form),
        interval(corrected),
        f"{labels:,}",
        "" if math.isnan(halve) else "more questions" if math.isinf(halve) else f"{halve:,}",
    ]


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
    count; by default all that have a verdict do. The figure is called ``name`` and corrects the curve ``of``.
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
    ids = {question.id: row for row, question in enumerate(questions)}
    row = np.array([ids[question_id] for question_id in table["question_id"].to_pylist()], dtype=np.intp)
    curve = corrected_curve(
        judged,
        people,
        levels,
        questions=units(questions)[row],
        weights=table[HUMAN_LABEL_WEIGHT].to_numpy(),
        counts=_shares(reply_weights(table), row, levels),
    )
    correction.curves[name] = {
        (DEFAULT_TEMPERATURE if math.isinf(t) else t): as_estimate(each) for t, each in curve.items()
    }
    for t in correction.curves[name]:
        at_level = levels == (math.inf if math.isnan(t) else t)
        correction.of[point(name, t)] = point(of, t)
        correction.labels[point(name, t)] = int(np.count_nonzero(~np.isnan(people[at_level])))


def corrected_share(judged: Floats, people: Floats, questions: Sequence[Question]) -> Corrected:
    """Return the mean of a value of 0 or 1 (n,) of each question, by the grader (``judged``) and for some by people;
    NaN elsewhere.
    """
    return corrected_mean(judged, np.where(np.isnan(judged), np.nan, people), questions=units(questions))


def as_estimate(corrected: Corrected) -> Estimate:
    """Return a corrected mean as an estimate."""
    return Estimate(corrected.estimate, corrected.low, corrected.high)


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
