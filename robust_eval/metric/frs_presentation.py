"""Metric specs of FRS, and their presentation."""

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

EARLY_STOPPING_NOTE = (
    "Accuracy at each temperature and certainty of replies: sampler.early_stop=true asked no more than breaking "
    "temperatures need."
)
"""Reason for the metrics that early stopping leaves out."""
MIN_OF_TYPE = 5
"""Minimum number of facts of a type in the first lines of a report."""
ROUNDING = 1e-9
"""Maximum difference between equal scores."""

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
"""Mean score for each weight d."""
SURVIVAL = MetricSpec(
    "frs.survival",
    "share of facts that hold",
    limits=SHARE,
    more_is_better=True,
    shown=DETAIL,
    is_survival=True,
    comparison=ComparisonView(STEPS, "Facts that hold", "share of facts unbroken beyond t", file="survival"),
)
"""Curve of the facts that are not broken at a temperature or before it."""
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
"""Curve of the share of right replies."""
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
"""Breaking temperature, a metric of single questions: an unbroken fact has none, so that there is no mean."""

ENTROPY = MetricSpec("frs.entropy.mean", "mean initial entropy H", limits=SHARE)
"""Entropy of the greedy answer, a metric of single questions."""


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
    known_count = len(score.question_ids) - (0 if unknown is None else int(unknown.value))
    sentence = _sentence(score, first, d, known_count)
    claims = [
        *_median_claim(breaking, levels, known_count),
        *_most_robust_type(score.by_question[first], types, groups),
    ]
    scale = Scale(
        f"mean Factual Robustness Score (FRS), d = {d:g}",
        frs,
        0.0,
        1.0,
        _anchors(levels, d, score.settings["unbroken"]),
    )
    return Presentation("Temperature", sentence, columns, ["entropy", "breaking", "frs"], claims, scale)


def _sentence(score: Score, first: str, d: float, known_count: int) -> str:
    """Return a sentence with the mean of the score ``first``, for d, and the share of unbroken facts."""
    if not known_count:
        return "at rising temperature. None of them is known, so there is no FRS."
    frs = score.values[first]
    start = ":" if known_count == len(score.question_ids) else f". {known_count:,} of them are known:"
    interval = f"95 % interval {bounds(frs.low, frs.high)}, d = {d:g}"
    interval += "" if score.n(first) == known_count else f", n = {score.n(first):,}"
    return (
        f"at rising temperature{start} their mean Factual Robustness Score is {number(frs.value)} ({interval}), and "
        f"{score.formatted(UNBROKEN.name, '.0%')} of them never broke."
    )


def _median_claim(breaking: Floats, levels: Sequence[float], known_count: int) -> list[str]:
    """Return a claim with the temperature at which half of the known facts are lost, or on their survival."""
    defined = breaking[~np.isnan(breaking)]
    if not len(defined):
        return []
    median = float(np.quantile(defined, 0.5, method="inverted_cdf"))
    if math.isinf(median):
        return [f"still holds more than half of the {known_count:,} known facts at t = {levels[-1]:g}"]
    return [f"has lost half of the {known_count:,} known facts by t = {median:g}"]


def _most_robust_type(scores: Floats, types: Sequence[str], groups: Sequence[str] | None) -> list[str]:
    """Return a claim on the type of questions with the highest mean score, significant against each other type with
    enough facts: Welch's t test (over groups, if any), Holm's correction for all pairs of types. Otherwise nothing.
    """
    if not any(types):
        return []
    type_of, units = np.array(types, dtype=object), np.arange(len(types)) if groups is None else np.asarray(groups)
    facts = {kind: np.flatnonzero((type_of == kind) & ~np.isnan(scores)) for kind in QUESTION_TYPES}
    means = {kind: _unit_means(scores[rows], units[rows]) for kind, rows in facts.items()}
    compared = [kind for kind, values in means.items() if len(values) >= MIN_OF_TYPE]
    if len(compared) < 2:
        return []
    compared.sort(key=lambda kind: -means[kind].mean())
    pairs = list(combinations(compared, 2))  # those of the first type are the first of them
    p_value = max(holm([_welch(means[one], means[other]) for one, other in pairs])[: len(compared) - 1].tolist())
    if not p_value < LEVEL:
        return []
    mean, n = number(float(scores[facts[compared[0]]].mean())), len(facts[compared[0]])
    tested = f"p = {number(p_value, '.2g')} after Holm's correction for {len(pairs)} pairs of kinds"
    return [f"holds one kind most firmly, {QUESTION_TYPES[compared[0]]} (mean FRS {mean}, n = {n}; {tested})"]


def _unit_means(scores: Floats, units: NDArray[Any]) -> Floats:
    """Return the mean score of each unit."""
    _, unit = np.unique(units, return_inverse=True)
    means: Floats = np.bincount(unit, scores) / np.bincount(unit)
    return means


def _welch(one: Floats, other: Floats) -> float:
    """Return the two-sided p value of Welch's t test; 1 without any variance."""
    if max(np.ptp(one), np.ptp(other)) < ROUNDING:
        return 1.0
    from scipy import stats  # it takes half a second, which most runs need not spend

    sizes = ((values.mean(), values.std(ddof=1), len(values)) for values in (one, other))
    return float(stats.ttest_ind_from_stats(*next(sizes), *next(sizes), equal_var=False).pvalue)


def _anchors(levels: Sequence[float], d: float, unbroken: str) -> list[tuple[float, str]]:
    """Return the scores of easily imagined models, by the same formula."""
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
