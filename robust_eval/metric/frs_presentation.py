"""The figures of FRS: what they are called, and how a run that measured them is shown."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robust_eval.metric.metric_spec import DETAIL, RUN, STEPS, ComparisonView, MetricSpec
from robust_eval.metric.presentation import Column, Presentation, Scale
from robust_eval.metric.score import Score
from robust_eval.question import QUESTION_TYPES
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import bounds
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import SHARE, Floats
from robust_eval.stats.significance import LEVEL, holm

UNDECIDED = (
    "Accuracy at each temperature and certainty of replies: sampler.ask=undecided asked no more than breaking "
    "temperatures need."
)
"""Reason for the figures that early stopping leaves out."""
FEWEST_OF_TYPE = 5
"""Facts of a type without which nothing is said of it in the first lines of a report."""
ROUNDING = 1e-9
"""Scores that differ by less are the same score."""

FRS = MetricSpec(
    "frs.d{}",
    "mean FRS, d = {}",
    limits=SHARE,
    more_is_better=True,
    primary=True,
    of_question="FRS, d = {}",
    tie_breaker="frs.breaking_temperature",
    better_phrase="holds its facts more firmly than",
    explained="FRS, the Factual Robustness Score, is between 0 and 1, higher where facts are held more firmly.",
    sample_size_note=(
        "Half of an even number of trials is not less than half: the number alone moves where facts break."
    ),
    construct="firmness",
    setting="metric.frs.d",
    comparison=ComparisonView(
        caption="Mean FRS for each d",
        vertical="mean FRS",
        number="weight d of the entropy",
        file="frs_by_d",
        table="Factual Robustness Score",
        heading="FRS",
        companion="frs.unbroken_share",
        note="Mean Factual Robustness Score of the facts that each knows. An unbroken fact scores 1 by convention, "
        "unless the settings say otherwise: read the two columns together.",
    ),
)
"""The mean score for each weight d."""
SURVIVAL = MetricSpec(
    "frs.survival",
    "share of facts that hold",
    limits=SHARE,
    more_is_better=True,
    shown=DETAIL,
    is_survival=True,
    comparison=ComparisonView(STEPS, "Facts that hold", "share of facts unbroken beyond t", file="survival"),
)
"""The curve of the facts that are not broken at a temperature or before it."""
UNBROKEN = MetricSpec(
    "frs.unbroken_share",
    "share of unbroken facts (each scores 1)",
    limits=SHARE,
    more_is_better=True,
    short="unbroken facts",
)
ACCURACY = MetricSpec(
    "accuracy",
    "accuracy",
    limits=SHARE,
    more_is_better=True,
    comparison=ComparisonView(vertical="accuracy (share of right replies)", file="accuracy_by_temperature"),
)
"""The curve of the share of right replies."""
BREAKING = MetricSpec(
    "frs.breaking_temperature",
    "breaking temperature",
    more_is_better=True,
    shown=DETAIL,
    form="g",
    mean=False,
    difference_phrase="breaking temperatures are further apart",
    is_threshold=True,
)
"""Where a fact breaks: of a question alone, since an unbroken one has none and there is no mean."""

ENTROPY = MetricSpec("frs.entropy.mean", "mean initial entropy H", limits=SHARE)
"""Of a question: the entropy of its greedy answer."""


FIGURES = (
    MetricSpec(
        "frs",
        "mean FRS, first d",
        limits=SHARE,
        more_is_better=True,
        shown=DETAIL,
        short="mean FRS, first d",
        mean=False,
    ),  # the questions have values of each d under its own name
    FRS,
    MetricSpec("frs.offgrid.d{}", "mean FRS, d = {}, off the grid", limits=SHARE, more_is_better=True, shown=RUN),
    MetricSpec(
        "frs.offgrid.breaking_temperature.median",
        "median breaking temperature, off the grid",
        more_is_better=True,
        shown=RUN,
        mean=False,
    ),
    MetricSpec(
        "frs.offgrid.breaking_temperature.mean_broken",
        "mean breaking temperature, broken facts, off the grid",
        more_is_better=True,
        shown=DETAIL,
    ),
    UNBROKEN,
    SURVIVAL,
    ACCURACY,
    BREAKING,
    MetricSpec(
        "frs.breaking_temperature.median", "median breaking temperature", more_is_better=True, shown=RUN, mean=False
    ),
    MetricSpec("frs.breaking_temperature.mean_broken", "mean breaking temperature, broken facts", more_is_better=True),
    ENTROPY,
    MetricSpec("frs.count.broken", "broken facts", shown=RUN, form=".0f", mean=False),
    MetricSpec("frs.count.unbroken", "unbroken facts", shown=RUN, form=".0f", mean=False),
    MetricSpec(
        "frs.count.unknown",
        "facts not known",
        shown=DETAIL,
        form=".0f",
        mean=False,
        left_out="questions asked again are no known facts, since the greedy answer is wrong: they have no FRS",
    ),
    MetricSpec(
        "frs.count.undefined",
        "facts without FRS",
        shown=DETAIL,
        form=".0f",
        mean=False,
        left_out="facts have no FRS: their greedy answer has no entropy, or a temperature no reply",
    ),
)


def presentation(
    score: Score,
    entropy: Floats,
    breaking: Floats,
    temperatures: Sequence[float] | Floats,
    k: int,
    types: Sequence[str] = (),
    groups: Sequence[str] | None = None,
) -> Presentation:
    """Show each question by its score for the smallest d, its ``entropy`` and its ``breaking`` temperature, both (n,).

    ``k`` is the number of tokens that enter the entropy, ``types`` and ``groups`` are those of the questions, where
    they have some.
    """
    d, first = next(iter(FRS.among(score.values).items()))
    levels = [float(t) for t in temperatures]
    columns = [
        Column("frs", f"FRS (d = {d:g})", "Factual Robustness Score, 0 to 1", score.by_question[first], of_known=True),
        Column(
            "entropy",
            "H",
            f"initial entropy of the {k} most probable tokens at each position of the greedy answer, 0 to 1",
            entropy,
            of_known=True,
        ),
        Column(
            "breaking",
            "t_b",
            "breaking temperature: the lowest at which the answer is wrong more often than the threshold allows",
            breaking,
            max(len(f"{t:g}".partition(".")[2]) for t in levels),
            levels,
            of_known=True,
        ),
    ]
    frs = score.values[first]
    unknown = score.values.get("frs.count.unknown")
    known = len(score.question_ids) - (0 if unknown is None else int(unknown.value))
    sentence = _sentence(score, first, d, known)
    claims = [*_half(breaking, levels, known), *_firmest(score.by_question[first], types, groups)]
    scale = Scale(
        f"mean Factual Robustness Score (FRS), d = {d:g}",
        frs,
        0.0,
        1.0,
        _anchors(levels, d, score.settings["unbroken"]),
    )
    return Presentation("Temperature", sentence, columns, ["entropy", "breaking", "frs"], claims, scale)


def _sentence(score: Score, first: str, d: float, known: int) -> str:
    """Say the mean of the score ``first``, for d, and how many of the ``known`` facts never broke."""
    if not known:
        return "at rising temperature. None of them is known, so there is no FRS."
    frs = score.values[first]
    start = ":" if known == len(score.question_ids) else f". {known:,} of them are known:"
    interval = f"95 % interval {bounds(frs.low, frs.high)}, d = {d:g}"
    interval += "" if score.n(first) == known else f", n = {score.n(first):,}"
    return (
        f"at rising temperature{start} their mean Factual Robustness Score is {number(frs.value)} ({interval}), and "
        f"{score.formatted(UNBROKEN.name, '.0%')} of them never broke."
    )


def _half(breaking: Floats, levels: Sequence[float], known: int) -> list[str]:
    """Say by which temperature half of the ``known`` facts are lost, or that they are not."""
    defined = breaking[~np.isnan(breaking)]
    if not len(defined):
        return []
    median = float(np.quantile(defined, 0.5, method="inverted_cdf"))
    if math.isinf(median):
        return [f"still holds more than half of the {known:,} known facts at t = {levels[-1]:g}"]
    return [f"has lost half of the {known:,} known facts by t = {median:g}"]


def _firmest(scores: Floats, types: Sequence[str], groups: Sequence[str] | None) -> list[str]:
    """Name the type of questions whose mean score is above that of each other type with enough facts, by Welch's t test
    (over groups, where there are some) after Holm's correction for all pairs of types; nothing where none is.
    """
    if not any(types):
        return []
    kinds, units = np.array(types, dtype=object), np.arange(len(types)) if groups is None else np.asarray(groups)
    facts = {kind: np.flatnonzero((kinds == kind) & ~np.isnan(scores)) for kind in QUESTION_TYPES}
    means = {kind: _unit_means(scores[rows], units[rows]) for kind, rows in facts.items()}
    told = [kind for kind, values in means.items() if len(values) >= FEWEST_OF_TYPE]
    if len(told) < 2:
        return []
    told.sort(key=lambda kind: -means[kind].mean())
    pairs = list(combinations(told, 2))  # those of the first type are the first of them
    p_value = max(holm([_welch(means[one], means[other]) for one, other in pairs])[: len(told) - 1].tolist())
    if not p_value < LEVEL:
        return []
    mean, n = number(float(scores[facts[told[0]]].mean())), len(facts[told[0]])
    tested = f"p = {number(p_value, '.2g')} after Holm's correction for {len(pairs)} pairs of kinds"
    return [f"holds one kind most firmly, {QUESTION_TYPES[told[0]]} (mean FRS {mean}, n = {n}; {tested})"]


def _unit_means(scores: Floats, units: NDArray[Any]) -> Floats:
    """Return the mean score of each unit."""
    _, unit = np.unique(units, return_inverse=True)
    means: Floats = np.bincount(unit, scores) / np.bincount(unit)
    return means


def _welch(one: Floats, other: Floats) -> float:
    """Return the two-sided p value of Welch's t test; 1 where nothing varies, of which it says nothing."""
    if max(np.ptp(one), np.ptp(other)) < ROUNDING:
        return 1.0
    from scipy import stats  # it takes half a second, which most runs need not spend

    sizes = ((values.mean(), values.std(ddof=1), len(values)) for values in (one, other))
    return float(stats.ttest_ind_from_stats(*next(sizes), *next(sizes), equal_var=False).pvalue)


def _anchors(levels: Sequence[float], d: float, unbroken: str) -> list[tuple[float, str]]:
    """Return the scores of models that everybody can imagine, by the same formula."""
    last, entropies = levels[-1], np.linspace(0, 1, 101)
    never = np.inf if unbroken == "one" else last
    flat = np.array([factual_robustness_score(entropies, np.full(101, t), d, unbroken).mean() for t in levels])

    def score(entropy: float, breaking: float) -> float:
        return float(factual_robustness_score(np.array([entropy]), np.array([breaking]), d, unbroken)[0])

    return [
        (
            score(1.0, levels[0]),
            "a model that guesses: every token is as likely as any other, and each fact breaks at once",
        ),
        (float(flat.mean()), "one in between: at each temperature as many facts break, however sure it was of them"),
        (score(0.0, never), "one that is sure and never breaks"),
    ]
