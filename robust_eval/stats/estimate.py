"""Estimates over questions: a value with its confidence interval, and its text form."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.runtime.text import number
from robust_eval.stats.interval import (
    SHARE,
    UNKNOWN,
    Floats,
    Limits,
    bootstrap,
    check_level,
    drop_degenerate,
    mean_bounds,
    paired_share_bounds,
    wilson,
)


class Estimate(NamedTuple):
    """Value with its confidence interval, of 95 % unless a function takes another level; NaN where undefined, NaN
    bounds where there is no interval.

    No interval is without width: where all questions are alike, it is exact or there is none
    (:func:`mean_estimate`).
    """

    value: float
    low: float = float("nan")
    high: float = float("nan")


def columns_of(name: str, estimate: Estimate) -> dict[str, float]:
    """Return an estimate as cells of a table: ``name``, ``name_low`` and ``name_high``."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


UNDEFINED = Estimate(float("nan"))


def mean_interval(values: ArrayLike, groups: ArrayLike | None = None, level: float = 0.95) -> Estimate:
    """Return the mean over questions as an estimate with Student's interval; if all values are 0 or 1, with Wilson's.

    Parameters
    ----------
    values
        (n,) of questions in any unit; NaN are left out.
    groups
        Labels (n,) of questions that depend on one another; without them questions are independent.
    level
        Nominal coverage, in (0, 1).

    Returns
    -------
    Estimate with ``value``, ``low`` and ``high`` in the unit of the values. NaN without any value. The bounds are NaN
    where the questions, or the groups, do not differ, and where there is only one, except that values that are all 0 or
    all 1 have the exact interval of Clopper and Pearson, with groups as units. ValueError for arrays of other shapes,
    an infinite value, and a level outside (0, 1).

    References
    ----------
    Cochran, Sampling Techniques (1977), chapter 9A: the variance of a mean over groups. Wilson, JASA 22 (1927). Korn &
    Graubard, Survey Methodology 24 (1998): the effective number of questions. Clopper & Pearson, Biometrika 26 (1934).
    docs/methods.md, §5.

    Examples
    --------
    >>> [round(number, 3) for number in mean_interval([0.2, 0.4, 0.5, 0.9])]
    [0.5, 0.032, 0.968]
    """
    (taken,), labels = _defined({"values": values}, groups, level)
    return mean_estimate(taken, labels, SHARE if np.isin(taken, (0, 1)).all() else UNKNOWN, level)


def share_interval(successes: ArrayLike, groups: ArrayLike | None = None, level: float = 0.95) -> Estimate:
    """Return the share of ``successes``, (n,) of 1 and 0, or True and False, as :func:`mean_interval` does.

    ``groups``, ``level``, NaN and the result are those of :func:`mean_interval`; ValueError for other values, too.

    >>> [round(number, 3) for number in share_interval([True] * 20 + [False] * 30)]
    [0.4, 0.273, 0.542]
    """
    (taken,), labels = _defined({"successes": successes}, groups, level, binary=True)
    return mean_estimate(taken, labels, SHARE, level)


def paired_share_interval(a: ArrayLike, b: ArrayLike, groups: ArrayLike | None = None, level: float = 0.95) -> Estimate:
    """Return the share of successes in ``a`` minus that in ``b``, of the same questions, with Tango's score interval.

    The interval is wider where the statistic is skewed (the correction of Cornish and Fisher), and where all questions
    that differ do so in one direction (the exact bound of their share).

    Parameters
    ----------
    a, b
        (n,) of 1 and 0, or True and False, of the same questions in the same order. Questions with a NaN on either side
        are left out.
    groups, level
        Those of :func:`mean_interval`; the number of questions is divided by the design effect of the groups.

    Returns
    -------
    Estimate with ``value``, ``low`` and ``high`` in [−1, 1]; NaN without a shared question. ValueError for values other
    than those above, arrays of other shapes, and a level outside (0, 1).

    References
    ----------
    Tango, Statistics in Medicine 17 (1998). Laud, Pharmaceutical Statistics 16 (2017): the correction for skewness.
    Clopper & Pearson, Biometrika 26 (1934).

    Examples
    --------
    >>> a, b = [1] * 12 + [0] * 2 + [1] * 36, [0] * 12 + [1] * 2 + [1] * 36
    >>> [round(number, 3) for number in paired_share_interval(a, b)]
    [0.2, 0.06, 0.345]
    """
    (first, second), labels = _defined({"a": a, "b": b}, groups, level, binary=True)
    if not len(first):
        return UNDEFINED
    return Estimate(float(np.mean(first - second)), *paired_share_bounds(first - second, labels, level))


