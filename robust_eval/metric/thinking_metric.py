"""Effect of reasoning on answers, over a graded answer table: variance between and within traces, sufficient budgets,
and their cost (docs/thinking.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from robust_eval.aggregator.base import ENSEMBLE, with_votes
from robust_eval.answer import NO_ANSWER, NO_REPLY, SCHEMA, at_temperature, rows, temperatures_of
from robust_eval.error import UserError
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.greedy import greedy_verdicts
from robust_eval.metric.metric_spec import DETAIL, RUN, MetricSpec, count_spec, nearest_to_one, point, share_spec
from robust_eval.metric.score import Measured, Metric, Score, question_groups, verdicts
from robust_eval.prompt.reasoning_budget import Budget, read_reasoning, sorted_budgets
from robust_eval.question import Question
from robust_eval.sampler.base import REASONING, Sampler
from robust_eval.stats.estimate import (
    UNDEFINED,
    Estimate,
    columns_of,
    count_defined,
    estimate,
    masked,
    median_estimate,
    share_of,
)
from robust_eval.stats.frs import breaking_temperature, factual_robustness_score, reaches
from robust_eval.stats.interval import SHARE, Floats
from robust_eval.stats.variance import Variance, drawn_variance, exact_variance, pooled_share

ACCURACY = share_spec(
    "thinking.accuracy",
    "accuracy after reasoning, largest budget",
    primary=True,
    short="right with reasoning",
    of_question="share of right answers after reasoning",
)
SHARE_BETWEEN = MetricSpec(
    "thinking.share_between",
    "share of the variance between traces",
    limits=(-math.inf, 1.0),
    mean=False,
    short="variance share between traces",
    explained="The share of the variance of correctness that lies between traces; the rest lies within traces.",
)
SHARE_WITHIN = MetricSpec(
    "thinking.share_within",
    "share of the variance within traces",
    limits=(0.0, math.inf),
    shown=RUN,
    mean=False,
)
BETWEEN = MetricSpec("thinking.between", "variance of correctness between traces", shown=RUN)
WITHIN = MetricSpec("thinking.within", "variance of correctness within traces", limits=(0.0, math.inf), shown=RUN)
KAPPA = MetricSpec(
    "thinking.kappa", "Fleiss' κ between traces", limits=(-math.inf, 1.0), more_is_better=True, mean=False
)
PLURALITY = share_spec("thinking.plurality", "accuracy of the majority vote over traces")
UNSETTLED = share_spec(
    "thinking.unsettled_share", "share of facts known with less reasoning, but not with the most", more_is_better=False
)
BREAKING = MetricSpec(
    "thinking.breaking_budget", "breaking budget", more_is_better=False, shown=DETAIL, form="g", mean=False
)
"""Metric of single questions: a fact beyond the largest budget has none, so that there is no mean."""
MEDIAN = MetricSpec(
    "thinking.breaking_budget.median", "median breaking budget", more_is_better=False, shown=RUN, form="g", mean=False
)
_ACCURACY = share_spec("thinking.accuracy.b{}", "accuracy, budget {}", shown=RUN)
_TOKENS = MetricSpec(
    "thinking.tokens.b{}", "tokens of an answer and its trace, budget {}", shown=RUN, form=".1f", more_is_better=False
)
_SUFFICIENT = MetricSpec(
    "thinking.enough.b{}", "share of known facts that need no larger budget than {}", limits=SHARE, shown=DETAIL
)
ADDED = MetricSpec(
    "thinking.added_tokens",
    "tokens used with the largest budget minus those used with the smallest",
    shown=RUN,
    form=".1f",
    explained="The mean difference in the tokens of an answer with its trace, paired by question.",
)
BUDGET_SPECS = (_ACCURACY, _TOKENS, _SUFFICIENT)
"""Metrics of each budget: see :func:`budget_spec`."""
FRS = share_spec("thinking.frs", "mean FRS after reasoning")
UNBROKEN = share_spec("thinking.unbroken_share", "share of facts unbroken after reasoning")
BROKEN_AT = MetricSpec(
    "thinking.breaking_temperature.mean_broken",
    "mean breaking temperature after reasoning, broken facts",
    more_is_better=True,
)
COUNTS = {
    "known": count_spec("thinking.count.known", "facts right with at least one budget"),
    "unknown": count_spec(
        "thinking.count.unknown",
        "facts answered incorrectly with every budget",
        left_out="Facts without a breaking budget, because they are wrong with every budget",
    ),
}
SPECS: tuple[MetricSpec, ...] = (
    ACCURACY,
    SHARE_BETWEEN,
    SHARE_WITHIN,
    BETWEEN,
    WITHIN,
    KAPPA,
    PLURALITY,
    UNSETTLED,
    BREAKING,
    MEDIAN,
    *BUDGET_SPECS,
    ADDED,
    FRS,
    UNBROKEN,
    BROKEN_AT,
    *COUNTS.values(),
)


def budget_spec(spec: MetricSpec, budget: Budget) -> MetricSpec:
    """Return one of :data:`BUDGET_SPECS` for a reasoning budget: a number of tokens, or a word, declared by a run.

    >>> budget_spec(BUDGET_SPECS[0], 64).name, budget_spec(BUDGET_SPECS[0], "low").name
    ('thinking.accuracy.b64', 'thinking.accuracy.low')
    """
    name = spec.name.format(budget) if isinstance(budget, int) else spec.name.replace("b{}", budget)
    return replace(spec, name=name, label=spec.label.format(budget))


def median_spec(budgets: Sequence[Budget]) -> MetricSpec:
    """Return :data:`MEDIAN` of reasoning budgets, with the words of a service counted.

    >>> median_spec(["low", "high"]).label
    'median breaking budget, counted from 1 (low, high)'
    """
    return replace(MEDIAN, label=MEDIAN.label + counted(budgets))


def counted(budgets: Sequence[Budget]) -> str:
    """Return the addition to the label of a metric that counts budgets in words; empty for numbers of tokens."""
    return "" if isinstance(budgets[0], int) else f", counted from 1 ({', '.join(map(str, budgets))})"


_ITEM = ("question_id", "rewrite")
"""Columns that identify a request."""


@dataclass(frozen=True)
class TraceGrid:
    """Answers to n questions at one temperature, with each of B budgets after each of K reasoning traces.

    ``right`` and ``replies`` are (n, B, K): how many answers are right, and of how many, or their probabilities.
    ``error`` is (n, B, K), the square of the standard error of such probabilities. ``tokens`` is (n, B), the
    tokens of a trace with the answer after it; NaN where they are not counted.
    """

    right: Floats
    replies: Floats
    error: Floats
    tokens: Floats

    @property
    def accuracy(self) -> Floats:
        """(n, B) mean over reasoning traces of the share of right answers after each; NaN without any reply."""
        share = share_of(self.right, self.replies)
        return share_of(np.nansum(share, axis=2), np.count_nonzero(~np.isnan(share), axis=2).astype(float))

    def variance(self, exact: bool) -> Variance:
        """Return the variance of right and wrong between and within reasoning traces, with the largest budget."""
        right, replies = self.right[:, -1], self.replies[:, -1]
        if exact:
            return exact_variance(share_of(right, replies), self.error[:, -1])
        return drawn_variance(right, replies)


@dataclass
class ReasoningBudget(Metric):
    """Metric of reasoning budgets, censored above: a fact may be right with a smaller one and not with the largest."""

    threshold: float = 0.5
    """A fact is known with a budget if at least this share of its answers is right, and breaks at a temperature at
    which the share is smaller."""
    d: float = 1.0
    """Weight of the entropy in FRS after reasoning, above 0."""

    axis = REASONING
    specs = SPECS
    curves = tuple(spec for spec in SPECS if spec not in (FRS, UNBROKEN, BROKEN_AT))

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be above 0 and at most 1, not {self.threshold}")
        if not 0 < self.d < math.inf:
            raise ValueError(f"d must be finite and above 0, not {self.d:g}")

    def specs_under(self, sampler: Sampler) -> Sequence[MetricSpec]:
        """Return the specs for each reasoning budget of the sampler; see :class:`Metric`."""
        others = [spec for spec in self.specs if spec not in BUDGET_SPECS]
        return [*others, *(budget_spec(spec, budget) for budget in sampler.budgets for spec in BUDGET_SPECS)]

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return the variance with the largest budget, and the effect of every reasoning budget, at each temperature.

        Table ``thinking`` has a row for each question and temperature, ``thinking_budgets`` one for each budget.
        """
        ids, groups = [question.id for question in questions], question_groups(questions)
        budgets, exact = budgets_of(measured.graded), measured.estimator == "exact"
        temperatures = temperatures_of(measured.graded)
        traced = [
            by_trace(ids, at_temperature(measured.graded, t), budgets, at_temperature(measured.exact_curves, t))
            for t in temperatures
        ]
        extra = [budget_spec(spec, budget) for budget in budgets if isinstance(budget, str) for spec in BUDGET_SPECS]
        declared = (median_spec(budgets), *self.specs, *extra)
        result = Score(question_ids=ids, settings={"threshold": self.threshold, "budgets": budgets}, specs=declared)

        def add(name: str, values: ArrayLike) -> None:
            result.add_curve(name, np.asarray(values).T, temperatures, groups)

        accuracy = np.stack([each.accuracy for each in traced])  # (temperatures, questions, budgets)
        tokens = np.stack([each.tokens for each in traced])
        add(ACCURACY.name, accuracy[..., -1])
        variances = [each.variance(exact) for each in traced]
        add(BETWEEN.name, [each.between for each in variances])
        add(WITHIN.name, [each.within for each in variances])
        self._add_shares(result, temperatures, variances, groups, seed)
        self._add_agreement(result, questions, measured, budgets[-1], seed)
        grid = np.array([budget if isinstance(budget, int) else place for place, budget in enumerate(budgets, 1)])
        breaking = np.stack([breaking_budget(each, grid, self.threshold) for each in accuracy])
        is_known = ~np.isnan(breaking)
        add(UNSETTLED.name, masked(is_known, np.isinf(breaking)))
        for t, b in zip(temperatures, breaking, strict=True):
            median = median_estimate(b)
            if math.isinf(median.value):
                median, result.reasons[point(MEDIAN.name, t)] = UNDEFINED, "more than the largest"
            result.curves.setdefault(MEDIAN.name, {})[t] = median
            result.of_questions[point(MEDIAN.name, t)] = count_defined(b)
        for place, budget in enumerate(budgets):
            accuracy_name, tokens_name, enough_name = (budget_spec(spec, budget).name for spec in BUDGET_SPECS)
            add(accuracy_name, accuracy[..., place])
            add(tokens_name, tokens[..., place])
            add(enough_name, masked(is_known, breaking <= grid[place]))
        if len(budgets) > 1:
            add(ADDED.name, tokens[..., -1] - tokens[..., 0])
        at = temperatures.index(nearest_to_one(temperatures))
        is_complete = ~np.isnan(accuracy[at]).any(axis=1)
        for name, those in (("known", is_known[at]), ("unknown", ~is_known[at] & is_complete)):
            result.values[COUNTS[name].name] = Estimate(float(np.count_nonzero(those)))
        if len(temperatures) > 1 and not np.isnan(temperatures).any():
            self._add_frs(result, accuracy[..., -1].T, measured.baseline, temperatures, groups)
        result.tables["thinking"] = _of_questions(questions, temperatures, accuracy, variances, breaking)
        result.tables["thinking_budgets"] = _of_budgets(result, temperatures, budgets)
        return result

    def _add_shares(
        self,
        result: Score,
        temperatures: Sequence[float],
        variances: Sequence[Variance],
        groups: Sequence[str] | None,
        seed: int,
    ) -> None:
        """Add the variance's shares between reasoning traces and within the answers after one, over all questions."""
        for t, (between, within) in zip(temperatures, variances, strict=True):
            whole, is_defined = between + within, ~np.isnan(between + within)
            for spec, part in ((SHARE_BETWEEN, between), (SHARE_WITHIN, within)):
                share = estimate(pooled_share, [part, whole], groups, seed, is_defined)
                result.curves.setdefault(spec.name, {})[t] = share
                result.of_questions[point(spec.name, t)] = int(is_defined.sum())

    def _add_agreement(
        self, result: Score, questions: Sequence[Question], measured: Measured, budget: Budget, seed: int
    ) -> None:
        """Add the agreement of a question's reasoning traces as raters: each counts by its most frequent answer."""
        replies = answers_of_traces(measured.graded, budget)
        if not replies.num_rows:
            return
        raters = with_votes(questions, replies, lambda pairs: [0.0] * len(pairs))
        agreed = AnswerAgreement().score(questions, Measured(measured.baseline, raters), seed)
        for spec, name in ((KAPPA, "agreement.kappa"), (PLURALITY, "agreement.plurality")):
            result.curves[spec.name] = agreed.curves[name]
            for t in agreed.curves[name]:
                values = agreed.by_question.get(point(name, t))
                if values is not None:
                    result.by_question[point(spec.name, t)] = values
                else:
                    result.of_questions[point(spec.name, t)] = agreed.of_questions[point(name, t)]

    def _add_frs(
        self,
        result: Score,
        accuracy: Floats,
        baseline: pa.Table,
        temperatures: Sequence[float],
        groups: Sequence[str] | None,
    ) -> None:
        """Add FRS of the answers after reasoning. Their accuracy (n, T) is a mean over traces; entropy and knowledge
        are those of the greedy answer.
        """
        grid = np.array(temperatures)
        is_scored = greedy_verdicts(result.question_ids, baseline) != 0
        breaking = masked(is_scored, breaking_temperature(accuracy, grid, self.threshold))
        try:
            entropy = FactualRobustness().initial_entropy(result.question_ids, baseline)
        except UserError:  # there are fewer log-probabilities than it is made of
            entropy = np.full(len(breaking), np.nan)
        result.add_mean(FRS.name, factual_robustness_score(entropy, breaking, self.d), groups)
        result.add_mean(UNBROKEN.name, masked(~np.isnan(breaking), np.isinf(breaking)), groups)
        broken = masked(np.isfinite(breaking), breaking)
        result.add_mean(BROKEN_AT.name, broken, groups, (0.0, float(grid[-1])))


