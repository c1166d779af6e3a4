"""FRS and breaking temperatures, corrected by human labels of some answers (docs/methods.md, §5)."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.metric.frs_presentation import ACCURACY, FIGURES, FRS, UNBROKEN
from robust_eval.metric.label_correction import corrected_spec, units
from robust_eval.metric.score import (
    HUMAN_LABEL,
    HUMAN_LABEL_WEIGHT,
    Grid,
    reply_weights,
    trial_grid,
    verdicts,
)
from robust_eval.question import Question
from robust_eval.stats.corrected_breaks import LabelCounts, break_intervals, corrected_breaks, label_counts
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import Floats

CORRECTED = tuple(
    corrected_spec(figure, name)
    for name, of in (
        ("accuracy_corrected", ACCURACY.name),
        ("frs.corrected.d{}", FRS.name),
        ("frs.corrected.unbroken_share", UNBROKEN.name),
        ("frs.corrected.breaking_temperature.mean_broken", "frs.breaking_temperature.mean_broken"),
        ("frs.corrected.breaking_temperature.median", "frs.breaking_temperature.median"),
    )
    for figure in FIGURES
    if figure.name == of
)
"""Specs of the FRS metrics, corrected by labels."""
INSUFFICIENT_LABELS = "labels of right and of wrong answers are needed, and verdicts that tell them apart"


def break_metrics(
    questions: Sequence[Question],
    graded: pa.Table,
    answers: Grid,
    is_known: NDArray[np.bool_],
    entropy: Floats,
    weights: Sequence[float],
    threshold: float,
    estimator: str,
    unbroken: str,
    seed: int,
) -> dict[str, Estimate]:
    """Return the corrected mean FRS for each weight d (``d1``), ``breaking_temperature.mean_broken`` and ``.median``,
    and ``unbroken_share`` of the facts that are ``is_known``; nothing if labels do not determine the error rates.
    """
    labels = _label_counts(answers, graded)
    grid = answers.temperatures
    breaks = corrected_breaks(answers.correct, answers.replies, grid, labels, threshold, estimator)
    if np.isnan(breaks.breaking[is_known]).all():
        return {}

    def figures(breaking: Floats, chosen: NDArray[np.intp]) -> list[float]:
        breaking = np.where(is_known[chosen], breaking, np.nan)
        limited = np.where(np.isinf(breaking), grid[-1], breaking) if unbroken == "bound" else breaking
        scores = [factual_robustness_score(entropy[chosen], limited, d, unbroken) for d in weights]
        broken = breaking[np.isfinite(breaking)]
        defined = breaking[~np.isnan(breaking)]
        return [
            *map(_mean, scores),
            _mean(broken),
            float(np.median(defined)) if len(defined) else np.nan,
            _mean(np.isinf(defined).astype(float)),
        ]

    is_sampled = bool(np.all(reply_weights(graded) == 1))
    names = [f"d{d:g}" for d in weights]
    names += ["breaking_temperature.mean_broken", "breaking_temperature.median", "unbroken_share"]
    values = figures(breaks.breaking, np.arange(len(questions)))
    estimates = break_intervals(
        figures,
        values,
        answers.correct,
        answers.replies,
        grid,
        labels,
        threshold,
        estimator,
        groups=[str(unit) for unit in units(questions)],
        seed=seed,
        resample_trials=is_sampled,
        trials=trial_grid(answers.question_ids, graded, answers.temperatures) if is_sampled else None,
    )
    limits = {"breaking_temperature.mean_broken": (0.0, float(grid[-1]))}
    return {
        name: _within(estimate, *limits.get(name, (0.0, np.inf if name.endswith("median") else 1.0)))
        for name, estimate in zip(names, estimates, strict=True)
    }


def _label_counts(answers: Grid, graded: pa.Table) -> LabelCounts:
    """Return the counts of the labels, weighted to the number of equally informative simple draws."""
    people, judged = graded[HUMAN_LABEL].to_numpy(), verdicts(graded)
    place = {question_id: row for row, question_id in enumerate(answers.question_ids)}
    row = np.array([place[question_id] for question_id in graded["question_id"].to_pylist()], dtype=np.intp)
    column = np.searchsorted(answers.temperatures, graded["temperature"].to_numpy())
    weights = graded[HUMAN_LABEL_WEIGHT].to_numpy() * reply_weights(graded)
    used = weights[~np.isnan(people) & ~np.isnan(judged)]
    scale = used.sum() / (used**2).sum() if len(used) else 1.0
    return label_counts(judged, people, row, column, weights * scale, answers.correct.shape)


def _within(estimate: Estimate, low: float, high: float) -> Estimate:
    """Return an estimate with its bounds clipped to the possible range; a reflected interval may exceed it."""
    return Estimate(estimate.value, *(float(np.clip(bound, low, high)) for bound in estimate[1:]))


def _mean(values: Floats) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else np.nan
