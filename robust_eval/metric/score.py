"""Scores: the input and the output of a metric, the base class of metrics, and grids of the answers to score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robust_eval.answer import EXACT_CURVES, NO_ANSWER, NO_REPLY, EarlyStopping, has_outcome, with_columns
from robust_eval.error import UserError
from robust_eval.metric.metric_spec import MetricSpec, headline_temperatures, point, spec_of
from robust_eval.metric.presentation import Presentation
from robust_eval.question import Question
from robust_eval.sampler.base import Sampler
from robust_eval.stats.estimate import Estimate, count_defined, mean_estimate, share_of, with_interval
from robust_eval.stats.interval import SHARE, UNKNOWN, Floats, Limits


@dataclass
class Score:
    """Result of one metric on the questions ``question_ids``.

    ``values`` are single estimates and ``curves`` estimates by temperature, under their names in MLflow.
    ``by_question`` holds, under the flat name of each metric that is a mean over questions, the value of every question
    (NaN where undefined), by which runs are compared; ``limits`` holds the lowest and the highest possible value, where
    both are known. ``of_questions`` holds the number of questions of other metrics, by flat name. ``tables`` go into
    the run folder as Parquet. ``settings`` are those that a reader of the metrics needs. ``reasons`` explain undefined
    values, where the answers do not. ``specs`` are the metric specs, ``presentation`` holds text and columns for
    people.

    >>> score = Score(question_ids=["a", "b", "c"])
    >>> score.add_share("mine.right", np.array([1.0, 0.0, np.nan]), groups=None)
    >>> score.formatted("mine.right"), score.n("mine.right")
    ('0.500 (0.003 to 0.997, n = 2)', 2)
    """

    question_ids: list[str] = field(default_factory=list)
    values: dict[str, Estimate] = field(default_factory=dict)
    curves: dict[str, dict[float, Estimate]] = field(default_factory=dict)
    by_question: dict[str, Floats] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Limits] = field(default_factory=dict)
    of_questions: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    specs: Sequence[MetricSpec] = ()
    presentation: Presentation = field(default_factory=Presentation)

    def spec(self, metric: str) -> MetricSpec | None:
        """Return the spec of the score's metric for this name, or None."""
        return spec_of(metric, self.specs)

    def add_mean(self, name: str, values: Floats, groups: Sequence[str] | None, limits: Limits | None = None) -> None:
        """Add to the score the mean of ``values`` (n,) over questions, with its interval (:func:`mean_estimate`).

        ``limits`` are the lowest and the highest value that a question can have, if the metric spec does not declare
        them. Without limits, there is no interval if all questions have the same value.
        """
        limits = self._limits(name) if limits is None else limits
        values = _floats(name, values)
        self.values[name] = mean_estimate(values, groups, limits)
        self._add_values(name, values, limits)

    def add_share(self, name: str, values: Floats, groups: Sequence[str] | None) -> None:
        """Add to the score the mean of ``values`` (n,) between 0 and 1: a share of questions, or of answers."""
        self.add_mean(name, values, groups, SHARE)

    def add_curve(
        self,
        name: str,
        values: Floats,
        temperatures: Sequence[float] | Floats,
        groups: Sequence[str] | None,
        limits: Limits | None = None,
    ) -> None:
        """Add a curve to the score: at each temperature the mean of ``values`` (n, T), as :meth:`add_mean` does."""
        limits = self._limits(name) if limits is None else limits
        values = _floats(name, values)
        columns = zip(temperatures, values.T, strict=True)
        self.curves[name] = {float(t): mean_estimate(column, groups, limits) for t, column in columns}
        self.add_values(name, values, temperatures, limits)

    def add_values(self, name: str, values: Floats, temperatures: Sequence[float] | Floats, limits: Limits) -> None:
        """Add the ``values`` (n, T) of a curve by question, without estimates, which are not means over questions."""
        for t, column in zip(temperatures, values.T, strict=True):
            self._add_values(point(name, float(t)), column, limits)

    def _limits(self, metric: str) -> Limits:
        spec = self.spec(metric)
        return UNKNOWN if spec is None else spec.limits

    def _add_values(self, name: str, values: Floats, limits: Limits) -> None:
        self.by_question[name] = values
        if np.isfinite(limits).all():
            self.limits[name] = limits

    def n(self, metric: str) -> int | None:
        """Return the number of questions of a score's metric, by its flat name; None without one, as for a count."""
        if metric in self.by_question and metric not in self.of_questions:
            return count_defined(self.by_question[metric])
        return self.of_questions.get(metric)

    def formatted(self, metric: str, form: str = ".3f") -> str:
        """Format a score's metric with its interval and, if it is not that of all questions, their number."""
        n = self.n(metric)
        return with_interval(self.metrics()[metric], form, None if n == len(self.question_ids) else n)

    def headline(self) -> "Score":
        """Return the score with the headline points of its curves alone (:func:`headline_temperatures`)."""
        curves = {name: {t: curve[t] for t in headline_temperatures(curve)} for name, curve in self.curves.items()}
        return replace(self, curves=curves)

    def metrics(self) -> dict[str, Estimate]:
        """Return all metrics of a score under flat names, those of curves under ``name.t0.2`` and so on."""
        points = {point(name, t): estimate for name, curve in self.curves.items() for t, estimate in curve.items()}
        return self.values | points

    def with_estimate(self, metric: str, estimate: Estimate) -> "Score":
        """Return the score with another estimate of the metric of this flat name."""
        values = {name: estimate if name == metric else each for name, each in self.values.items()}
        curves = {
            name: {t: estimate if point(name, t) == metric else each for t, each in curve.items()}
            for name, curve in self.curves.items()
        }
        return replace(self, values=values, curves=curves)

    def flat(self) -> dict[str, float]:
        """Return all numbers of the score: metrics as ``name``; bounds as ``name.low`` and ``name.high``; numbers of
        questions as ``name.n``.
        """
        flat: dict[str, float] = {}
        for name, estimate in self.metrics().items():
            flat[name] = estimate.value
            if not np.isnan(estimate.low):
                flat |= {f"{name}.low": estimate.low, f"{name}.high": estimate.high}
            if (n := self.n(name)) is not None:
                flat[f"{name}.n"] = float(n)
        return flat


