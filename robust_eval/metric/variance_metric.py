"""Variance of right and wrong between questions, rewrites and trials, over a graded answer table (docs/profile.md)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.answer import DEFAULT_TEMPERATURE, at_temperature, rows, temperatures_of
from robust_eval.metric.metric_spec import RUN, MetricSpec, nearest_to_one
from robust_eval.metric.score import Measured, Metric, Score, question_groups, refuse_single_answers, verdicts
from robust_eval.question import Question
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import NORMAL_95, Floats, units_and_error
from robust_eval.stats.variance import VarianceComponents, variance_components


def _component(name: str, label: str) -> MetricSpec:
    return MetricSpec(f"variance.{name}", f"variance between {label}", shown=RUN, form=".4f", mean=False)


QUESTION = _component("question", "questions")
REWRITE = _component("rewrite", "rewrites of a question")
TRIAL = _component("trial", "trials of a rewrite")
STANDARD_ERROR = MetricSpec(
    "variance.standard_error", "standard error of the mean accuracy", more_is_better=False, shown=RUN, mean=False
)
SPECS = (QUESTION, REWRITE, TRIAL, STANDARD_ERROR)
_REASONS = {
    REWRITE.name: "included in the variance between questions: each has one wording",
    TRIAL.name: "included in the variance above: each wording has one trial",
}
TOO_FEW = "fewer than two questions have verdicts"
"""Reason for a run without any component."""
MORE = {"questions": 100, "trials": 10, "rewrites": 5}
"""Additions whose effect on an interval is named."""


class AnswerVariance(NamedTuple):
    """Variance components of the answers of a run, or of the differences of two, and their numbers: of ``questions``,
    and on average of ``rewrites`` of each (its own wording is one) and of ``trials`` of each rewrite.

    ``design_effect`` is the standard error over groups of questions, divided by that over independent questions.
    """

    components: VarianceComponents
    questions: int
    rewrites: float
    trials: float
    design_effect: float = 1.0
    temperature: float = DEFAULT_TEMPERATURE

    def standard_error(self, questions: float = 0, rewrites: float = 0, trials: float = 0) -> float:
        """Return the accuracy's standard error with so many more questions, rewrites and trials; NaN if unknown."""
        if self.questions < 2:
            return math.nan
        numbers = self.questions + questions, self.rewrites + rewrites, self.trials + trials
        return self.design_effect * self.components.standard_error(*numbers)

    @property
    def interval_words(self) -> str:
        """Half the width of the 95 % interval, and a sentence on it with :data:`MORE` questions, rewrites or trials."""
        errors = {f"{n} more {of}": self.standard_error(**{of: n}) for of, n in MORE.items()}
        widths = [f"±{NORMAL_95 * each:.3f} with {more}" for more, each in errors.items() if not math.isnan(each)]
        return f"±{NORMAL_95 * self.standard_error():.3f}. It would be {', '.join(widths)}"


def _no_error(variance: AnswerVariance) -> str:
    """Return the reason for an undefined standard error of two questions or more."""
    if math.isnan(variance.design_effect):
        return "all questions are in one group"
    do_vary = any(each.value > 0 for each in variance.components)
    return "the questions do not differ by more than chance" if do_vary else "the answers do not vary"


def component_shares(components: VarianceComponents) -> str:
    """Return the shares of the variance components, without negative ones: "31% between questions, …"."""
    question, rewrite, trial = (each.value for each in components)
    named = {
        "questions" + (" (each in one wording)" if math.isnan(rewrite) else ""): question,
        "rewrites" + (" (one trial each)" if math.isnan(trial) else ""): rewrite,
        "trials": trial,
    }
    positive = {name: max(0.0, value) for name, value in named.items() if not math.isnan(value)}
    whole = sum(positive.values())
    return ", ".join(f"{number(value / whole, '.0%')} between {name}" for name, value in positive.items())


