"""Metric specs of reasoning, and their presentation."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robust_eval.metric.metric_spec import (
    DETAIL,
    RUN,
    MetricSpec,
    at_words,
    count_spec,
    nearest_to_one,
    point,
    share_spec,
)
from robust_eval.metric.presentation import Column, Presentation
from robust_eval.metric.score import Score
from robust_eval.prompt.thought import Budget
from robust_eval.stats.interval import SHARE, Floats

ACCURACY = share_spec(
    "thinking.accuracy",
    "accuracy after thinking, largest budget",
    primary=True,
    short="right after thinking",
    of_question="share of answers that are right after thinking",
    better_phrase="is right after thinking more often than",
    difference_phrase="shares of right answers are further apart",
)
SHARE_BETWEEN = MetricSpec(
    "thinking.share_between",
    "share of the variance between thoughts",
    limits=(-math.inf, 1.0),
    mean=False,
    short="varies between thoughts",
    explained="Of right or wrong, how much depends on what was thought; the rest varies after the same thought.",
)
SHARE_WITHIN = MetricSpec(
    "thinking.share_within",
    "share of the variance within answers after a thought",
    limits=(0.0, math.inf),
    shown=RUN,
    mean=False,
)
BETWEEN = MetricSpec("thinking.between", "variance of right answers between thoughts", shown=RUN)
WITHIN = MetricSpec("thinking.within", "variance of right answers after a thought", limits=(0.0, math.inf), shown=RUN)
KAPPA = MetricSpec(
    "thinking.kappa", "Fleiss' κ between thoughts", limits=(-math.inf, 1.0), more_is_better=True, mean=False
)
PLURALITY = share_spec("thinking.plurality", "accuracy of the vote of thoughts")
UNSETTLED = share_spec(
    "thinking.unsettled_share", "share of facts known with less thought, not with the most", more_is_better=False
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
    "thinking.tokens.b{}", "tokens of an answer and its thought, budget {}", shown=RUN, form=".1f", more_is_better=False
)
_SUFFICIENT = MetricSpec(
    "thinking.enough.b{}", "share of known facts that need no more, budget {}", limits=SHARE, shown=DETAIL
)
BUDGET_SPECS = (_ACCURACY, _TOKENS, _SUFFICIENT)
"""Metrics of each budget: see :func:`budget_spec`."""
FRS = share_spec("thinking.frs", "mean FRS after thought")
UNBROKEN = share_spec("thinking.unbroken_share", "share of facts unbroken after thought")
BROKEN_AT = MetricSpec(
    "thinking.breaking_temperature.mean_broken",
    "mean breaking temperature after thought, broken facts",
    more_is_better=True,
)
COUNTS = {
    "known": count_spec("thinking.count.known", "facts right with a budget or more"),
    "unknown": count_spec(
        "thinking.count.unknown",
        "facts that no budget makes right",
        left_out="facts are right with no budget: they have no breaking budget",
    ),
}
FIGURES = (
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
    FRS,
    UNBROKEN,
    BROKEN_AT,
    *COUNTS.values(),
)


def budget_spec(spec: MetricSpec, budget: Budget) -> MetricSpec:
    """Return one of :data:`BUDGET_SPECS` for a budget: a number of tokens, or a word, declared by a run.

    >>> budget_spec(BUDGET_SPECS[0], 64).name, budget_spec(BUDGET_SPECS[0], "low").name
    ('thinking.accuracy.b64', 'thinking.accuracy.low')
    """
    name = spec.name.format(budget) if isinstance(budget, int) else spec.name.replace("b{}", budget)
    return replace(spec, name=name, label=spec.label.format(budget))


def median_spec(budgets: Sequence[Budget]) -> MetricSpec:
    """Return :data:`MEDIAN`, with the words of a service counted.

    >>> median_spec(["low", "high"]).label
    'median breaking budget, counted from 1 (low, high)'
    """
    return replace(MEDIAN, label=MEDIAN.label + _counted(budgets))


def _counted(budgets: Sequence[Budget]) -> str:
    return "" if isinstance(budgets[0], int) else f", counted from 1 ({', '.join(map(str, budgets))})"


def presentation(score: Score, budgets: Sequence[Budget], breaking: Floats, between: Floats) -> Presentation:
    """Show the variance and the effect of reasoning, at the temperature nearest 1; ``breaking`` (n,) are the breaking
    budgets, ``between`` (n,) the variances between traces.
    """
    t = nearest_to_one(score.curves[ACCURACY.name])
    right = score.formatted(point(ACCURACY.name, t), ".0%")
    sentence = f"after thinking, {at_words(t)}: with the largest budget {right} of the answers are right"
    claims = [f"answers {right} right after thinking"]
    if len(budgets) > 1:
        smallest = budget_spec(BUDGET_SPECS[0], budgets[0]).name
        sentence += f", with the least {score.formatted(point(smallest, t), '.0%')}"
    share = score.curves[SHARE_BETWEEN.name][t]
    if not math.isnan(share.value):
        sentence += (
            f"; {score.formatted(point(SHARE_BETWEEN.name, t), '.0%')} of the variance of right and wrong lies between "
            "thoughts, the rest within the answers after one"
        )
    notes = []
    if np.isnan(between).all():
        notes = ["What varies is not known: that takes two thoughts about a question, and two answers after each."]
    columns = [
        Column(
            BREAKING.name,
            "breaking budget",
            "the smallest budget with which, and with every larger one, enough answers are right"
            f"{_counted(budgets)}, {at_words(t)}; undefined where it takes more than the largest",
            np.where(np.isinf(breaking), np.nan, breaking),
            digits=0,
        )
    ]
    return Presentation("Thinking", f"{sentence}.", columns, claims=claims, notes=notes)
