"""Confidence intervals over independent questions, or groups of questions that depend on one another."""

import math
import warnings
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.runtime.parallel import generators, run_parts

Floats = NDArray[np.float64]
Limits = tuple[float, float]
"""Lowest and highest possible value of a metric for one question."""
SHARE: Limits = (0.0, 1.0)
UNKNOWN: Limits = (-math.inf, math.inf)
ROUNDING = 1e-9
"""Maximum difference between equal values; it covers rounding (docs/methods.md, §5)."""
NORMAL_95 = 1.959963984540054
"""Number of standard deviations around the mean that hold 95 % of a normal distribution."""
MIN_UNITS = 30
"""Minimum number of independent questions, or groups of them, of a trusted interval."""
RESAMPLES = 2000
_PART = 2**23  # questions drawn in one part of the work, which takes a tenth of a second or more


def check_level(level: float) -> None:
    """Raise ValueError for a confidence level of an interval that is not in (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"level must be above 0 and below 1, not {level}")


def mean_bounds(
    values: Floats, limits: Limits = UNKNOWN, groups: ArrayLike | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Return low and high of :func:`~robust_eval.stats.mean_interval` of ``values`` (n,) without NaN, cut to
    ``limits``, the lowest and the highest possible value of a question; the interval of values that are all alike is
    :func:`degenerate_interval`.

    ``groups`` and ``level`` are those of that function. NaN without any value, and without limits where all are alike;
    ValueError where all are alike and outside the limits.

    >>> [round(bound, 3) for bound in mean_bounds(np.zeros(29), SHARE)]
    [0.0, 0.119]
    >>> [round(bound, 3) for bound in mean_bounds(np.array([0.2, 0.4, 0.5, 0.9]), SHARE)]
    [0.032, 0.968]
    """
    if not len(values):
        return math.nan, math.nan
    mean = float(np.mean(values))
    number, error = units_and_error(values, groups)
    if number == 1 or np.ptp(values) <= ROUNDING or (error <= ROUNDING and not _binary(values, limits)):
        return degenerate_interval(mean, number, limits, level)
    quantile = student_quantile(level, number - 1)
    if _binary(values, limits):
        return share_bounds(mean, len(values), 0.0 if groups is None else error, quantile)
    return max(mean - quantile * error, limits[0]), min(mean + quantile * error, limits[1])


