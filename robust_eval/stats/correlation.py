"""Correlation coefficients between metrics of questions."""

import math

import numpy as np

from robust_eval.stats.interval import Floats


def pearson(x: Floats, y: Floats) -> float:
    """Return Pearson's correlation r; NaN if one side does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = math.sqrt((x * x).sum() * (y * y).sum())
    return float(np.clip((x * y).sum() / norm, -1, 1)) if norm > 1e-12 else math.nan


def spearman(x: Floats, y: Floats) -> float:
    """Return Spearman's rank correlation ρ, with ties at their mean rank; NaN if one side does not vary.

    >>> round(spearman(np.array([1.0, 2.0, 2.0, np.inf]), np.array([4.0, 3.0, 3.0, 0.0])), 4)
    -1.0
    """
    from scipy import stats  # it takes half a second, which most runs need not spend

    return pearson(stats.rankdata(x), stats.rankdata(y))


def kendall(x: Floats, y: Floats) -> float:
    """Return Kendall's rank correlation τ_b of values and a few levels; NaN if one side does not vary.

    τ_b = (C − D) / √(P_x P_y), with C and D pairs in the same and in the opposite order, P_x and P_y pairs that differ.
    """
    same = opposite = 0
    for level in np.unique(y):
        values, below = x[y == level], np.sort(x[y < level])
        same += int(np.searchsorted(below, values, "left").sum())
        opposite += int((len(below) - np.searchsorted(below, values, "right")).sum())
    differ = _pairs_that_differ(x) * _pairs_that_differ(y)
    return (same - opposite) / math.sqrt(differ) if differ else math.nan


def _pairs_that_differ(values: Floats) -> int:
    counts = np.unique(values, return_counts=True)[1]
    return (len(values) ** 2 - int((counts**2).sum())) // 2
