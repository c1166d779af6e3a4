"""Schedules of questions, which end when metrics are precise enough or a gate is decided."""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from robust_eval.answer import GREEDY
from robust_eval.error import UserError
from robust_eval.gate.decision import Differences, GateSettings, MetricVerdict, joint_outcome, metric_verdicts
from robust_eval.gate.measured_run import MeasuredRun, shared_questions
from robust_eval.metric.metric_spec import spec_of
from robust_eval.metric.score import Score
from robust_eval.question import Question, seeded_rank
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import MIN_UNITS, ROUNDING, UNKNOWN, Floats, Limits

log = logging.getLogger(__name__)


BLOCK = 10
"""Minimum number of questions between two checks of the intervals."""
_NORMAL = NormalDist().inv_cdf(0.975)


class MetricProgress(NamedTuple):
    """Progress of a metric in a schedule: its estimate, the half-width of its interval, and its number of independent
    questions or groups.

    The half-width is that of the stopping rule (:func:`careful_half_width`), NaN without an interval.
    """

    estimate: Estimate
    half_width: float
    n: int


class QuestionScheduler:
    """Scheduler of the questions of a run: ``taken`` are those of the blocks so far, ``left`` those of later blocks.

    With a ``seed``, they come in blocks in a seeded order, which does not depend on other questions of the data set;
    groups stay together. Without one, all questions are one block. ``end_reason`` has the setting by which the schedule
    ends before the questions that are left, and the remedy.
    """

    end_reason: tuple[str, str]

    def __init__(self, questions: Sequence[Question], seed: int | None) -> None:
        self.left = list(questions) if seed is None else seeded_order(questions, seed)
        self.taken: list[Question] = []
        self._unit = {question.id: resampling_unit(question) for question in questions}

    def next(self, scores: Mapping[str, Score]) -> list[Question]:
        """Return the next questions of the run, given the scores so far; none if these suffice, or none is left."""
        block, self.left = split_at_group_boundary(self.left, self._block_size(scores))
        self.taken += block
        return block

    def _block_size(self, scores: Mapping[str, Score]) -> int:
        """Return the minimum number of questions of the next block."""
        raise NotImplementedError

    def in_words(self, scores: Mapping[str, Score]) -> str:
        """Return the schedule's progress message; empty if all questions are one block."""
        raise NotImplementedError

    def reported(self, scores: dict[str, Score]) -> dict[str, Score]:
        """Return the scores of a finished schedule for the report, by default unchanged."""
        return scores


