"""Metrics of inspect_ai: our scores with the ends of their 95 % intervals (``frs``, ``frs_low``, ``frs_high``)."""

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
from robust_eval.interop.inspect_scoring import PLANNED, mark_in, temperature_in
from robust_eval.interop.own_mark import MARK, marked_question
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.metric_spec import curve_and_temperature
from robust_eval.metric.score import Measured, grid, mean_estimate, question_groups
from robust_eval.question import Question
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.frs import breaking_temperature as breaking_temperatures
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import SHARE, Floats

log = logging.getLogger(__name__)

SEED = 0
"""Of the bootstrap, where an interval is one: that of a run of ours."""
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
"""The metrics of MultiQ&A's table, and what they are called in a log."""


class ScoredAnswers:
    """The graded answers of a task; with ``known``, to the questions alone whose greedy answer is right."""

    def __init__(self, scores: Sequence[SampleScore], known: bool = False) -> None:
        marks = {(mark := mark_in(score.sample_metadata))["question"]["id"]: mark for score in scores}
        whole = answer_table([_row(score) for score in scores])
        greedy = pc.equal(whole["temperature"], 0)
        self.baseline = whole.filter(greedy)
        right = self.baseline.filter(self.baseline["correct"])["question_id"].to_pylist()
        self.questions: list[Question] = [
            marked_question(mark["question"], f"question {name}")
            for name, mark in marks.items()
            if not known or name in right
        ]
        self.planned: list[float] = next(iter(marks.values()))[PLANNED]
        sampled = pc.and_(pc.invert(greedy), pc.is_in(whole["question_id"], pa.array(self.ids, pa.string())))
        self.graded = EqualText().aggregate(self.questions, whole.filter(sampled))

    @property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [question.id for question in self.questions]

    @property
    def measured(self) -> Measured:
        """The answers as a metric scores them."""
        return Measured(self.baseline, self.graded)

    def breaking(self, threshold: float) -> Floats:
        """Return (n,) where each fact breaks on the grid that was planned (:func:`breaking_temperatures`)."""
        return breaking_temperatures(grid(self.ids, self.graded, self.planned).accuracy, self.planned, threshold)


def _row(score: SampleScore) -> dict[str, Any]:
    row = (score.score.metadata or {}).get(MARK)
    if row is None:
        raise UserError("these scores hold no answers: make the task with a scorer of robust_eval, graded(by=yours)")
    return {**row, "temperature": temperature_in(row)}


@metric(scores="unreduced")
def frs(d: float = 1.0, k: int = 10, threshold: float = 0.5) -> Metric:
    """Mean Factual Robustness Score; nothing where the provider gives no log-probabilities of greedy answers."""
    scoring = FactualRobustness(d=d, k=k, threshold=threshold)

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores, known=True)
        entropy = scoring.initial_entropy(answers.ids, answers.baseline)
        if len(entropy) and np.isnan(entropy).all():
            _warn("no greedy answer has log-probabilities, without which there is no FRS: the provider gives none")
        return _mean("frs", factual_robustness_score(entropy, answers.breaking(threshold), d), answers)

    return compute


@metric(scores="unreduced")
def breaking_temperature(threshold: float = 0.5) -> Metric:
    """Mean temperature at which facts break, of those that do."""

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores, known=True)
        temperatures = answers.breaking(threshold)
        broken = np.where(np.isinf(temperatures), np.nan, temperatures)
        return _mean("breaking_temperature", broken, answers, (0.0, answers.planned[-1]))

    return compute


@metric(scores="unreduced")
def firmness(threshold: float = 0.5) -> Metric:
    """Share of the facts that hold at every temperature."""

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores, known=True)
        breaks = answers.breaking(threshold)
        return _mean("firmness", np.where(np.isnan(breaks), np.nan, np.isinf(breaks).astype(float)), answers)

    return compute


@metric(scores="unreduced")
def answer_entropy() -> Metric:
    """Mean entropy (nats) of the answers to a question, and the error rate; of several temperatures, one for each."""

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores)
        names = {"certainty.entropy": "answer_entropy", "certainty.error_rate": "error_rate"}
        score = AnswerCertainty().score(answers.questions, answers.measured, SEED)
        return _values(score.metrics(), names)

    return compute


@metric(scores="unreduced")
def agreement() -> Metric:
    """The metrics of MultiQ&A over the wordings of each question; of several temperatures, those of each."""

    def compute(scores: list[SampleScore]) -> Value:
        answers = ScoredAnswers(scores)
        score = AnswerAgreement().score(answers.questions, answers.measured, SEED)
        return _values(score.metrics(), AGREEMENT)

    return compute


def _mean(
    name: str, values: Floats, answers: ScoredAnswers, limits: tuple[float, float] = SHARE
) -> dict[str, str | int | float | bool | None]:
    groups = question_groups(answers.questions)
    return dict(_ends(name, mean_estimate(values, groups, limits)))


def _values(metrics: Mapping[str, Estimate], names: Mapping[str, str]) -> dict[str, str | int | float | bool | None]:
    """Return the metrics that have a name in a log; the names omit the temperature if there is only one."""
    estimates = []
    for name, one in metrics.items():
        curve = curve_and_temperature(name)
        if curve is not None and curve[0] in names:
            estimates.append((names[curve[0]], curve[1], one))
    several = len({repr(t) for _, t, _ in estimates}) > 1
    return {
        key: value for name, t, one in estimates for key, value in _ends(f"{name}_t{t:g}" if several else name, one)
    }


def _ends(name: str, one: Estimate) -> Iterator[tuple[str, float]]:
    """Yield value and ends, where they are defined."""
    for end, value in (("", one.value), ("_low", one.low), ("_high", one.high)):
        if not math.isnan(value):
            yield f"{name}{end}", value


@cache
def _warn(sentence: str) -> None:
    """Warn once: inspect_ai computes metrics again and again."""
    log.warning(sentence)
