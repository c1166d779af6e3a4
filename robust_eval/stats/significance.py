"""Which of several runs differ by more than chance: tests of paired differences, corrected for their number."""

import math
import sys
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.interval import ROUNDING, units_and_error

LEVEL = 0.05
"""The p value, corrected for the number of pairs, below which two runs are told apart."""


def paired_p_value(differences: ArrayLike, groups: ArrayLike | None = None) -> float:
    """Return the two-sided p value of the mean of paired differences: a t test, over groups where there are some.

    The variance is that of the mean over groups, with as many degrees of freedom as there are groups less one. The p
    value is at least 2 · ½^units, that of the sign test of as many units that all differ in one direction: where units
    differ alike, their variance says nothing. It is 1 where none differs, and never 0.

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
    values, labels = values[defined], None if groups is None else np.asarray(groups)[defined]
    if not len(values):
        return math.nan
    mean = abs(float(values.mean()))
    if mean <= ROUNDING:
        return 1.0
    number, error = units_and_error(values, labels)
    least = max(min(1.0, 2.0 * 0.5**number), sys.float_info.min)
    if number == 1 or error == 0:
        return least
    from scipy.special import stdtr  # it takes a tenth of a second, which most commands need not spend

    return max(2 * float(stdtr(number - 1, -mean / error)), least)


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