def budgets_of(graded: pa.Table) -> list[Budget]:
    """Return the reasoning budgets of the answers, ascending; UserError without any."""
    tags = [read_reasoning(form) for form in graded["form"].unique().to_pylist()]
    budgets = {budget for tag in tags if tag is not None for budget in tag.budgets}
    if not budgets or len({type(budget) for budget in budgets}) > 1:
        raise UserError(
            "metric=thinking needs answers that state their reasoning budget, all in tokens or all in effort levels"
        )
    return sorted_budgets(budgets)


def by_trace(
    question_ids: Sequence[str], graded: pa.Table, budgets: Sequence[Budget], curves: pa.Table | None = None
) -> TraceGrid:
    """Return the answers after reasoning at one temperature, with the standard errors of ``curves``."""
    errors = {} if curves is None else {(name, at): se for name, at, se in rows(curves, *_ITEM, "standard_error")}
    row = {question_id: place for place, question_id in enumerate(question_ids)}
    column = {budget: place for place, budget in enumerate(budgets)}
    records = []
    columns = rows(graded, *_ITEM, "trial", "form", "weight", "completion_tokens")
    for (name, item, trial, tag, weight, tokens), verdict in zip(columns, verdicts(graded).tolist(), strict=True):
        trace = read_reasoning(tag)
        if trace is None or name not in row:
            continue
        number = trial if trace.trace is None else trace.trace
        for budget in trace.budgets:
            place = row[name], column[budget], number
            records.append((place, weight, verdict, tokens, errors.get((name, item), 0.0) ** 2))
    shape = (len(row), len(budgets), max((place[-1] for place, *_ in records), default=0) + 1)
    right, replies, error = np.zeros((3, *shape))
    counted, weighed = np.zeros((2, *shape[:2]))
    for place, weight, verdict, tokens, square in records:
        error[place] = square
        if not math.isnan(verdict):
            right[place] += weight * verdict
            replies[place] += weight
        if tokens is not None:
            counted[place[:2]] += weight * tokens
            weighed[place[:2]] += weight
    return TraceGrid(right, replies, error, share_of(counted, weighed))