def answer_variance(answers: pa.Table, groups: Mapping[str, str] | None = None) -> AnswerVariance:
    """Return the variance of graded answers at one temperature; ``groups`` maps ids of questions to their groups.

    Answers without a verdict are left out.
    """
    ids, rewrites = answers["question_id"].to_pylist(), answers["rewrite"].to_pylist()
    variance = _variance(verdicts(answers), ids, rewrites, groups)
    return variance._replace(temperature=answers["temperature"][0].as_py()) if len(ids) else variance


def difference_variance(one: pa.Table, other: pa.Table, groups: Mapping[str, str] | None = None) -> AnswerVariance:
    """Return the variance of the differences between the graded answers of two runs to the same question, rewrite and
    trial, at one temperature; ``groups`` maps ids of questions to their groups.

    Answers without a verdict in both runs are left out.
    """
    first, second = (
        dict(zip(rows(each, "question_id", "rewrite", "trial"), verdicts(each).tolist(), strict=True))
        for each in (one, other)
    )
    paired = [place for place in first if place in second]
    difference = np.array([first[place] - second[place] for place in paired])
    variance = _variance(difference, [place[0] for place in paired], [place[1] for place in paired], groups)
    return variance._replace(temperature=one["temperature"][0].as_py()) if paired else variance


def _variance(
    values: Floats, question_ids: Sequence[str], rewrites: Sequence[int], groups: Mapping[str, str] | None
) -> AnswerVariance:
    judged = ~np.isnan(values)
    correct, question, rewrite = values[judged], np.array(question_ids, dtype=str)[judged], np.array(rewrites)[judged]
    names, row, number = np.unique(question, return_inverse=True, return_counts=True)
    units = None if groups is None else np.array([groups[name] for name in names.tolist()])
    components = variance_components(correct, question, rewrite, None if units is None else units[row])
    questions, wordings = len(names), len(np.unique(np.stack([row, rewrite]), axis=1).T)
    if questions < 2:
        return AnswerVariance(components, questions, math.nan, math.nan)
    means = np.bincount(row, correct) / number
    effect = 1.0 if units is None or not np.ptp(means) else units_and_error(means, units)[1] / units_and_error(means)[1]
    return AnswerVariance(components, questions, wordings / questions, len(correct) / wordings, effect)


@dataclass
class VarianceDecomposition(Metric):
    """Metric of the variance of right and wrong between questions, rewrites and trials, at the temperature nearest to 1
    (docs/profile.md).
    """

    axis = "rewrite"
    specs = SPECS

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """Raise UserError unless each question has at least two answers, and a finite number."""
        refuse_single_answers("variance", repetitions, "sampler=perturbation or sampler=repetition")

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return the variance components that the answers show, and the standard error of the mean accuracy.

        Table ``variance`` has the standard error for these numbers of questions, rewrites and trials, and for twice as
        many of each.
        """
        ids, groups = [question.id for question in questions], question_groups(questions)
        temperature = nearest_to_one(temperatures_of(measured.graded))
        answers = at_temperature(measured.graded, temperature)
        variance = answer_variance(answers, None if groups is None else dict(zip(ids, groups, strict=True)))
        result = Score(question_ids=ids, specs=self.specs, settings={"temperature": temperature})
        components, error = variance.components, variance.standard_error()
        for spec, estimate in zip(SPECS, (*components, Estimate(error)), strict=True):
            result.values[spec.name] = estimate
            result.of_questions[spec.name] = variance.questions
            if math.isnan(estimate.value):
                has_components = not math.isnan(components.question.value)
                reason = _REASONS.get(spec.name) or _no_error(variance)
                result.reasons[spec.name] = reason if has_components else TOO_FEW
        q, w, k = variance[1:4]
        more = {"": (0.0, 0.0, 0.0), "questions": (q, 0.0, 0.0), "rewrites": (0.0, w, 0.0), "trials": (0.0, 0.0, k)}
        records = [
            {
                "doubled": doubled,
                **dict(zip(("questions", "rewrites", "trials"), np.add((q, w, k), added).tolist(), strict=True)),
                "standard_error": variance.standard_error(*added),
            }
            for doubled, added in more.items()
        ]
        result.tables["variance"] = pa.Table.from_pylist(records)
        return result
