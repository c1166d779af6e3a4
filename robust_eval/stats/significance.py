"""Significance of the differences between runs on the same questions: intervals, tests, significance groups."""

import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.interval import (
    ROUNDING,
    SHARE,
    UNKNOWN,
    Floats,
    Limits,
    mean_bounds,
    paired_share_bounds,
    units_and_error,
)

LEVEL = 0.05
"""Significance level of p values corrected for the number of pairs."""
PERMUTATIONS = 10_000
_MAX_EXHAUSTIVE = 12
"""Maximum number of trials for all swaps: 2¹² = 4,096."""


class Difference(NamedTuple):
    """Mean of the first run minus that of the second over n shared questions, with its 95 % interval, if any."""

    n: int
    first: float
    second: float
    value: float
    low: float
    high: float


def paired_difference(
    first: ArrayLike, second: ArrayLike, groups: ArrayLike | None = None, limits: Limits = UNKNOWN
) -> Difference:
    """Compare the means of two runs over the same questions.

    The interval is that of the mean difference (:func:`~robust_eval.stats.mean_interval`); where every value
    is 0 or 1, Tango's score interval (:func:`~robust_eval.stats.paired_share_interval`).

    Parameters
    ----------
    first, second
        (n,) values of the same questions, in the same order. Questions with a NaN on either side are left out.
    groups
        Labels (n,) of questions that depend on one another.
    limits
        The lowest and the highest value that a question can have on either side. Without them, there is no interval if
        all differences are equal.

    Returns
    -------
    Difference in the unit of the values, NaN without a shared question. ValueError for arrays of different shapes.

    References
    ----------
    docs/methods.md, §5.

    Examples
    --------
    >>> paired_difference([1, 1, 0, 1], [0, 0, 0, 0]).value
    0.75
    """
    one, other, labels = _shared(first, second, groups)
    if len(one) == 0:
        return Difference(0, *[math.nan] * 5)
    difference = one - other
    if limits == SHARE and np.isin(one, (0, 1)).all() and np.isin(other, (0, 1)).all():
        interval = paired_share_bounds(difference, labels)
    else:
        width = limits[1] - limits[0]
        interval = mean_bounds(difference, (-width, width), labels)
    means = float(one.mean()), float(other.mean()), float(difference.mean())
    return Difference(len(one), *means, *interval)


class LogRank(NamedTuple):
    """Log-rank test of two runs, stratified by question.

    Of ``n`` questions, ``first`` break at a lower temperature in the first run, ``second`` in the second, and the
    rest at the same temperature in both, or in neither. ``statistic`` is χ² with one degree of freedom.
    """

    n: int
    first: int
    second: int
    statistic: float
    p_value: float