def _floats(name: str, values: Any) -> Floats:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as problem:
        raise UserError(f"{name}: the values must be numbers, NaN where undefined: {problem}") from problem


HUMAN_LABEL, HUMAN_LABEL_WEIGHT, HUMAN_LABEL_WHOLE = "human_label", "human_label_weight", "human_label_whole"
"""Columns of an answer table with human labels: 1 or 0 (NaN: no label that counts), one over the probability with which
the answer was drawn, and the label of an answer to a completely labelled question (−1: unclear; null: the question is
not complete).
"""
HUMAN_ABSTENTION = "human_abstention"
"""Column with 1 for an answer that people call an abstention, 0 for another one; NaN without a label on that."""


@dataclass
class Correction:
    """Corrected score: metrics that carry the errors of the grader, corrected by labels.

    ``curves`` and ``values`` are as in :class:`Score`. By the flat name of each, ``of`` is the metric that it corrects
    and ``labels`` the number of its labels. ``uncorrected`` holds the reason for metrics that stay as they are.
    """

    values: dict[str, Estimate] = field(default_factory=dict)
    curves: dict[str, dict[float, Estimate]] = field(default_factory=dict)
    of: dict[str, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    uncorrected: dict[str, str] = field(default_factory=dict)
    specs: Sequence[MetricSpec] = ()

    def add_curve(self, name: str, of: str, shares: Mapping[float, tuple[Estimate, int]]) -> None:
        """Add a curve ``name``, which corrects ``of``, from estimates and numbers of labels by temperature."""
        for t, (share, number) in shares.items():
            self.curves.setdefault(name, {})[t] = share
            self.of[point(name, t)], self.labels[point(name, t)] = point(of, t), number

    def add_mean(self, name: str, of: str, shares: Mapping[float, tuple[Estimate, int]]) -> None:
        """Add a mean ``name``, which corrects ``of``, from the estimate and the number of labels at one temperature."""
        for share, number in shares.values():
            self.values[name], self.of[name], self.labels[name] = share, of, number


@dataclass(frozen=True)
class Measured:
    """Answers to score: the input of a metric.

    ``baseline`` holds the graded baseline answers, ``graded`` those of the sampler, ``exact_curves`` the accuracies
    from the model's probabilities (:data:`robust_eval.answer.EXACT_CURVES`; may be empty). ``estimator`` is that of the
    accuracy: ``trials``, whose weights in ``graded`` are set to 1 each, or ``exact``. ``early_stopping`` are the
    temperatures and the threshold of a sampler that stopped early; None for complete answers.

    >>> from robust_eval.answer import answer_table
    >>> Measured(baseline=answer_table([]), graded=answer_table([])).exact_curves.num_rows
    0
    """

    baseline: pa.Table
    graded: pa.Table
    exact_curves: pa.Table = field(default_factory=EXACT_CURVES.empty_table)
    estimator: str = "trials"
    early_stopping: EarlyStopping | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "graded", counted_answers(self.graded, self.estimator))