def answers_of_traces(graded: pa.Table, budget: Budget) -> pa.Table:
    """Return the most frequent answer after each reasoning trace with a budget, as a rater of the question: the number
    of the trace is in place of a rewrite's.
    """
    weight: dict[tuple[str, float, int], dict[str | None, list[tuple[float, int]]]] = {}
    columns = rows(graded, "question_id", "temperature", "trial", "form", "label", "outcome", "weight")
    for place, (name, t, trial, tag, label, outcome, each) in enumerate(columns):
        trace = read_reasoning(tag)
        if trace is None or budget not in trace.budgets or outcome in NO_REPLY:
            continue
        number = trial if trace.trace is None else trace.trace
        answer = None if outcome in NO_ANSWER else label
        weight.setdefault((name, t, number), {}).setdefault(answer, []).append((each, -place))
    chosen, numbers = [], []
    for (_, _, number), labels in weight.items():
        heaviest = max(labels.values(), key=lambda answers: (sum(each for each, _ in answers), max(answers)))
        chosen.append(-max(heaviest)[1])
        numbers.append(number)
    table = graded.take(pa.array(chosen, pa.int64()))
    for name, values in (("rewrite", numbers), ("trial", [0] * len(numbers)), ("weight", [1.0] * len(numbers))):
        field = SCHEMA.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
    return table.drop_columns([ENSEMBLE]) if ENSEMBLE in table.column_names else table


