"""Which of several runs differ by more than chance: tests of paired differences, corrected for their number."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.metric.interval import ROUNDING

LEVEL = 0.05
"""The p value, corrected for the number of pairs, below which two runs are told apart."""


def paired_p_value(differences: ArrayLike, groups: ArrayLike | None = None) -> float:
    """Return the two-sided p value of the mean of paired differences: a t test, over groups where there are some.

    The variance is that of the mean over groups, with as many degrees of freedom as there are groups less one. Where
    all units differ alike there is no variance: then the p value is that of the sign test, and 1 where none differs.

    Parameters
    ----------
    differences
        (n,) of each question. NaN are left out.
    groups
        Labels (n,) of questions that depend on one another.

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
    labels = np.arange(len(values)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    values, (_, group) = values[defined], np.unique(labels[defined], return_inverse=True)
    if not len(values):
        return math.nan
    mean, number = float(values.mean()), int(group.max()) + 1
    sums = np.bincount(group, values - mean)
    if number == 1 or np.abs(values - mean).max() <= ROUNDING:
        return 1.0 if abs(mean) <= ROUNDING else min(1.0, 2.0 * 0.5**number)
    error = math.sqrt(number / (number - 1) * float(sums @ sums)) / len(values)
    if error == 0:
        return 1.0 if abs(mean) <= ROUNDING else 0.0
    from scipy import stats  # it takes half a second, which most runs need not spend

    return float(2 * stats.t.sf(abs(mean) / error, number - 1))


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Return p values corrected for their number, so that one of the true hypotheses is rejected in at most a share α
    of cases where all below α are.

    NaN stay NaN and count for nothing.

    References
    ----------
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    found = np.asarray(p_values, dtype=float)
    corrected = np.full(len(found), np.nan)
    order = [place for place in np.argsort(found, kind="stable") if not math.isnan(found[place])]
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * float(found[place])))
        corrected[place] = highest
    return corrected


def alike_groups(members: Sequence[int], apart: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the largest groups of ``members`` of which no two are told ``apart``, in the order of their first ones.

    A member may stand in several groups: a may be like b, and b like c, and yet a not like c.

    References
    ----------
    Piepho, "An algorithm for a letter-based representation of all-pairwise comparisons", Journal of Computational and
    Graphical Statistics 13 (2004).

    Examples
    --------
    >>> alike_groups([0, 1, 2], [(0, 2)])
    [[0, 1], [1, 2]]
    """
    groups = [frozenset(members)]
    for first, second in apart:
        parted: list[frozenset[int]] = []
        for group in groups:
            parted += [group - {first}, group - {second}] if {first, second} <= group else [group]
        groups = [each for each in dict.fromkeys(parted) if not any(each < other for other in parted)]
    place = {member: rank for rank, member in enumerate(members)}
    return sorted(
        (sorted(group, key=place.__getitem__) for group in groups), key=lambda group: [*map(place.get, group)]
    )
