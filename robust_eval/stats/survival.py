"""Kaplan-Meier curves of facts that break, with intervals over questions (docs/figures.md)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robust_eval.stats.estimate import UNDEFINED, Estimate
from robust_eval.stats.interval import (
    ROUNDING,
    SHARE,
    degenerate_interval,
    independent,
    share_interval,
    student_quantile,
)

Floats = NDArray[np.float64]


def holding(breaking: Floats, accuracy: Floats, levels: Floats) -> Floats:
    """Return (n, T) whether each fact holds beyond a level: 1, 0, or NaN where that is unknown.

    Parameters
    ----------
    breaking
        (n,) the level at which each fact breaks; inf where it breaks at none, NaN where a level without any reply comes
        first: the fact is known to hold below that level.
    accuracy
        (n, T), NaN without a reply.
    levels
        (T,) ascending.
    """
    unknown = np.logical_or.accumulate(np.isnan(accuracy), axis=1)
    censored = np.where(unknown, np.nan, 1.0)
    return np.where(np.isnan(breaking)[:, None], censored, breaking[:, None] > levels)


def kaplan_meier(holds: Floats, groups: Sequence[str] | None = None) -> list[Estimate]:
    """Return the share of facts that hold beyond each level.

    Parameters
    ----------
    holds
        (n, T) 1 as long as a fact holds, 0 from its break on, NaN from the level on of which nothing is known. Each
        fact counts at the levels of which something is known.
    groups
        Labels (n,) of questions that depend on one another.

    Returns
    -------
    (T,) with 95 % intervals: Wilson's, with the effective number of facts by Greenwood's variance, or its sum over
    groups. Without unknown levels they are those of :func:`~robust_eval.stats.interval.mean_interval`.

    References
    ----------
    Kaplan & Meier, JASA 53 (1958). Greenwood (1926). Williams, Biometrics 51 (1995): the variance over groups.

    Examples
    --------
    >>> nan = math.nan
    >>> found = kaplan_meier(np.array([[1, 1], [1, nan], [1, 0], [0, 0.0]]))
    >>> [each.value for each in found]
    [0.75, 0.375]
    """
    known = ~np.isnan(holds)
    entered = known[:, :1].any(axis=1)
    holds, known = holds[entered], known[entered]
    n, labels = len(holds), None if groups is None else np.asarray(groups)[entered]
    if n == 0:
        return [UNDEFINED] * holds.shape[1]
    unit = np.arange(n) if labels is None else np.unique(labels, return_inverse=True)[1]
    number = int(unit.max()) + 1
    factor = 1.0 if labels is None or number == 1 else number / (number - 1)
    share, influence, found = 1.0, np.zeros(n), []
    for column in range(holds.shape[1]):
        before = np.ones(n) if column == 0 else holds[:, column - 1]
        risk = known[:, column] & (before == 1)
        broke = risk & (holds[:, column] == 0)
        if risk.any():
            hazard = broke.sum() / risk.sum()
            # where nothing is unknown yet the product is the mean, but for its last digit
            share = float(holds[:, column].mean()) if known[:, : column + 1].all() else share * (1 - hazard)
            if hazard < 1:
                influence += (broke - risk * hazard) / (risk.sum() * (1 - hazard))
        elif share > 0:  # none is left of which more is known
            share = math.nan
        if math.isnan(share):
            found.append(UNDEFINED)
            continue
        units = independent(int(known[:, column].sum()), None if labels is None else labels[known[:, column]])
        if number == 1 or min(share, 1 - share) <= ROUNDING:
            found.append(Estimate(float(share), *degenerate_interval(float(share), units, SHARE)))
            continue
        error = share * math.sqrt(factor * float((np.bincount(unit, influence) ** 2).sum()))
        found.append(
            Estimate(float(share), *share_interval(float(share), n, error, student_quantile(0.95, number - 1)))
        )
    return found
