"""Position bias: the effect of the place of the right choice. Pure functions on arrays (docs/multiqa.md)."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.interval import ROUNDING, Floats

PERMUTATIONS = 1999
"""Permutations of the places of groups; the p value is a multiple of 1/2000."""


class CochranQ(NamedTuple):
    """Cochran's Q over positions: ``questions`` whose right choice stood at each, and ``freedom`` degrees of χ²."""

    questions: int
    statistic: float
    freedom: int
    p_value: float


def cochran_q(right: ArrayLike, groups: ArrayLike | None = None, seed: int = 0) -> CochranQ:
    """Test for position bias: equal accuracy of questions at each place of their right choice.

    Q = (k − 1) (k Σ_p C_p² − N²) / (k N − Σ_j R_j²), with C_p right answers at place p, R_j of question j, N in all.
    The χ² distribution is an approximation that wants some ten questions that are right at some places and not at all.
    Of questions in groups it rejects too often where places matter in each group, but not on the whole: there the p
    value is the share of permutations of the places, one for each group, with a Q at least as large.

    ``right`` (n, places) is 1 where right, 0 where wrong. NaN fills up the rows of questions with fewer choices than
    others; questions with the same number of choices are tested together, and their Q and degrees of freedom added. A
    row that lacks a place before its last is left out. ``groups`` (n,) are labels of questions that depend on one
    another, ``seed`` is that of the permutations.

    Returns
    -------
    CochranQ; statistic and p_value are NaN where no question is right at some places and wrong at others.

    References
    ----------
    Cochran, The Comparison of Percentages in Matched Samples, Biometrika 37 (1950).

    Examples
    --------
    >>> cochran_q([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1]])[:3]
    (4, 4.5, 2)
    """
    values = np.asarray(right, dtype=float)
    choices, whole = _choices(values)
    from scipy import stats  # both take a second, which most runs need not spend
    from statsmodels.stats.contingency_tables import cochrans_q

    statistic, freedom, permuted = 0.0, 0, np.zeros(PERMUTATIONS)
    generator = np.random.default_rng(seed)
    for number in np.unique(choices[whole]):
        table = values[whole & (choices == number), :number]
        total = float(table.sum())
        scale = number * total - float((table.sum(axis=1) ** 2).sum())
        if scale > 0:
            statistic += float(cochrans_q(table).statistic)
            freedom += int(number) - 1
            if groups is not None:
                labels = np.unique(np.asarray(groups)[whole & (choices == number)], return_inverse=True)[1]
                sums = np.zeros((labels.max() + 1, number))
                np.add.at(sums, labels, table)
                squares = [(generator.permuted(sums, axis=1).sum(axis=0) ** 2).sum() for _ in range(PERMUTATIONS)]
                permuted += (number - 1) * (number * np.array(squares) - total**2) / scale
    n = int(whole.sum())
    if not freedom:
        return CochranQ(n, math.nan, 0, math.nan)
    if groups is not None:
        as_large = int(np.count_nonzero(permuted >= statistic - ROUNDING))
        return CochranQ(n, float(statistic), freedom, (1 + as_large) / (1 + PERMUTATIONS))
    return CochranQ(n, float(statistic), freedom, float(stats.chi2.sf(statistic, freedom)))


def place_bias(accuracy: ArrayLike) -> Floats:
    """Return the position bias: each question's accuracy with its right choice at a place, minus that at the others.

    ``accuracy`` (n, places) is the share of right answers with the right choice at each place; NaN beyond the choices
    of a question.

    Returns
    -------
    (n, places) in [−1, 1]: the share at the place minus the mean share at the other places; NaN for a question that
    lacks a place before its last.

    Examples
    --------
    >>> place_bias([[1.0, 0.0, 0.5], [1.0, 0.5, np.nan]]).tolist()
    [[0.75, -0.75, 0.0], [0.5, -0.5, nan]]
    """
    values = np.asarray(accuracy, dtype=float)
    choices, whole = _choices(values)
    remainder = np.nansum(values, axis=1, keepdims=True) - values
    bias: Floats = np.where(whole[:, None], values - remainder / np.maximum(choices - 1, 1)[:, None], np.nan)
    return bias


def _choices(values: Floats) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return (n,) the number of choices of each question, and a mask of those that lack no place before their last."""
    is_answered = ~np.isnan(values)
    choices = is_answered.sum(axis=1)
    return choices, (choices > 1) & (is_answered == (np.arange(values.shape[1]) < choices[:, None])).all(axis=1)