class Metric(Protocol):
    """Base class of metrics (scoring methods); a dataclass whose fields are its configuration.

    A subclass defines ``axis`` and ``score``, and often ``check``; docs/development/metrics.md has a complete one.

    >>> from robust_eval.metric.certainty_metric import AnswerCertainty
    >>> AnswerCertainty().axis, AnswerCertainty().needs_clusters
    ('trial', True)
    """

    axis: str
    """Axis along which answers must vary for the metric: temperature | rewrite | trial | order | turn | reasoning."""
    other_axes: Sequence[str] = ()
    """Axes of a conversation's turns or of reasoning whose answers the metric reads as well."""
    needs_clusters: bool = False
    """True if the metric reads which answers mean the same."""
    specs: Sequence[MetricSpec] = ()
    """Specs of its metrics; none before they are there."""
    curves: Sequence[MetricSpec] = ()
    """Those of the specs that are curves over the temperature."""

    @property
    def top_logprobs(self) -> int:
        """Number of top log-probabilities of each greedy token that the metric reads; by default 0."""
        return 0

    @property
    def early_stop_threshold(self) -> float | None:
        """Accuracy below which a fact breaks, if the metric reads only breaking temperatures from the answers; by
        default None: it reads all answers.
        """
        return None

    def specs_under(self, sampler: Sampler) -> Sequence[MetricSpec]:
        """Return the specs that a run with this sampler can have, by default all ``specs``; those beyond ``specs``
        are points of curves.
        """
        return self.specs

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """Raise UserError, before sampling, if a sampler provides no answers that this metric can score; by default
        accept all.
        """
        return

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Score the answers to ``questions`` by this metric."""

    def corrected(self, questions: Sequence[Question], measured: Measured, seed: int) -> "Correction":
        """Return the supervised metrics corrected by human labels, from answer tables with :data:`HUMAN_LABEL`; by
        default nothing.
        """
        return Correction()


@dataclass(frozen=True)
class Grid:
    """Graded answers of n questions at T temperatures, summed over trials.

    ``correct`` and ``replies`` are (n, T) sums of weights, counts of trials: then a tie at one half is exact
    (docs/methods.md, §1). Answers without a reply (filtered, error) are in neither, and answers
    without a verdict (there is no gold answer) are there only where they answer nothing (refused, empty, invalid).
    """

    question_ids: list[str]
    temperatures: Floats
    correct: Floats
    replies: Floats

    @property
    def accuracy(self) -> Floats:
        """(n, T) share of right replies; NaN without any reply."""
        return share_of(self.correct, self.replies)


def question_rows(question_ids: Sequence[str], answers: pa.Table) -> NDArray[np.intp]:
    """Return (N,) the row of the question of each answer."""
    found = pc.index_in(answers["question_id"], value_set=pa.array(question_ids, pa.string()))
    if found.null_count:
        raise KeyError(answers["question_id"].filter(found.is_null())[0].as_py())
    row: NDArray[np.intp] = found.to_numpy().astype(np.intp)
    return row


def grid(question_ids: Sequence[str], graded: pa.Table, temperatures: Sequence[float] | None = None) -> Grid:
    """Return a grid of graded answers, summed over trials: rows for ``question_ids``, columns for temperatures.

    The weights of the answers are those of :class:`Measured`. ``temperatures`` (T,) (ascending) may include some at
    which there is no answer; by default, those of the table. KeyError for an answer to another question.

    >>> answer = {"question_id": "a", "temperature": 0.7, "weight": 1.0, "outcome": "ok"}
    >>> graded = pa.Table.from_pylist([answer | {"correct": True}, answer | {"correct": False}])
    >>> grid(["a"], graded).accuracy
    array([[0.5]])
    """
    levels = np.unique(graded["temperature"].to_numpy()) if temperatures is None else np.asarray(temperatures)
    row, column = question_rows(question_ids, graded), np.searchsorted(levels, graded["temperature"].to_numpy())
    weight, judged = graded["weight"].to_numpy(), verdicts(graded)
    right, reply = judged == 1, ~np.isnan(judged)
    shape = (len(question_ids), len(levels))
    correct, replies = np.zeros(shape), np.zeros(shape)
    np.add.at(correct, (row[right], column[right]), weight[right])
    np.add.at(replies, (row[reply], column[reply]), weight[reply])
    return Grid(list(question_ids), levels, correct, replies)


def trial_grid(question_ids: Sequence[str], graded: pa.Table, temperatures: Floats) -> Floats:
    """Return (n, T, k) the verdict on each trial: 1 right, 0 wrong, NaN without one; see :func:`grid`."""
    numbers, trial = np.unique(graded["trial"].to_numpy(), return_inverse=True)
    table = np.full((len(question_ids), len(temperatures), len(numbers)), np.nan)
    table[
        question_rows(question_ids, graded), np.searchsorted(temperatures, graded["temperature"].to_numpy()), trial
    ] = verdicts(graded)
    return table


def verdicts(graded: pa.Table) -> Floats:
    """Return (N,) the verdict on each answer that counts: 1 or 0; NaN without a reply, and without any gold answer."""
    judged = graded["correct"].is_valid().to_numpy(zero_copy_only=False)
    row = graded["question_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    judged |= has_outcome(graded, NO_ANSWER) & np.isin(row, row[judged])  # elsewhere there is no gold answer
    reply = judged & ~has_outcome(graded, NO_REPLY)
    right = graded["correct"].fill_null(False).to_numpy(zero_copy_only=False)
    return np.where(reply, right.astype(float), np.nan)


def counted_answers(graded: pa.Table, estimator: str = "trials") -> pa.Table:
    """Return answers with the weights by which they are summed: 1 for each trial, so that sums are exact, and its
    probability for an enumerated answer (estimator ``exact``).
    """
    return graded if estimator == "exact" else with_columns(graded, {"weight": np.ones(graded.num_rows)})


def refuse_single_answers(metric: str, repetitions: float, samplers: str) -> None:
    """Raise UserError, which names ``samplers``, unless each question has at least two answers and a finite number."""
    if not 2 <= repetitions < np.inf:
        raise UserError(
            f"metric={metric} needs a finite number of answers to each question, at least 2: choose {samplers}"
        )


def question_groups(questions: Sequence[Question]) -> list[str] | None:
    """Return the group of each of the ``questions``, for resampling; a question without one is its own group. None if
    none has a group.

    >>> question_groups([Question("1", "Who?", group="a"), Question("2", "Where?")])
    ['group a', 'question 2']
    """
    if not any(question.group for question in questions):
        return None
    return [f"group {question.group}" if question.group else f"question {question.id}" for question in questions]