class SequentialScheduler(QuestionScheduler):
    """Sequential schedule: all questions at once, or blocks until the intervals of metrics are narrow enough.

    ``targets`` maps metrics to the target half-widths of their 95 % intervals; if it is empty, all questions are one
    block. Otherwise the first block has :data:`MIN_UNITS` questions. Each further block has half the number that the
    widest interval seems to need, and at least :data:`BLOCK`.
    """

    def __init__(self, targets: Mapping[str, float], questions: Sequence[Question], seed: int) -> None:
        super().__init__(questions, seed if targets else None)
        self.targets = targets
        widths = ", ".join(f"{name}: {width}" for name, width in targets.items())
        self.end_reason = (f"target_half_width={{{widths}}}", "Set target_half_width=null to ask all.")

    def _block_size(self, scores: Mapping[str, Score]) -> int:
        if not self.targets:
            return len(self.left)
        return self._missing(scores) if self.taken else MIN_UNITS

    def in_words(self, scores: Mapping[str, Score]) -> str:
        """Return the progress of the metrics, and the number of questions so far; empty without a target."""
        if not self.targets:
            return ""
        metrics = [
            f"{name} {number(progress.estimate.value)} ± {number(progress.half_width, '.4f')}, n = {progress.n} "
            f"(target: ± {self.targets[name]:g})"
            for name, progress in self._progress(scores).items()
        ]
        of = f"{len(self.taken):,} of {len(self.taken) + len(self.left):,} questions"
        return f"target_half_width: {of}: {', '.join(metrics) or 'nothing to measure yet'}"

    def reported(self, scores: dict[str, Score]) -> dict[str, Score]:
        """Return the scores; if the schedule's targets ended the run, the intervals of these metrics are stretched to
        the half-width of the stopping rule.
        """
        if not self.left or self._missing(scores):
            return scores
        progress = self._progress(scores)
        return {key: _with_stretched(score, progress) for key, score in scores.items()}

    def _missing(self, scores: Mapping[str, Score]) -> int:
        """Return the number of questions to schedule next; 0 if every interval is narrow enough.

        Raises UserError for a metric that is not a measured mean over questions.
        """
        times = [_times(progress, self.targets[name]) for name, progress in self._progress(scores).items()]
        more = max(times, default=2.0) - 1
        return max(BLOCK, math.ceil(len(self.taken) * more / 2)) if more > ROUNDING else 0

    def _progress(self, scores: Mapping[str, Score]) -> dict[str, MetricProgress]:
        """Return the progress of each metric with a target; empty before a question is kept."""
        return {name: self._progress_of(name, scores) for name in self.targets} if scores.keys() - {GREEDY} else {}

    def _progress_of(self, name: str, scores: Mapping[str, Score]) -> MetricProgress:
        score = next((score for score in scores.values() if name in score.by_question), None)
        if score is None:
            means = ", ".join(sorted({name for score in scores.values() for name in score.by_question}))
            raise UserError(
                f"target_half_width names {name}, which is not a mean over questions in this run; choose from {means}"
            )
        estimate = score.metrics()[name]
        residuals: dict[tuple[str, str], float] = {}
        values = score.by_question[name]
        for question_id, value in zip(score.question_ids, values.tolist(), strict=True):
            if not math.isnan(value):
                cluster = self._unit[question_id]
                residuals[cluster] = residuals.get(cluster, 0.0) + value - estimate.value
        number_known = max(1, int(np.count_nonzero(~np.isnan(values))))
        half_width = careful_half_width(estimate, list(residuals.values()), number_known)
        return MetricProgress(estimate, half_width, len(residuals))


def careful_half_width(estimate: Estimate, residuals: Sequence[float], number: int) -> float:
    """Return the stopping rule's half-width of the interval of a mean of ``number`` values, at least that of the normal
    interval with a variance two standard errors above its estimate.

    Repeated checks would stop at the first interval that is narrow by chance, for example with few wrong answers of a
    model that is usually right. ``residuals`` are those of independent questions, or sums over groups.
    """
    squares = np.square(residuals)
    variance = squares.sum() + 2 * math.hypot(*(squares - squares.mean())) if len(squares) else 0.0
    return float(np.maximum((estimate.high - estimate.low) / 2, _NORMAL * math.sqrt(variance) / number))


def stretched(estimate: Estimate, half_width: float, limits: Limits) -> Estimate:
    """Return an estimate with its interval stretched to this half-width, within its ``limits``.

    >>> stretched(Estimate(0.5, 0.25, 0.625), 0.25, (0.0, 1.0))
    Estimate(value=0.5, low=0.16666666666666669, high=0.6666666666666666)
    """
    value, low, high = estimate
    times = 2 * half_width / (high - low)
    lowest, highest = limits
    return Estimate(value, max(lowest, value - times * (value - low)), min(highest, value + times * (high - value)))


def _with_stretched(score: Score, progress: Mapping[str, MetricProgress]) -> Score:
    for name in progress.keys() & score.by_question.keys():
        limits = score.limits.get(name, UNKNOWN)
        score = score.with_estimate(name, stretched(progress[name].estimate, progress[name].half_width, limits))
    return score


def _times(progress: MetricProgress, target: float) -> float:
    """Return the factor by which a metric needs more questions; 2 without an interval."""
    enough = MIN_UNITS / progress.n if progress.n else 2.0
    return max(enough, 2.0 if math.isnan(progress.half_width) else (progress.half_width / target) ** 2)