def stratified_log_rank(first_holds: ArrayLike, second_holds: ArrayLike, groups: ArrayLike | None = None) -> LogRank:
    """Test for earlier breaks in one of two runs over the same temperatures. Each question is a stratum of its own.

    With two runs a stratum contributes only where one breaks while the other is known to hold: it then adds ±1/2 to
    observed minus expected breaks, with variance 1/4, so that the statistic is (first − second)² / (first + second).
    If questions have groups, the signs of a group are summed before squaring, as in the test for clustered pairs. The
    χ² distribution is an approximation: with fewer than about ten contributing questions (or groups), trust the counts.

    Parameters
    ----------
    first_holds, second_holds
        (n, T) of the same questions at the same temperatures, as for :func:`~robust_eval.stats.survival.kaplan_meier`:
        1 as long as a fact holds, 0 from its break on, NaN from the temperature on at which it is censored. Questions
        that are censored at the first temperature on either side are left out.
    groups
        Labels (n,) of questions that depend on one another.

    Returns
    -------
    LogRank; statistic and p_value are NaN where no question contributes, 0 and 1 where the signs of every group cancel.
    ValueError for arrays of different shapes.

    References
    ----------
    Mantel, Cancer Chemotherapy Reports 50 (1966); of pairs: McNemar, Psychometrika 12 (1947); of clustered pairs:
    Obuchowski, Statistics in Medicine 17 (1998). docs/methods.md, §5.

    Examples
    --------
    >>> stratified_log_rank([[1, 0], [1, 0], [0, 0]], [[1, np.nan], [1, 1], [1, 0]])[:4]
    (3, 2, 0, 2.0)
    """
    one, other, labels = _shared(first_holds, second_holds, groups)
    signs = ((one == 0) & (other == 1)).any(axis=1).astype(float) - ((other == 0) & (one == 1)).any(axis=1)
    if labels is not None:
        _, membership = np.unique(labels, return_inverse=True)
        sums = np.bincount(membership, signs)
    else:
        sums = signs
    first, second = int((signs > 0).sum()), int((signs < 0).sum())
    variance = float((sums**2).sum())
    if not first + second:
        return LogRank(len(one), first, second, math.nan, math.nan)
    statistic = float(sums.sum()) ** 2 / variance if variance else 0.0
    return LogRank(len(one), first, second, statistic, math.erfc(math.sqrt(statistic / 2)))


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Return McNemar's exact two-sided p value of the hypothesis that as many questions are right in ``first`` alone as
    in ``second`` alone.

    ``first`` and ``second`` (n,) are 1 where right, 0 where wrong, of the same questions. Those with a NaN on either
    side are left out.

    Returns
    -------
    In (0, 1]; 1 where no question differs. ValueError for arrays of different shapes.

    References
    ----------
    McNemar, Psychometrika 12 (1947), with the binomial distribution in place of χ².

    Examples
    --------
    >>> mcnemar([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0])
    0.0625
    """
    one, other, _ = _shared(first, second, None)
    lost, gained = int((one > other).sum()), int((one < other).sum())
    from scipy import stats  # it takes half a second, which most runs need not spend

    return float(stats.binomtest(lost, lost + gained).pvalue) if lost + gained else 1.0


def _shared(
    first: ArrayLike, second: ArrayLike, groups: ArrayLike | None
) -> tuple[Floats, Floats, NDArray[Any] | None]:
    """Return both runs' arrays, (n,) or (n, T), and the labels without the questions undefined on either side: of (n,
    T) in the first column.
    """
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if one.ndim not in (1, 2) or one.shape != other.shape:
        raise ValueError(f"both need the same shape, (n,) or (n, T), not {one.shape} and {other.shape}")
    if groups is not None and len(np.asarray(groups)) != len(one):
        raise ValueError(f"groups: {len(np.asarray(groups))} labels for {len(one)} questions")
    both = one + other
    defined = ~np.isnan(both if both.ndim == 1 else both[:, 0])
    return one[defined], other[defined], None if groups is None else np.asarray(groups)[defined]


def paired_p_value(differences: ArrayLike, groups: ArrayLike | None = None) -> float:
    """Return the two-sided p value of the mean difference between paired runs: a t test, over groups if there are any.

    The variance is that of the mean over groups, with one degree of freedom less than the number of groups. The p value
    is at least 2 · ½^units, that of the sign test if all units differ in one direction, because the variance of equal
    differences is uninformative. It is 1 if no unit differs, and never 0.

    ``differences`` (n,) are those of each question, without NaN; ``groups`` (n,) are labels of questions that depend on
    one another.

    Returns
    -------
    In [0, 1]; NaN without any difference.

    References
    ----------
    Cochran, Sampling Techniques (1977), chapter 9A: the variance of a mean over clusters.

    Examples
    --------
    >>> round(paired_p_value([1, 0, 0, 1, 0, 1, 0, 0]), 4), paired_p_value([0, 0, 0]), paired_p_value([1, 1, 1])
    (0.0796, 1.0, 0.25)
    """
    values = np.asarray(differences, dtype=float)
    defined = ~np.isnan(values)
    values, labels = values[defined], None if groups is None else np.asarray(groups)[defined]
    if not len(values):
        return math.nan
    mean = abs(float(values.mean()))
    if mean <= ROUNDING:
        return 1.0
    number, error = units_and_error(values, labels)
    minimum = max(min(1.0, 2.0 * 0.5**number), sys.float_info.min)
    if number == 1 or error == 0:
        return minimum
    from scipy.special import stdtr  # it takes a tenth of a second, which most commands need not spend

    return max(2 * float(stdtr(number - 1, -mean / error)), minimum)


def welch_p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the p value of Welch's two-sided t test of two (mean, standard deviation, number); 1 without variance."""
    if max(one[1], other[1]) < ROUNDING:
        return 1.0
    from scipy import stats  # an import of half a second, which most runs do not need

    return float(stats.ttest_ind_from_stats(*one, *other, equal_var=False).pvalue)


