"""Confidence intervals by resampling questions, or groups of questions that depend on one another."""

import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.runtime.parallel import generators, in_parts

Limits = tuple[float, float]
"""The lowest and the highest value that a figure of one question can have."""
SHARE: Limits = (0.0, 1.0)
UNKNOWN: Limits = (-math.inf, math.inf)
ROUNDING = 1e-9
"""Values that lie no further apart are alike: the difference is rounding (docs/methods.md, §5)."""
RESAMPLES = 2000
_PART = 2**23  # questions drawn in one part of the work, which takes a tenth of a second or more
_BLOCK = 2**16  # elements of one block of resampled data: its arrays of 512 kB stay in the cache of a processor


def mean_interval(
    values: NDArray[np.float64],
    limits: Limits = UNKNOWN,
    groups: ArrayLike | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return an interval of the mean of ``values`` (n,) over questions: by the bootstrap, or exact where all are alike.

    Resamples of questions that are all alike are alike as well: a bootstrap interval of them has no width, whatever
    their number. So it is with groups whose means are alike, and with a single group. :func:`alike_interval` is used
    there; it needs to know the ``limits`` of a value.

    Examples
    --------
    >>> low, high = mean_interval(np.zeros(29), SHARE)
    >>> low, round(high, 3)
    (0.0, 0.119)
    """
    labels = None if groups is None else np.asarray(groups)
    means = values if labels is None else group_means(values, labels)
    if len(means) == 0 or np.ptp(means) > ROUNDING:
        tail = (1 - level) / 2
        low, high = np.quantile(mean_draws(values, labels, seed), [tail, 1 - tail]) if len(values) else (np.nan, np.nan)
        return float(low), float(high)
    return alike_interval(float(np.mean(values)), len(means), limits, level)


def alike_interval(value: float, number: int, limits: Limits, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a mean of which ``number`` independent questions, or groups of them, all have the same value.

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
    >>> [round(bound, 3) for bound in alike_interval(0.65, 30, SHARE)]
    [0.575, 0.69]
    """
    lowest, highest = limits
    if not lowest - ROUNDING <= value <= highest + ROUNDING:
        raise ValueError(f"value: {value:g} lies outside of its limits, {lowest:g} to {highest:g}")
    if math.isinf(lowest) or math.isinf(highest) or highest - lowest <= ROUNDING:
        return math.nan, math.nan
    at = min(max(value, lowest), highest)
    alike, other = _alike_and_other(number, level)
    return lowest + (at - lowest) * alike, at + (highest - at) * other


def with_width(low: float, high: float) -> tuple[float, float]:
    """Return the bounds of an interval; NaN where it has no width, which says that its resamples know no uncertainty.

    >>> with_width(0.25, 0.5), with_width(1.0, 1.0)
    ((0.25, 0.5), (nan, nan))
    """
    return (low, high) if high - low > ROUNDING else (math.nan, math.nan)


def wilson(part: float, whole: float, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share (Wilson, 1927); counts may be fractions, as weighted ones are. NaN of nothing.

    >>> [round(bound, 3) for bound in wilson(483, 500)]
    [0.946, 0.979]
    """
    if not whole:
        return math.nan, math.nan
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    middle = (part + z2 / 2) / (whole + z2)
    half = math.sqrt(z2 * (part * (whole - part) / whole + z2 / 4)) / (whole + z2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def independent(n: int, groups: ArrayLike | None) -> int:
    """Return how many independent units n questions are: as many as they have groups, where they have groups."""
    return n if groups is None else len(np.unique(np.asarray(groups)))


def _alike_and_other(number: int, level: float) -> tuple[float, float]:
    """Return the least share of questions like the observed ones, and the largest share of others, by the exact
    interval (Clopper and Pearson, 1934), which has a formula where all are alike.
    """
    least = ((1 - level) / 2) ** (1 / number)
    return least, 1 - least


def group_means(values: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean of each group, in the order of their labels.

    >>> group_means(np.array([0.0, 1.0, 0.5]), np.array(["b", "b", "a"])).tolist()
    [0.5, 0.5]
    """
    group = np.unique(labels, return_inverse=True)[1]
    means: NDArray[np.float64] = np.bincount(group, values) / np.bincount(group)
    return means


def bootstrap(
    statistic: Callable[..., Any],
    *arrays: ArrayLike,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Any, Any]:
    """Percentile bootstrap interval of ``statistic(*arrays)``; the first axis of every array is resampled together.

    Parameters
    ----------
    statistic, arrays, groups, seed, resamples
        As :func:`bootstrap_draws` has them.
    level
        Nominal coverage, in (0, 1).

    Returns
    -------
    low, high
        Floats, or arrays of the statistic's shape. Undefined resamples (NaN) are left out; NaN where all are.

    References
    ----------
    Efron & Tibshirani, An Introduction to the Bootstrap (1993), §13.3; with groups §8.3 (resampling of units).

    Examples
    --------
    >>> low, high = bootstrap(np.mean, np.arange(100.0))
    >>> bool(low < 49.5 < high)
    True
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    values = bootstrap_draws(statistic, *arrays, groups=groups, seed=seed, resamples=resamples)
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        if np.isnan(values).any():
            low, high = _nan_quantile(values, [tail, 1 - tail])
        else:
            low, high = np.quantile(values, [tail, 1 - tail], axis=0)
    return (float(low), float(high)) if values.ndim == 1 else (low, high)


def bootstrap_draws(
    statistic: Callable[..., Any],
    *arrays: ArrayLike,
    groups: ArrayLike | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> NDArray[np.float64]:
    """Return ``statistic`` of each resample, for intervals and for shares of draws; resampled as :func:`bootstrap`
    does.

    Parameters
    ----------
    statistic
        Called with resampled arrays. If it takes ``axis``, it is called once for many resamples, with the resamples
        along the first axis and ``axis=1``; else once for each resample. It may return a scalar or an array.
    arrays
        One or more arrays whose first axis (length n) runs over the same questions.
    groups
        Labels (n,). Where given, whole groups are resampled: questions about one paragraph are not independent.
    seed
        Of the resampling; the same seed gives the same draws.
    resamples
        Number of resamples.

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
    group = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    resampled = _Resampled(statistic, data, group, _takes_axis(statistic))
    parts = list(zip(counts, generators(seed, number), strict=True))
    return np.concatenate(in_parts("resampling", _draws, resampled, parts))


MANY = 5000
"""Questions from which on the resampled means need not be drawn (:func:`mean_draws`)."""
_COUNTED = 1000
"""Questions up to which it is kept how often each comes in each resample: figures of the same questions share that."""
_FEW_DIFFERENT = 200
"""Different values up to which resamples are drawn by how often each comes."""
_SKEWED = 0.05
"""Skewness of a mean up to which its expansion is as good as the resamples."""


def mean_draws(
    values: NDArray[np.float64], groups: ArrayLike | None = None, seed: int = 0, resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """Return the means of (resamples,) resamples of ``values`` (n,), as :func:`bootstrap_draws` does.

    Of :data:`MANY` values or more without groups they are drawn without n numbers for each, from what the resampled
    means are distributed as. Of few different values that is a multinomial distribution of how often each comes. Where
    the mean is hardly skewed it is given by the first two terms of its Cornish-Fisher expansion, with the values' own
    variance and skewness: what that leaves out is of the order 1/n, far less than what so many resamples leave to
    chance.

    References
    ----------
    Hall, The Bootstrap and Edgeworth Expansion (1992), §2.5 and §3.3.

    Examples
    --------
    >>> draws = mean_draws(np.arange(10_000) / 10_000)
    >>> round(float(draws.mean()), 2), round(float(draws.std()), 4)
    (0.5, 0.0029)
    """
    if groups is None and 0 < len(values) <= _COUNTED:
        return np.asarray(_times_drawn(len(values), seed, resamples) @ values / len(values))
    if groups is not None or len(values) < MANY:
        return bootstrap_draws(np.mean, values, groups=groups, seed=seed, resamples=resamples)
    generator = np.random.default_rng(seed)
    different, times = np.unique(values, return_counts=True)
    if len(different) <= _FEW_DIFFERENT:
        counts = generator.multinomial(len(values), times / len(values), size=resamples)
        return np.asarray(counts @ different / len(values))
    mean, deviation = float(values.mean()), float(values.std())
    skewness = float(((values - mean) ** 3).mean()) / deviation**3 / math.sqrt(len(values)) if deviation > 0 else np.inf
    if not abs(skewness) <= _SKEWED:
        return bootstrap_draws(np.mean, values, seed=seed, resamples=resamples)
    normal = generator.standard_normal(resamples)
    draws: NDArray[np.float64] = mean + deviation / math.sqrt(len(values)) * (normal + skewness * (normal**2 - 1) / 6)
    return draws


@lru_cache(4)
def _times_drawn(n: int, seed: int, resamples: int) -> NDArray[np.float64]:
    """Return how often each of n questions comes in each resample of :func:`bootstrap_draws`, (resamples, n)."""
    drawn = np.random.default_rng(seed).integers(n, size=(resamples, n))
    numbered = drawn + n * np.arange(resamples)[:, None]
    return np.bincount(numbered.ravel(), minlength=resamples * n).reshape(resamples, n).astype(float)


class _Resampled(NamedTuple):
    """A statistic of some arrays, which are resampled by whole groups if these have numbers."""

    statistic: Callable[..., Any]
    data: list[NDArray[Any]]
    group: NDArray[np.intp] | None
    vectorised: bool


def _draws(resampled: _Resampled, part: tuple[int, np.random.Generator]) -> NDArray[np.float64]:
    """Return the statistic of so many resamples."""
    statistic, data, group, vectorised = resampled
    resamples, generator = part
    if group is None:
        return _resample_questions(statistic, data, vectorised, generator, resamples)
    return _resample_groups(statistic, data, group, vectorised, generator, resamples)


def _takes_axis(statistic: Callable[..., Any]) -> bool:
    try:
        return "axis" in inspect.signature(statistic).parameters
    except ValueError:  # some compiled functions have no signature
        return False


def _nan_quantile(values: NDArray[np.float64], levels: list[float]) -> NDArray[np.float64]:
    """Return the quantiles of the columns without their NaNs; NaN for a column that has nothing else."""
    columns = values.reshape(len(values), -1)
    quantiles = np.full((len(levels), columns.shape[1]), np.nan)
    for index, column in enumerate(columns.T):
        defined = column[~np.isnan(column)]
        if len(defined):
            quantiles[:, index] = np.quantile(defined, levels)
    return quantiles.reshape(len(levels), *values.shape[1:])


def _resample_questions(
    statistic: Callable[..., Any],
    data: list[NDArray[Any]],
    vectorised: bool,
    generator: np.random.Generator,
    resamples: int,
) -> NDArray[np.float64]:
    n = len(data[0])
    block = max(1, _BLOCK // max(array.size for array in data)) if vectorised else resamples
    values: list[Any] = []
    for start in range(0, resamples, block):
        indices = generator.integers(n, size=(min(block, resamples - start), n))
        if vectorised:
            values.extend(np.asarray(statistic(*(array[indices] for array in data), axis=1), dtype=float))
        else:
            values.extend(statistic(*(array[row] for array in data)) for row in indices)
    return np.asarray(values, dtype=float)


def _resample_groups(
    statistic: Callable[..., Any],
    data: list[NDArray[Any]],
    group: NDArray[np.intp],
    vectorised: bool,
    generator: np.random.Generator,
    resamples: int,
) -> NDArray[np.float64]:
    order = np.argsort(group, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(group))[:-1])
    options = {"axis": 0} if vectorised else {}
    values = []
    for _ in range(resamples):
        chosen = np.concatenate([members[number] for number in generator.integers(len(members), size=len(members))])
        values.append(statistic(*(array[chosen] for array in data), **options))
    return np.asarray(values, dtype=float)
