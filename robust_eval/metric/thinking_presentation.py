"""The figures of thinking: what they are called, and how a run that measured them is shown."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robust_eval.metric.metric_spec import DETAIL, RUN, MetricSpec, at_words, nearest_to_one, point
from robust_eval.metric.presentation import Column, Presentation
from robust_eval.metric.score import Score
from robust_eval.prompt.thought import Budget
from robust_eval.stats.interval import SHARE, Floats

ACCURACY = MetricSpec(
    "thinking.accuracy",
    "accuracy after thinking, largest budget",
    limits=SHARE,
    more_is_better=True,
    primary=True,
    short="right after thinking",
    of_question="share of answers that are right after thinking",
    better_phrase="is right after thinking more often than",
    difference_phrase="shares of right answers are further apart",
)
OF_BETWEEN = MetricSpec(
    "thinking.share_between",
    "share of the variance between thoughts",
    limits=(-math.inf, 1.0),
    mean=False,
    short="varies between thoughts",
    explained="Of right or wrong, how much depends on what was thought; the rest varies after the same thought.",
)
OF_WITHIN = MetricSpec(
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
PLURALITY = MetricSpec("thinking.plurality", "accuracy of the vote of thoughts", limits=SHARE, more_is_better=True)
UNSETTLED = MetricSpec(
    "thinking.unsettled_share",
    "share of facts known with less thought, not with the most",
    limits=SHARE,
    more_is_better=False,
)
BREAKING = MetricSpec(
    "thinking.breaking_budget", "breaking budget", more_is_better=False, shown=DETAIL, form="g", mean=False
)
"""Of a question alone, since one that the largest budget does not make right has none and there is no mean."""
MEDIAN = MetricSpec(
    "thinking.breaking_budget.median", "median breaking budget", more_is_better=False, shown=RUN, form="g", mean=False
)
_ACCURACY = MetricSpec("thinking.accuracy.b{}", "accuracy, budget {}", limits=SHARE, more_is_better=True, shown=RUN)
_TOKENS = MetricSpec(
    "thinking.tokens.b{}", "tokens of an answer and its thought, budget {}", shown=RUN, form=".1f", more_is_better=False
)
_ENOUGH = MetricSpec(
    "thinking.enough.b{}", "share of known facts that need no more, budget {}", limits=SHARE, shown=DETAIL
)
OF_BUDGETS = (_ACCURACY, _TOKENS, _ENOUGH)
"""Metrics of each budget: see :func:`of_budget`."""
FRS = MetricSpec("thinking.frs", "mean FRS after thought", limits=SHARE, more_is_better=True)
UNBROKEN = MetricSpec(
    "thinking.unbroken_share", "share of facts unbroken after thought", limits=SHARE, more_is_better=True
)
BROKEN_AT = MetricSpec(
    "thinking.breaking_temperature.mean_broken",
    "mean breaking temperature after thought, broken facts",
    more_is_better=True,
)
COUNTS = {
    "known": MetricSpec("thinking.count.known", "facts right with a budget or more", shown=RUN, form=".0f", mean=False),
    "unknown": MetricSpec(
        "thinking.count.unknown",
        "facts that no budget makes right",
        shown=RUN,
        form=".0f",
        mean=False,
        left_out="facts are right with no budget: they have no breaking budget",
    ),
}
FIGURES = (
    ACCURACY,
    OF_BETWEEN,
    OF_WITHIN,
    BETWEEN,
    WITHIN,
    KAPPA,
    PLURALITY,
    UNSETTLED,
    BREAKING,
    MEDIAN,
    *OF_BUDGETS,
    FRS,
    UNBROKEN,
    BROKEN_AT,
    *COUNTS.values(),
)


def of_budget(figure: MetricSpec, budget: Budget) -> MetricSpec:
    """Return one of :data:`OF_BUDGETS` with a budget: a number of tokens, or a word, which is declared by a run.

    >>> of_budget(OF_BUDGETS[0], 64).name, of_budget(OF_BUDGETS[0], "low").name
    ('thinking.accuracy.b64', 'thinking.accuracy.low')
    """
    name = figure.name.format(budget) if isinstance(budget, int) else figure.name.replace("b{}", budget)
    return replace(figure, name=name, label=figure.label.format(budget))


def median_of(budgets: Sequence[Budget]) -> MetricSpec:
    """Return :data:`MEDIAN`, which counts the words of a service.

    >>> median_of(["low", "high"]).label
    'median breaking budget, counted from 1 (low, high)'
    """
    return replace(MEDIAN, label=MEDIAN.label + _counted(budgets))


def _counted(budgets: Sequence[Budget]) -> str:
    return "" if isinstance(budgets[0], int) else f", counted from 1 ({', '.join(map(str, budgets))})"


def presentation(score: Score, budgets: Sequence[Budget], breaking: Floats, between: Floats) -> Presentation:
    """Show what varies and what thinking brings, at the temperature nearest 1, of which ``breaking`` (n,) are the
    breaking budgets and ``between`` (n,) the variances between thoughts.
    """
    t = nearest_to_one(score.curves[ACCURACY.name])
    right = score.formatted(point(ACCURACY.name, t), ".0%")
    said = f"after thinking, {at_words(t)}: with the largest budget {right} of the answers are right"
    claims = [f"answers {right} right after thinking"]
    if len(budgets) > 1:
        least = of_budget(OF_BUDGETS[0], budgets[0]).name
        said += f", with the least {score.formatted(point(least, t), '.0%')}"
    share = score.curves[OF_BETWEEN.name][t]
    if not math.isnan(share.value):
        said += (
            f"; {score.formatted(point(OF_BETWEEN.name, t), '.0%')} of the variance of right and wrong lies between "
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
    return Presentation("Thinking", f"{said}.", columns, claims=claims, notes=notes)
