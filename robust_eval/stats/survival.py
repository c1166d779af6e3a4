"""Kaplan-Meier curves of breaking facts, with intervals over questions (docs/figures.md)."""

import math
from collections.abc import Sequence

import numpy as np

from robust_eval.stats.estimate import UNDEFINED, Estimate
from robust_eval.stats.interval import (
    ROUNDING,
    SHARE,
    Floats,
    degenerate_interval,
    independent,
    share_bounds,
    student_quantile,
)


def holds_beyond(breaking: Floats, accuracy: Floats, levels: Floats) -> Floats:
    """Return (n, T) survival: 1 for a fact that holds beyond a level, 0 for one that has broken, NaN for unknown.

    ``breaking`` (n,) is the level at which each fact breaks: one of ``levels`` (T,), ascending, inf where it breaks at
    none, NaN where a level without any reply comes first: the fact is known to hold below that level. ``accuracy`` is
    (n, T), NaN without a reply.
    """
    unknown = np.logical_or.accumulate(np.isnan(accuracy), axis=1)
    censored = np.where(unknown, np.nan, 1.0)
    return np.where(np.isnan(breaking)[:, None], censored, breaking[:, None] > levels)


def kaplan_meier(holds: Floats, groups: Sequence[str] | None = None) -> list[Estimate]:
    """Return the survival curve: the share of facts unbroken beyond each level.

    ``holds`` (n, T) is 1 as long as a fact holds, 0 from its break on, NaN from the level on at which it is censored;
    each fact counts at the levels before that. ``groups`` (n,) are labels of questions that depend on one another.

    Returns
    -------
    (T,) with 95 % intervals: Wilson's, with the effective number of facts by Greenwood's variance, or its sum over
    groups. Without unknown levels they are those of :func:`~robust_eval.stats.interval.mean_bounds`.

    References
    ----------
    Kaplan & Meier, JASA 53 (1958). Greenwood (1926). Williams, Biometrics 51 (1995): the variance over groups.

    Examples
    --------
    >>> nan = math.nan
    >>> estimates = kaplan_meier(np.array([[1, 1], [1, nan], [1, 0], [0, 0.0]]))
    >>> [each.value for each in estimates]
    [0.75, 0.375]
    """
    is_known = ~np.isnan(holds)
    has_entered = is_known[:, :1].any(axis=1)
    holds, is_known = holds[has_entered], is_known[has_entered]
    n, labels = len(holds), None if groups is None else np.asarray(groups)[has_entered]
    if n == 0:
        return [UNDEFINED] * holds.shape[1]
    unit = np.arange(n) if labels is None else np.unique(labels, return_inverse=True)[1]
    number = int(unit.max()) + 1
    factor = 1.0 if labels is None or number == 1 else number / (number - 1)
    share, influence, estimates = 1.0, np.zeros(n), []
    for column in range(holds.shape[1]):
        before = np.ones(n) if column == 0 else holds[:, column - 1]
        is_at_risk = is_known[:, column] & (before == 1)
        is_broken = is_at_risk & (holds[:, column] == 0)
        if is_at_risk.any():
            hazard = is_broken.sum() / is_at_risk.sum()
            # where nothing is unknown yet the product is the mean, but for its last digit
            share = float(holds[:, column].mean()) if is_known[:, : column + 1].all() else share * (1 - hazard)
            if hazard < 1:
                influence += (is_broken - is_at_risk * hazard) / (is_at_risk.sum() * (1 - hazard))
        elif share > 0:  # none is left of which more is known
            share = math.nan
        if math.isnan(share):
            estimates.append(UNDEFINED)
            continue
        units = independent(int(is_known[:, column].sum()), None if labels is None else labels[is_known[:, column]])
        if number == 1 or min(share, 1 - share) <= ROUNDING:
            estimates.append(Estimate(float(share), *degenerate_interval(float(share), units, SHARE)))
            continue
        error = share * math.sqrt(factor * float((np.bincount(unit, influence) ** 2).sum()))
        estimates.append(
            Estimate(float(share), *share_bounds(float(share), n, error, student_quantile(0.95, number - 1)))
        )
    return estimates
