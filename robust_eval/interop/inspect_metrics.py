"""Metrics for inspect_ai, each with the bounds of its 95 % interval (``frs``, ``frs_low``, ``frs_high``)."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from inspect_ai.scorer import Metric, SampleScore, Value, metric

from robust_eval.aggregator.base import EqualText
from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.interop.export_mark import MARK, marked_question
from robust_eval.interop.inspect_scoring import PLANNED, mark_in, temperature_in
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.metric_spec import curve_and_temperature
from robust_eval.metric.reliability_metric import PASS_HAT, TrialReliability, powers
from robust_eval.metric.score import Measured, grid, question_groups
from robust_eval.metric.score import Metric as OwnMetric
from robust_eval.metric.uncertainty_metric import SCORES, ErrorDetection, specs_of
from robust_eval.stats.estimate import Estimate, columns_of, mean_estimate
from robust_eval.stats.frs import breaking_temperature as breaking_temperatures
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import SHARE, Floats, Limits

log = logging.getLogger(__name__)

_Number = str | int | float | bool | None
"""Type of values in a dictionary of inspect_ai's :data:`~inspect_ai.scorer.Value`."""
AGREEMENT = {
    "agreement.accuracy": "base",
    "agreement.plurality": "mode",
    "agreement.worst": "worst",
    "agreement.best": "best",
    "agreement.difficulty": "mean_of_raters",
    "agreement.certainty": "certainty",
    "agreement.m2": "m2",
    "agreement.kappa": "kappa",
    "agreement.alpha": "alpha",
}
"""The metrics of MultiQ&A's table, and their names in a log."""


class ScoredAnswers:
    """Graded answers of an inspect_ai task; with ``known``, only those to questions whose greedy answer is right."""

    def __init__(self, scores: Sequence[SampleScore], known: bool = False) -> None:
        marks = {(mark := mark_in(score.sample_metadata))["question"]["id"]: mark for score in scores}
        answers = answer_table([_row(score) for score in scores])
        greedy = pc.equal(answers["temperature"], 0)
        self.baseline = answers.filter(greedy)
        right = self.baseline.filter(self.baseline["correct"])["question_id"].to_pylist()
        self.ids = [name for name in marks if not known or name in right]
        self.questions = [marked_question(marks[name]["question"], f"question {name}") for name in self.ids]
        self.planned: list[float] = next(iter(marks.values()))[PLANNED]
        sampled = pc.and_(pc.invert(greedy), pc.is_in(answers["question_id"], pa.array(self.ids, pa.string())))
        self.graded = EqualText().aggregate(self.questions, answers.filter(sampled))

    def breaking(self, threshold: float) -> Floats:
        """Return the breaking temperature (n,) of each fact on the task's grid (:func:`breaking_temperatures`)."""
        return breaking_temperatures(grid(self.ids, self.graded, self.planned).accuracy, self.planned, threshold)

    def mean(self, name: str, values: Floats, limits: Limits = SHARE) -> dict[str, _Number]:
        """Return the mean of ``values`` (n,) over questions, with its interval, in inspect_ai's layout."""
        return dict(_bounds(name, mean_estimate(values, question_groups(self.questions), limits)))

    def scored(self, metric: OwnMetric, names: Mapping[str, str]) -> dict[str, _Number]:
        """Return the metrics that have a name in a log; the name has a temperature if there are several. While a task
        runs there may be no sampled answer, and no metric.
        """
        if not self.graded.num_rows:
            return {}
        score = metric.score(self.questions, Measured(self.baseline, self.graded), seed=0)
        estimates = []
        for flat_name, one in score.metrics().items():
            curve, temperature = curve_and_temperature(flat_name) or (flat_name, math.nan)
            if curve in names:
                estimates.append((names[curve], temperature, one))
        several = len({repr(t) for _, t, _ in estimates}) > 1
        named = ((f"{name}_t{t:g}" if several else name, one) for name, t, one in estimates)
        return {key: value for name, one in named for key, value in _bounds(name, one)}


def _row(score: SampleScore) -> dict[str, Any]:
    row = (score.score.metadata or {}).get(MARK)
    if row is None:
        raise UserError(
            "the scores contain no answers: wrap your scorer with graded(by=SCORER) from robust_eval.interop"
        )
    return {**row, "temperature": temperature_in(row)}


@metric(scores="unreduced")
def frs(d: float = 1.0, k: int = 10, threshold: float = 0.5) -> Metric:
    """Metric for inspect_ai: mean Factual Robustness Score; absent if the provider gives no log-probabilities of greedy
    answers.
    """
    scoring = FactualRobustness(d=d, k=k, threshold=threshold)

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores, known=True)
        entropy = scoring.initial_entropy(answers.ids, answers.baseline)
        if len(entropy) and np.isnan(entropy).all():
            _warn("no FRS: the provider gives no log-probabilities of greedy answers")
        return answers.mean("frs", factual_robustness_score(entropy, answers.breaking(threshold), d))

    return compute


@metric(scores="unreduced")
def breaking_temperature(threshold: float = 0.5) -> Metric:
    """Metric for inspect_ai: mean breaking temperature of the facts that break."""

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores, known=True)
        temperatures = answers.breaking(threshold)
        broken = np.where(np.isinf(temperatures), np.nan, temperatures)
        return answers.mean("breaking_temperature", broken, (0.0, answers.planned[-1]))

    return compute


@metric(scores="unreduced")
def unbroken_share(threshold: float = 0.5) -> Metric:
    """Metric for inspect_ai: share of the facts that are unbroken at every temperature."""

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores, known=True)
        breaks = answers.breaking(threshold)
        return answers.mean("unbroken_share", np.where(np.isnan(breaks), np.nan, np.isinf(breaks).astype(float)))

    return compute


@metric(scores="unreduced")
def answer_entropy() -> Metric:
    """Metric for inspect_ai: mean entropy (nats) of a question's answers, and the error rate, by temperature."""
    return _scored(AnswerCertainty(), {"certainty.entropy": "answer_entropy", "certainty.error_rate": "error_rate"})


@metric(scores="unreduced")
def agreement() -> Metric:
    """Metrics of MultiQ&A for inspect_ai over the rewrites of each question, for each temperature."""
    return _scored(AnswerAgreement(), AGREEMENT)


@metric(scores="unreduced")
def pass_hat(trials: int) -> Metric:
    """Share of questions with k right answers of k, pass^k, for k = 1, 2, 4, … and the number of trials."""
    return _scored(TrialReliability(), {PASS_HAT.name.format(k): f"pass_hat_k{k}" for k in powers(trials)})


@metric(scores="unreduced")
def auroc() -> Metric:
    """Metric for inspect_ai: ranking of errors (AUROC) by each uncertainty score; absent unless some answers are right
    and some wrong.
    """
    return _scored(ErrorDetection(), {specs_of(name)["auroc"].name: f"auroc_{name}" for name in SCORES})


def _scored(scoring: OwnMetric, names: Mapping[str, str]) -> Metric:
    def compute(scores: list[SampleScore]) -> Value:  # inspect_ai reads the type to know what to pass
        return ScoredAnswers(scores).scored(scoring, names)

    return compute


def _bounds(name: str, one: Estimate) -> Iterator[tuple[str, float]]:
    return ((key, value) for key, value in columns_of(name, one).items() if not math.isnan(value))


@cache
def _warn(sentence: str) -> None:
    """Warn once, because inspect_ai computes metrics repeatedly."""
    log.warning(sentence)