def _of_questions(
    questions: Sequence[Question],
    temperatures: Sequence[float],
    accuracy: Floats,
    variances: Sequence[Variance],
    breaking: Floats,
) -> pa.Table:
    number = len(temperatures)
    return pa.table(
        {
            "question_id": [question.id for question in questions] * number,
            "question": [question.text for question in questions] * number,
            "temperature": np.repeat(np.asarray(temperatures, dtype=float), len(questions)),
            "accuracy": accuracy[..., -1].ravel(),
            "between": np.concatenate([each.between for each in variances]),
            "within": np.concatenate([each.within for each in variances]),
            "breaking_budget": breaking.ravel(),
        }
    )


def _of_budgets(score: Score, temperatures: Sequence[float], budgets: Sequence[Budget]) -> pa.Table:
    """Return the accuracy, the tokens and the share of known facts with each reasoning budget, with intervals."""
    records = []
    for t in temperatures:
        for place, budget in enumerate(budgets):
            line: dict[str, object] = {"temperature": t, "place": place, "budget": str(budget)}
            for name, spec in zip(("accuracy", "tokens", "enough"), BUDGET_SPECS, strict=True):
                line |= columns_of(name, score.curves[budget_spec(spec, budget).name][t])
            records.append(line)
    return pa.Table.from_pylist(records)