def split_at_group_boundary(questions: Sequence[Question], size: int) -> tuple[list[Question], list[Question]]:
    """Return the first ``size`` questions to schedule, or more to keep a group together, and the rest."""
    block, rest = list(questions[:size]), list(questions[size:])
    while block and rest and resampling_unit(rest[0]) == resampling_unit(block[-1]):
        block.append(rest.pop(0))
    return block, rest


def seeded_order(questions: Sequence[Question], seed: int) -> list[Question]:
    """Return the questions of a schedule in a seeded order; those of a group stay together in their order."""
    return sorted(questions, key=lambda question: seeded_rank(seed, *resampling_unit(question)))


def resampling_unit(question: Question) -> tuple[str, str]:
    """Return the unit of resampling: the question, or its group."""
    return ("group", question.group) if question.group else ("question", question.id)


class GateScheduler(QuestionScheduler):
    """Scheduler of the gate's questions for a candidate, those of the ``baseline`` run.

    With ``early``, they come in blocks in a seeded order, and end as soon as the intervals that hold at any time decide
    PASS or FAIL.
    """

    end_reason = ("The gate's early_stop=true", "Omit early_stop=true to ask all.")

    def __init__(
        self, questions: Sequence[Question], baseline: MeasuredRun, settings: GateSettings, early: bool, seed: int
    ) -> None:
        keys = {(question.id, question.title): question.key for question in questions}
        shared = set(shared_questions(baseline, keys, "the candidate"))
        own = [question for question in questions if (question.id, question.title) in shared]
        super().__init__(own, seed if early else None)
        self._baseline, self._settings, self._early = baseline, settings, early
        self._grouped = any(question.group for question in own)
        self._largest = max(Counter(self._unit.values()).values())

    @property
    def order(self) -> list[tuple[str, str]]:
        """Id and text of the questions that the gate has asked, in their order."""
        return [(question.id, question.title) for question in self.taken]

    def _block_size(self, scores: Mapping[str, Score]) -> int:
        if not self._early:
            return len(self.left)
        if not self.taken:
            return MIN_UNITS
        is_decided = joint_outcome(self._verdicts(scores)) != "INCONCLUSIVE"
        return 0 if is_decided else max(BLOCK, len(self.taken) // 5)

    def in_words(self, scores: Mapping[str, Score]) -> str:
        """Return the progress of the gate's differences; empty if all questions are one block."""
        if not self._early:
            return ""
        verdicts = [
            f"{each.name} {each.difference:+.3f} ({each.low:+.3f} to {each.high:+.3f}) {each.outcome}"
            if each.n
            else f"{each.name} unknown (no fact is known to both)"
            for each in self._verdicts(scores)
        ]
        return f"gate: {len(self.taken):,} of {len(self.taken) + len(self.left):,} questions: {', '.join(verdicts)}"

    def _verdicts(self, scores: Mapping[str, Score]) -> list[MetricVerdict]:
        """Return the gate's verdicts on the metrics so far."""
        place = {question.id: row for row, question in enumerate(self.taken)}
        groups = np.array([" ".join(self._unit[question.id]) for question in self.taken])
        rows = {key: row for row, key in enumerate(self._baseline.run.keys())}
        asked = [rows[key] for key in self.order]
        differences = []
        for name, margin in self._settings.metrics.items():
            score = next((score for score in scores.values() if name in score.by_question), None)
            values: Floats = np.full(len(self.taken), np.nan)
            if score is not None:
                for question_id, value in zip(score.question_ids, score.by_question[name].tolist(), strict=True):
                    values[place[question_id]] = value
            spec = spec_of(name, self._baseline.run.specs)
            sign = -1 if spec is not None and spec.more_is_better is False else 1
            before = self._baseline.run.values(name)[asked]
            own = groups if self._grouped else None
            differences.append(Differences(name, name, margin, before, values, own, sign, True, self._largest))
        return metric_verdicts(differences, self._settings.level)