def share_bounds(share: float, n: float, error: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's score interval of a ``share`` of ``n`` questions, from −``quantile`` to ``quantile``.

    The effective number of questions follows from the standard ``error`` of the share: at most n, and n for an error of
    0.

    References
    ----------
    Wilson, JASA 22 (1927). Korn & Graubard, Survey Methodology 24 (1998): the effective number of questions.

    Examples
    --------
    >>> [round(bound, 3) for bound in share_bounds(0.4, 50, 0.0, NORMAL_95)]
    [0.276, 0.538]
    """
    number = n if error <= 0 else min(n, share * (1 - share) / error**2)
    squared = quantile**2
    middle = (share * number + squared / 2) / (number + squared)
    half = quantile * math.sqrt(share * (1 - share) * number + squared / 4) / (number + squared)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def paired_share_bounds(
    differences: Floats, groups: ArrayLike | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Return low and high of :func:`~robust_eval.stats.paired_share_interval` of ``differences``, (n,) of −1, 0 and 1:
    right in the second alone, alike in both, right in the first alone.

    Tango's interval alone is passed by a rare event in up to 5.2 % of cases for 2.5 %. With ``groups`` Student's
    quantile takes the place of the normal one; where all differences are alike, each group counts as one question.

    >>> [round(bound, 3) for bound in paired_share_bounds(np.repeat([1.0, -1.0, 0.0], [12, 2, 36]))]
    [0.06, 0.345]
    """
    n, mean = len(differences), float(np.mean(differences))
    quantile, effective = NormalDist().inv_cdf((1 + level) / 2), float(n)
    if groups is not None:
        number, error = units_and_error(differences, groups)
        if number == 1:
            return degenerate_interval(mean, 1, (-1.0, 1.0), level)
        quantile = student_quantile(level, number - 1)
        if np.ptp(differences) == 0:
            effective = float(number)
        elif error > 0:
            effective = min(effective, float(np.var(differences)) / error**2)
    gained, lost = (effective * float(np.mean(differences == sign)) for sign in (1, -1))
    high = _upper_bound(gained, lost, effective, quantile, level)
    return -_upper_bound(lost, gained, effective, quantile, level), high


def _upper_bound(gained: float, lost: float, n: float, quantile: float, level: float) -> float:
    """Return the upper bound of Tango's interval of the share gained minus the share lost, of n questions."""
    if gained >= n:
        return 1.0

    def excess(difference: float) -> float:
        """Return Tango's score statistic of a true difference plus its quantile, times its standard deviation."""
        linear = (2 * n - gained + lost) * difference - gained - lost
        root = math.sqrt(max(linear**2 + 8 * n * lost * difference * (1 - difference), 0.0))
        worse = (root - linear) / (4 * n)  # the most likely share of lost questions
        better = worse + difference
        variance = max(n * (better + worse - difference**2), 1e-12)
        third = n * (better - worse - 3 * difference * (better + worse) + 2 * difference**3)
        skewed = min(0.0, third * (quantile**2 - 1) / (6 * variance))
        return gained - lost - n * difference + quantile * math.sqrt(variance) - skewed

    from scipy import optimize, special  # they take half a second, which most runs need not spend

    start = (gained - lost) / n + 1e-9  # where no question differs the variance is 0 at the mean itself
    high = float(optimize.brentq(excess, start, 1.0, xtol=1e-12))
    if lost and not gained:
        high = max(high, -float(special.betaincinv(lost, n - lost + 1, (1 - level) / 2)))
    return high


def bounded_mean_interval(
    values: Floats, limits: Limits, groups: ArrayLike | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Return an interval of the mean that allows for values within the ``limits`` beyond those of the sample.

    Each bound is a quantile of the mean under random weights (Dirichlet, all parameters 1) of the units and of one unit
    more at the limit: for questions that are all 0 or 1 the interval of Clopper and Pearson, for questions that are all
    alike :func:`degenerate_interval`. Groups are units; the one more is as large as the largest. Student's interval,
    and the bootstrap's, are too narrow where few units differ: they ignore values that the sample lacks.

    The quantile is that of a sum of exponential variables, by the saddlepoint approximation of its distribution
    function: within 0.001 of the exact bound of five questions, 0.0003 of twenty.

    References
    ----------
    Gaffke, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable",
    Mathematical Methods of Statistics 14 (2005). Learned-Miller & Thomas, "A new confidence interval for the mean of a
    bounded random variable" (2019). Lugannani & Rice, Advances in Applied Probability 12 (1980).

    Examples
    --------
    >>> [round(bound, 3) for bound in bounded_mean_interval(np.repeat([0.0, 1.0], [2, 18]), SHARE)]
    [0.683, 0.988]
    """
    if not len(values):
        return math.nan, math.nan
    sums, sizes = _units(values, groups)
    lowest, highest = limits
    tail = (1 - level) / 2
    low = _weighted_quantile(sums - lowest * sizes, sizes, tail)
    high = _weighted_quantile(highest * sizes - sums, sizes, tail)
    return lowest + low, highest - high


def _weighted_quantile(sums: Floats, sizes: Floats, tail: float) -> float:
    """Return the quantile of the mean of non-negative values, with random weights of the units and of one more at 0."""
    from scipy.optimize import brentq  # it takes half a second, which most runs need not spend

    mean = float(sums.sum() / sizes.sum())
    if mean <= ROUNDING:
        return 0.0
    if np.ptp(sums / sizes) <= ROUNDING and np.ptp(sizes) == 0:
        return float(mean * tail ** (1 / len(sums)))
    values, weight = np.append(sums, 0.0), np.append(sizes, sizes.max())

    def excess(candidate: float) -> float:
        return _share_below_zero(values - candidate * weight) - tail

    return float(brentq(excess, mean * 1e-9, mean, xtol=1e-9))


def _share_below_zero(factors: Floats) -> float:
    """Return the probability that a sum of factors times independent exponential variables lies below 0."""
    from scipy.optimize import brentq

    largest, smallest = float(factors.max()), float(factors.min())
    if largest <= 0 or smallest >= 0:
        return float(largest <= 0)

    def slope(tilt: float) -> float:
        return float((factors / (1 - tilt * factors)).sum())

    inside = 1 - 1e-12
    tilt = float(brentq(slope, inside / smallest, inside / largest, xtol=1e-14))
    norm = math.sqrt(float((factors**2).sum()))
    if abs(tilt) * norm < 1e-4:  # the formula below is 1/0 − 1/0 where the saddlepoint is 0
        return 0.5 + float((factors**3).sum()) / (3 * math.sqrt(2 * math.pi) * norm**3)
    tilted = factors / (1 - tilt * factors)
    root = math.copysign(math.sqrt(2 * max(float(np.log1p(-tilt * factors).sum()), 0.0)), tilt)
    normal = NormalDist()
    return normal.cdf(root) + normal.pdf(root) * (1 / root - 1 / (tilt * math.sqrt(float((tilted**2).sum()))))


def units_and_error(values: Floats, groups: ArrayLike | None = None) -> tuple[int, float]:
    """Return the number of independent units, and the standard error of the mean over them; NaN of a single unit.

    >>> units_and_error(np.array([0.0, 0.0, 1.0, 1.0]), ["a", "a", "b", "b"])
    (2, 0.5)
    """
    sums, sizes = _units(values, groups)
    number = len(sums)
    if number == 1:
        return 1, math.nan
    residuals = sums - sums.sum() / sizes.sum() * sizes
    return number, math.sqrt(number / (number - 1) * float(residuals @ residuals)) / len(values)


def student_quantile(level: float, freedom: int) -> float:
    """Return the upper quantile of Student's distribution for a two-sided interval."""
    from scipy.special import stdtrit  # it takes a tenth of a second, which most commands need not spend

    return float(stdtrit(freedom, (1 + level) / 2))


def _units(values: Floats, groups: ArrayLike | None) -> tuple[Floats, Floats]:
    """Return the sums and the sizes of the independent units: questions, or groups of them."""
    if groups is None:
        return values, np.ones(len(values))
    group = np.unique(np.asarray(groups), return_inverse=True)[1]
    sums: Floats = np.bincount(group, values).astype(float)
    return sums, np.bincount(group).astype(float)


def _binary(values: Floats, limits: Limits) -> bool:
    return limits == SHARE and bool(np.all((values == 0) | (values == 1)))


def degenerate_interval(value: float, number: int, limits: Limits, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a mean over ``number`` independent questions, or groups, of one and the same value.

    If a share p of all questions of this kind differs from the value, ``number`` of them are alike with probability
    (1 − p)^number. That is less than half of 1 − level where p is above the bound of Clopper and Pearson,
    p_max = 1 − ((1 − level) / 2)^(1 / number). A question that differs lies within the limits, so the mean lies between
    value − p_max · (value − lowest) and value + p_max · (highest − value). Of 0 and 1 this is their interval itself;
    of a value between the limits each bound fails in at most (1 − level) / 2 of cases, whatever the others are.

    Returns
    -------
    low, high; NaN where a limit is infinite, or where no other value is possible.

    References
    ----------
    Clopper & Pearson, Biometrika 26 (1934); with limits other than 0 and 1: the argument above, by Bernoulli's law for
    "differs from the value".

    Examples
    --------
    >>> [round(bound, 3) for bound in degenerate_interval(0.65, 30, SHARE)]
    [0.575, 0.69]
    """
    lowest, highest = limits
    if not lowest - ROUNDING <= value <= highest + ROUNDING:
        raise ValueError(f"value: {value:g} lies outside its limits, {lowest:g} to {highest:g}")
    if math.isinf(lowest) or math.isinf(highest) or highest - lowest <= ROUNDING:
        return math.nan, math.nan
    at = min(max(value, lowest), highest)
    same = ((1 - level) / 2) ** (1 / number)
    return lowest + (at - lowest) * same, at + (highest - at) * (1 - same)


def drop_degenerate(low: float, high: float) -> tuple[float, float]:
    """Return the bounds, or NaN for a zero-width bootstrap interval.

    >>> drop_degenerate(0.25, 0.5), drop_degenerate(1.0, 1.0)
    ((0.25, 0.5), (nan, nan))
    """
    return (low, high) if high - low > ROUNDING else (math.nan, math.nan)


def wilson(part: float, whole: float) -> tuple[float, float]:
    """Return Wilson's interval of a share (1927); counts may be fractions, such as sums of weights. NaN of nothing.

    >>> [round(bound, 3) for bound in wilson(483, 500)]
    [0.946, 0.979]
    """
    return share_bounds(part / whole, whole, 0.0, NORMAL_95) if whole else (math.nan, math.nan)


def independent(n: int, groups: ArrayLike | None) -> int:
    """Return the number of independent units among n questions: the number of their groups, if they have any."""
    return n if groups is None else len(np.unique(np.asarray(groups)))


def bootstrap(
    statistic: Callable[..., Any],
    *arrays: ArrayLike,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Any, Any]:
    """Return the percentile bootstrap interval of ``statistic(*arrays)``; the first axis of every array is resampled
    together.

    Parameters
    ----------
    statistic
        Called with the resampled arrays of each resample. It may return a scalar or an array.
    arrays
        One or more arrays whose first axis (length n) runs over the same questions.
    groups
        Labels (n,). Where given, whole groups are resampled: questions about one paragraph are not independent.
    level
        Nominal coverage, in (0, 1).
    seed
        Of the resampling; the same seed gives the same draws.
    resamples
        Number of resamples.

    Returns
    -------
    low, high
        Floats, or arrays of the statistic's shape. Undefined resamples (NaN) are left out; NaN where all are.
        ValueError for arrays of different lengths, and a level outside (0, 1).

    References
    ----------
    Efron & Tibshirani, An Introduction to the Bootstrap (1993), §13.3; with groups §8.3 (resampling of units).

    Examples
    --------
    >>> low, high = bootstrap(np.mean, np.arange(100.0))
    >>> bool(low < 49.5 < high)
    True
    """
    check_level(level)
    values = bootstrap_draws(statistic, *arrays, groups=groups, seed=seed, resamples=resamples)
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"), warnings.catch_warnings(action="ignore"):  # of draws that are all NaN
        low, high = np.nanquantile(values, [tail, 1 - tail], axis=0)
    return (float(low), float(high)) if values.ndim == 1 else (low, high)


def bootstrap_draws(
    statistic: Callable[..., Any],
    *arrays: ArrayLike,
    groups: ArrayLike | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Floats:
    """Return ``statistic`` of each bootstrap resample, for intervals and shares of draws; see :func:`bootstrap`.

    Returns
    -------
    (resamples, …): undefined draws are NaN, and all are where there is no question (n = 0).

    Examples
    --------
    >>> bootstrap_draws(np.mean, np.ones(5), resamples=3).tolist()
    [1.0, 1.0, 1.0]
    """
    data = [np.asarray(array) for array in arrays]
    if not data or any(array.ndim == 0 for array in data):
        raise ValueError("arrays: at least one is needed, and each must have a first axis to resample")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, not {resamples}")
    n = len(data[0])
    if any(len(array) != n for array in data):
        raise ValueError(f"arrays: all need the same first axis, not {[len(array) for array in data]}")
    if groups is not None and len(np.asarray(groups)) != n:
        raise ValueError(f"groups: {len(np.asarray(groups))} labels for {n} questions")
    if n == 0:
        return np.full(resamples, np.nan)

    number = min(resamples, -(-resamples * n // _PART))
    counts = [len(part) for part in np.array_split(range(resamples), number)]
    members = None if groups is None else group_members(groups)
    tasks = list(zip(counts, generators(seed, number), strict=True))
    return np.concatenate(run_parts("resampling", _draws, (statistic, data, members), tasks))


def _draws(
    resampled: tuple[Callable[..., Any], list[NDArray[Any]], list[NDArray[np.intp]] | None],
    part: tuple[int, np.random.Generator],
) -> Floats:
    """Return the statistic of each bootstrap resample of a task from the rows of each group, if there are groups."""
    statistic, data, members = resampled
    resamples, generator = part
    n = len(data[0])
    values = []
    for _ in range(resamples):
        chosen = generator.integers(n, size=n) if members is None else draw_groups(members, generator)
        values.append(statistic(*(array[chosen] for array in data)))
    return np.asarray(values, dtype=float)


def group_members(groups: ArrayLike) -> list[NDArray[np.intp]]:
    """Return the rows of the members of each group, in the order of the labels.

    >>> [rows.tolist() for rows in group_members(["b", "a", "b"])]
    [[1], [0, 2]]
    """
    group = np.unique(np.asarray(groups), return_inverse=True)[1]
    return np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])


def draw_groups(members: Sequence[NDArray[np.intp]], generator: np.random.Generator) -> NDArray[np.intp]:
    """Return the rows of as many groups, drawn with replacement: a bootstrap resample."""
    return np.concatenate([members[number] for number in generator.integers(len(members), size=len(members))])


def defined_mean(values: Floats) -> float:
    """Return the mean of the defined values; NaN without any."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else math.nan