def _defined(
    arrays: dict[str, ArrayLike], groups: ArrayLike | None, level: float, binary: bool = False
) -> tuple[list[Floats], NDArray[Any] | None]:
    """Check an estimate's arguments; return the arrays and the groups without the questions that have a NaN."""
    check_level(level)
    columns = [np.asarray(array, dtype=float) for array in arrays.values()]
    labels = None if groups is None else np.asarray(groups)
    n = columns[0].size
    for name, array in [*zip(arrays, columns, strict=True), ("groups", labels)]:
        if array is not None and array.shape != (n,):
            raise ValueError(f"{name} must contain a value for each of {n} questions, not {array.shape}")
    for name, column in zip(arrays, columns, strict=True):
        if np.isinf(column).any() or (binary and not np.all(np.isnan(column) | (column == 0) | (column == 1))):
            raise ValueError(f"{name} must contain {'only 0, 1 and NaN' if binary else 'finite values or NaN'}")
    defined = ~np.isnan(columns).any(axis=0)
    return [column[defined] for column in columns], labels if labels is None else labels[defined]


def with_interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """Format an estimate's value with, in brackets, its bounds and number of questions, if any.

    >>> with_interval(Estimate(0.5, 0.25, 0.75), n=12), with_interval(Estimate(0.5))
    ('0.500 (0.250 to 0.750, n = 12)', '0.500')
    """
    value, details = number(estimate.value, form), interval(estimate, form, n)
    return f"{value} ({details})" if details else value


def interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """Format the bounds and the number of questions of an estimate; empty if it has neither."""
    details = [] if math.isnan(estimate.low) else [bounds(estimate.low, estimate.high, form)]
    return ", ".join(details if n is None else [*details, f"n = {n:,}"])


def share_of(part: Floats, whole: Floats) -> Floats:
    """Return the shares part / whole of arrays of one shape; NaN for a whole of 0."""
    shares: Floats = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return shares


def bounds(low: float, high: float, form: str = ".3f") -> str:
    """Format an estimate's bounds, with more digits until they differ; three decimals for a form such as g.

    >>> bounds(0.25, 0.5), bounds(0.6496, 0.6502), bounds(0, 0)
    ('0.250 to 0.500', '0.6496 to 0.6502', '0.000 to 0.000')
    """
    form = ".3f" if form.endswith("g") else form
    start, kind = form[:-2], form[-1]
    for digits in range(int(form[-2]), 10):
        words = [number(bound, f"{start}{digits}{kind}") for bound in (low, high)]
        if low == high or words[0] != words[1]:
            break
    return " to ".join(words)


def mean_estimate(values: Floats, groups: ArrayLike | None, limits: Limits = UNKNOWN, level: float = 0.95) -> Estimate:
    """Return the estimate of a mean over questions, without undefined ones (NaN), with its interval
    (:func:`~robust_eval.stats.interval.mean_bounds`).
    """
    defined = ~np.isnan(values)
    if not defined.any():
        return UNDEFINED
    labels = None if groups is None else np.asarray(groups)[defined]
    return Estimate(float(np.mean(values[defined])), *mean_bounds(values[defined], limits, labels, level))


def estimate(
    statistic: Callable[..., Any],
    arrays: Sequence[Floats],
    groups: Sequence[str] | None,
    seed: int,
    defined: NDArray[np.bool_],
) -> Estimate:
    """Return the estimate of a statistic of per-question arrays (only the ``defined`` questions), with its bootstrap
    interval if there is one.
    """
    if not defined.any():
        return UNDEFINED
    chosen = [array[defined] for array in arrays]
    labels = None if groups is None else np.asarray(groups)[defined]
    low, high = bootstrap(statistic, *chosen, groups=labels, seed=seed)
    return Estimate(float(statistic(*chosen)), *drop_degenerate(low, high))


def median_estimate(values: Floats) -> Estimate:
    """Return the estimate of a median of the defined values, such as breaking temperatures; inf where half or more are
    unbroken.
    """
    defined = values[~np.isnan(values)]
    return Estimate(float(np.median(defined)) if len(defined) else float("nan"))


def count_defined(values: Floats) -> int:
    """Return the number of values on which an estimate rests: those that are not NaN."""
    return int(np.count_nonzero(~np.isnan(values)))


def masked(mask: NDArray[np.bool_], values: ArrayLike) -> Floats:
    """Return the values of an estimate inside the mask, as numbers; NaN elsewhere."""
    return np.where(mask, np.asarray(values, dtype=float), np.nan)


def proportion(count: int, of: int) -> Estimate:
    """Return the estimate of a share of independent items with its 95 % interval (Wilson, 1927); undefined of nothing.

    >>> [round(number, 3) for number in proportion(483, 500)]
    [0.966, 0.946, 0.979]
    """
    return Estimate(count / of, *wilson(count, of)) if of else UNDEFINED