def breaking_budget(accuracy: ArrayLike, budgets: ArrayLike, threshold: float = 0.5) -> Floats:
    """Return (n,) the smallest sufficient reasoning budget: with it and with every larger one at least ``threshold`` of
    the answers are right.

    ``accuracy`` (n, B) is the share of right answers with each of the ``budgets`` (B,), ascending; NaN where there is
    no answer. ``threshold`` is in (0, 1].

    Returns
    -------
    inf where the largest budget is not enough although another one is (censored above); NaN for a fact that no budget
    makes known, and where an accuracy is not known.

    References
    ----------
    docs/methods.md, §7.

    Examples
    --------
    >>> breaking_budget([[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0]], [0, 64, 256])
    array([ 64., 256.,  inf,  nan])
    """
    values, grid = np.asarray(accuracy, dtype=float), np.asarray(budgets, dtype=float)
    is_sufficient = reaches(values, threshold)
    stays_sufficient = np.flip(np.logical_and.accumulate(np.flip(is_sufficient, axis=1), axis=1), axis=1)
    smallest = np.where(stays_sufficient[:, -1], grid[stays_sufficient.argmax(axis=1)], np.inf)
    return np.where(is_sufficient.any(axis=1) & ~np.isnan(values).any(axis=1), smallest, np.nan)
