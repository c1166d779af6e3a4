"""Means over a table of answers, corrected by human labels of some of them (docs/methods.md, §5)."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import ABSTAINED, DEFAULT_TEMPERATURE, has_outcome
from robust_eval.metric.metric_spec import RUN, MetricSpec, share_spec
from robust_eval.metric.score import (
    HUMAN_ABSTENTION,
    HUMAN_LABEL,
    HUMAN_LABEL_WEIGHT,
    Correction,
    Score,
    question_groups,
    question_rows,
    verdicts,
)
from robust_eval.question import Question
from robust_eval.stats.correction import corrected_curve, corrected_mean
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats

NAME = "corrected"
"""Name of the score among those of a run."""


def corrected_score(corrections: Sequence[Correction]) -> Score | None:
    """Return ``corrections`` by human labels as a score; None if no label was of an answer that counts."""
    score = Score()
    declarations: list[MetricSpec] = []
    for each in corrections:
        score.values |= each.values
        score.curves |= each.curves
        declarations += each.specs
    score.specs = declarations
    return None if all(math.isnan(estimate.value) for estimate in score.metrics().values()) else score


ABSTENTION_RATES = tuple(
    share_spec(f"abstention.{name}", f"{name} of abstention detection", shown=RUN, mean=False)
    for name in ("sensitivity", "specificity")
)
"""Specs of the sensitivity and specificity of the outcome ``abstained``, from labels."""
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


def corrected_shares(
    questions: Sequence[Question],
    graded: pa.Table,
    errors: bool = False,
    judged: Floats | None = None,
    label: str = HUMAN_LABEL,
) -> dict[float, tuple[Estimate, int]]:
    """Return by temperature the label-corrected mean over questions of the share of right answers, or of ``errors``,
    and the number of its labels.

    ``judged`` (N,) is 1 or 0 for each of the ``graded`` answers, NaN for those that do not count; by default the
    verdicts. ``label`` is the column with the human labels of the same property.
    """
    judged = verdicts(graded) if judged is None else judged
    table, judged = graded.filter(pa.array(~np.isnan(judged))), judged[~np.isnan(judged)]
    if not table.num_rows:
        return {}
    people = table[label].to_numpy()
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
        counts=_shares(table["weight"].to_numpy(), row, levels),
    )
    numbers = {t: int(np.count_nonzero(~np.isnan(people[levels == t]))) for t in curve}
    return {(DEFAULT_TEMPERATURE if math.isinf(t) else t): (each, numbers[t]) for t, each in curve.items()}


def abstention_rates(questions: Sequence[Question], graded: Iterable[pa.Table]) -> Correction:
    """Return the sensitivity and specificity of the outcome ``abstained`` in all answers, from their labels: the share
    of the abstentions that have the outcome, and the share of the other replies that do not.
    """
    correction = Correction(specs=ABSTENTION_RATES)
    columns = ["question_id", "outcome", HUMAN_ABSTENTION, HUMAN_LABEL_WEIGHT]
    table = pa.concat_tables([each.select(columns) for each in graded])
    people, has_outcome_abstained = table[HUMAN_ABSTENTION].to_numpy(), has_outcome(table, (ABSTAINED,))
    unit = units(questions)[question_rows([question.id for question in questions], table)]
    for spec, abstained in zip(ABSTENTION_RATES, (True, False), strict=True):
        chosen = people == abstained
        if chosen.any():
            agrees = (has_outcome_abstained == abstained)[chosen].astype(float)
            weights = table[HUMAN_LABEL_WEIGHT].to_numpy()[chosen]
            all_labelled = np.ones_like(agrees)  # the share is that of the labels alone
            correction.values[spec.name] = corrected_mean(all_labelled, agrees, questions=unit[chosen], weights=weights)
            correction.labels[spec.name] = int(chosen.sum())
    return correction


def units(questions: Sequence[Question]) -> NDArray[np.intp]:
    """Return (n,) the unit of each question in a label correction: its index, or that of its group of questions."""
    groups = question_groups(questions)
    if groups is None:
        return np.arange(len(questions))
    return np.asarray(np.unique(np.asarray(groups), return_inverse=True)[1])


def _shares(weights: Floats, row: NDArray[np.intp], levels: Floats) -> Floats:
    """Return (N,) the weight of each answer in a label correction: all questions weigh the same at a temperature."""
    column = np.unique(levels, return_inverse=True)[1]
    place = row * (int(column.max()) + 1) + column
    return np.asarray(np.maximum(weights, 1e-12) / np.maximum(np.bincount(place, weights)[place], 1e-12))