def permutation_p(baseline: Floats, candidate: Floats, paired: bool) -> float:
    """Return the one-sided p value of a permutation test for a fact that is right less often in the candidate.

    ``baseline`` and ``candidate`` are (T, k): 1 where trial k at a temperature is right, NaN where no reply came. The
    statistic is the sum over temperatures of the share right in the candidate less that in the baseline. Whole trials
    change sides, with their answers at every temperature: where ``paired``, the two of one number with each other.
    """
    trials = baseline.shape[1]
    both = np.concatenate([baseline, candidate], axis=1)
    right, has_reply = np.nan_to_num(both), (~np.isnan(both)).astype(float)
    sides = _swaps(trials) if paired else _mixed(trials)  # (permutations, 2 k): whether a trial is the candidate's
    with np.errstate(invalid="ignore", divide="ignore"):
        after = (sides @ right.T) / (sides @ has_reply.T)
        before = ((1 - sides) @ right.T) / ((1 - sides) @ has_reply.T)
    values = np.nansum(after - before, axis=1)
    observed = values[0]
    return float(np.mean(values <= observed + 1e-9))


def _swaps(trials: int) -> Floats:
    """Return the sides of 2 k trials under all or many swaps within trials; the first is as observed."""
    if trials <= _MAX_EXHAUSTIVE:
        swapped = np.array(list(itertools.product((0, 1), repeat=trials)), dtype=float)
    else:
        swapped = np.random.default_rng(0).integers(2, size=(PERMUTATIONS, trials)).astype(float)
        swapped[0] = 0
    return np.concatenate([swapped, 1 - swapped], axis=1)


def _mixed(trials: int) -> Floats:
    """Return the sides of 2 k trials under random permutations; the first is as observed."""
    sides = np.zeros((PERMUTATIONS, 2 * trials))
    sides[:, trials:] = 1
    sides[1:] = np.random.default_rng(0).permuted(sides[1:], axis=1)
    return sides


def holm(p_values: Sequence[float]) -> Floats:
    """Return (m,) ``p_values`` with Holm's correction for their number m: the probability of rejecting any true
    hypothesis at level α is at most α.

    NaN stay NaN, and are not counted.

    References
    ----------
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=float)
    ascending = np.argsort(values)[: np.count_nonzero(~np.isnan(values))]  # NaN come last
    factors = np.arange(len(ascending), 0, -1)
    corrected = np.full(len(values), np.nan)
    corrected[ascending] = np.minimum(np.maximum.accumulate(values[ascending] * factors), 1)
    return corrected


def compact_letter_display(members: Sequence[int], distinguished: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the largest groups of ``members`` without a ``distinguished`` pair, in the order of their first ones.

    A member may stand in several groups: a may be like b, and b like c, and yet a not like c.

    References
    ----------
    Piepho, "An algorithm for a letter-based representation of all-pairwise comparisons", Journal of Computational and
    Graphical Statistics 13 (2004).

    Examples
    --------
    >>> compact_letter_display([0, 1, 2], [(0, 2)])
    [[0, 1], [1, 2]]
    """
    groups = [frozenset(members)]
    for first, second in distinguished:
        split: list[frozenset[int]] = []
        for group in groups:
            split += [group - {first}, group - {second}] if {first, second} <= group else [group]
        groups = [each for each in dict.fromkeys(split) if not any(each < other for other in split)]
    place = {member: rank for rank, member in enumerate(members)}
    return sorted(
        (sorted(group, key=place.__getitem__) for group in groups), key=lambda group: [*map(place.get, group)]
    )
