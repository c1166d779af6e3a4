"""Non-inferiority verdicts: the candidate against its baseline, judged once or at any time during sampling."""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from robust_eval.stats.interval import (
    MIN_UNITS,
    ROUNDING,
    Floats,
    bounded_mean_interval,
    check_level,
    independent,
    paired_share_bounds,
    units_and_error,
)

POWER = 0.9
"""Power of the number of facts in a verdict, with the mean one margin away from −margin."""
CAP = 0.5
"""Largest share of the capital at stake in a bet: the paper's c, for which it names 1/2 and 3/4."""
_PER_UNIT = 5000  # candidate means between 0 and 1: their distance is a hundredth of the default margin
_BLOCK = 2**16  # capitals in one block of the work: its arrays of 512 kB stay in the cache of a processor

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


class MarginVerdict(NamedTuple):
    """Non-inferiority verdict: outcome, mean difference with its interval, and number of facts that would decide.

    ``needed`` is a whole number; NaN where there is no difference, inf where none suffices.
    """

    outcome: Outcome
    mean: float
    low: float
    high: float
    needed: float


def verdict(
    differences: ArrayLike, margin: float, level: float = 0.95, groups: ArrayLike | None = None
) -> MarginVerdict:
    """Return the verdict on a candidate's metric against that of the baseline, less ``margin``.

    It is a FAIL where the interval of the mean lies below −margin, a PASS where it lies above and there are
    :data:`MIN_UNITS` facts (or groups of them), and INCONCLUSIVE otherwise. For repeated checks, see
    :func:`confidence_sequence`.

    Differences of right and wrong (−1, 0, 1) have Tango's interval
    (:func:`~robust_eval.stats.paired_share_interval`), all others one that allows for a loss that no fact of
    the sample shows (:func:`~robust_eval.stats.interval.bounded_mean_interval`).

    With the number of facts needed, the verdict is decided in about 90 % of cases if the true mean is 0 or −2 · margin,
    with α = 1 − level. For right and wrong, it is ((z_{1−α/2} + z_{0.9}) sd / margin)²; otherwise, it is the n at which
    margin = 1/n + z_{1−α/2} √(sd²/n + 1/n²) + z_{0.9} sd/√n, whose terms with 1/n are that allowance. With groups, sd²
    is n times the variance of the mean over groups, so that the number counts facts in such groups. It is never less
    than the number that decides if no fact differs.

    Parameters
    ----------
    differences
        (n,) candidate − baseline of each question, in [−1, 1]. NaN are left out.
    margin
        In (0, 1).
    level
        Of the two-sided interval, in (0, 1).
    groups
        Labels (n,) of questions that depend on one another: those about one paragraph.

    Returns
    -------
    MarginVerdict, in the unit of the differences; without any difference INCONCLUSIVE, and NaN otherwise. ValueError
    for differences outside [−1, 1], and a margin or level outside (0, 1).

    References
    ----------
    Number of facts: Julious, "Sample sizes for clinical trials with normal data", Statistics in Medicine 23 (2004).
    The variance over groups: Cochran, Sampling Techniques (1977), chapter 9A.

    Examples
    --------
    >>> verdict([0.0] * 200, margin=0.02).outcome
    'PASS'
    >>> outcome, mean, _, _, needed = verdict([-1, 0, 0, 0, 1, 0, -1, 0, 0, 0], margin=0.1)
    >>> outcome, mean, needed
    ('INCONCLUSIVE', -0.1, 339)
    """
    values = _differences(differences)
    check_level(level)
    if not 0 < margin < 1:
        raise ValueError(f"margin must be above 0 and below 1, not {margin}")
    labels = None if groups is None else np.asarray(groups)
    if labels is not None and labels.shape != values.shape:
        raise ValueError(f"groups: {labels.size} labels for {len(values)} questions")
    defined = ~np.isnan(values)
    values, labels = values[defined], None if labels is None else labels[defined]
    if len(values) == 0:
        return MarginVerdict("INCONCLUSIVE", *[math.nan] * 4)
    low, high = (
        paired_share_bounds(values, labels, level)
        if _right_or_wrong(values)
        else bounded_mean_interval(values, (-1.0, 1.0), labels, level)
    )
    outcome = outcome_of(low, high, margin, independent(len(values), labels))
    return MarginVerdict(outcome, float(values.mean()), low, high, facts_needed(values, margin, labels, level))


def outcome_of(low: float, high: float, margin: float, units: int) -> Outcome:
    """Return the outcome of an interval of the mean difference over ``units`` independent facts."""
    if high < -margin:
        return "FAIL"
    return "PASS" if low > -margin and units >= MIN_UNITS else "INCONCLUSIVE"


def facts_needed(differences: ArrayLike, margin: float, groups: ArrayLike | None = None, level: float = 0.95) -> float:
    """Return the number of facts needed for a non-inferiority verdict (:func:`verdict`); NaN without any difference."""
    values = _differences(differences)
    defined = ~np.isnan(values)
    if not defined.any():
        return math.nan
    values, labels = values[defined], None if groups is None else np.asarray(groups)[defined]
    tail, mean, n = (1 - level) / 2, float(values.mean()), len(values)
    number, error = units_and_error(values, labels)
    from scipy import optimize, special  # they take some tenths of a second, which most runs need not spend

    quantile, power = -float(special.ndtri(tail)), float(special.ndtri(POWER))
    if number == 1 or error <= ROUNDING:
        if _right_or_wrong(values) and mean == 0:
            return math.floor(quantile**2 * (1 - margin) / margin * n / number) + 1
        # as of degenerate_interval: the mean moves by so large a share of what the others can differ at most
        share = (mean + margin) / (mean + 1) if mean >= -margin else (-margin - mean) / (1 - mean)
        return math.inf if share == 0 else math.ceil((math.floor(math.log(tail) / math.log1p(-share)) + 1) * n / number)
    deviation = error * math.sqrt(n)
    if _right_or_wrong(values):
        return math.ceil(max(((quantile + power) * deviation / margin) ** 2, quantile**2 * (1 - margin) / margin))

    def distance(facts: float) -> float:
        """Return the distance from 0 to −margin less the distance that so many facts need."""
        unseen = n / number / facts
        bound = unseen + quantile * math.sqrt(deviation**2 / facts + unseen**2)
        return margin - bound - power * deviation / math.sqrt(facts)

    degenerate = math.log(tail) / math.log1p(-margin) * n / number
    return math.ceil(max(float(optimize.brentq(distance, 1.0, (20 / margin) ** 2 * n / number)), degenerate))


def _right_or_wrong(values: Floats) -> bool:
    """Return True if all differences are those of right and wrong, and some question has none."""
    return bool(np.isin(values, (-1.0, 0.0, 1.0)).all()) and not values.all()


def confidence_sequence(differences: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return a confidence sequence: an interval of the mean after each question. With probability ``level``, all of
    these intervals contain the mean: you may check at any time, and stop for any reason.

    For each candidate mean, two gamblers bet on every question: one that its value is above the candidate, one that it
    is below. If the candidate is the true mean, the bets are fair, and the probability that either gambler ever has
    2 / (1 − level) times the initial capital is at most 1 − level. The interval contains the candidates for which
    neither gambler has had that much. Candidates are 0.0002 apart, and each bound is the first candidate that is
    excluded (or −1, 1), so the interval is slightly too wide.

    The questions are independent draws from a population, and the interval is that of the population mean: its width
    does not fall to 0 when all questions of a file have been answered. For questions that depend on one another, pass
    one value per group, such as their sum divided by the size of the largest group.

    Parameters
    ----------
    differences
        (n,) in [−1, 1], in the order asked. A NaN leaves the interval as it was.
    level
        In (0, 1).

    Returns
    -------
    low, high
        (n,) each; low never falls, high never rises, and low < high. If every candidate is excluded, which happens in
        at most 1 − level of cases with independent, identically distributed draws, the preceding interval is kept from
        then on. ValueError for differences outside [−1, 1], and a level outside (0, 1).

    References
    ----------
    Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 86 (2024): the hedged
    capital process (Theorem 3) with predictable plug-in bets, θ = 1/2 and c = 1/2, for draws with
    replacement.

    Examples
    --------
    >>> low, high = confidence_sequence(np.zeros(500))
    >>> low[[0, 99, 499]].round(3).tolist()
    [-1.0, -0.07, -0.015]
    """
    values = _differences(differences)
    check_level(level)
    defined = ~np.isnan(values)
    low, high = _betting((1 + values[defined]) / 2, level)
    defined_count = np.cumsum(defined)
    return np.append(-1.0, low)[defined_count], np.append(1.0, high)[defined_count]


def _betting(x: Floats, level: float) -> tuple[Floats, Floats]:
    """Return a confidence sequence's bounds in [−1, 1] after each of the values in [0, 1]."""
    low, high = np.full(len(x), -1.0), np.full(len(x), 1.0)
    bets, goal = _bets(x, level), math.log(2 / (1 - level))
    candidates = np.arange(1, 2 * _PER_UNIT)  # each is worth candidate / _PER_UNIT − 1
    upper = lower = np.zeros(len(candidates))  # logarithms of the capitals
    start = 0
    while start < len(x) and len(candidates):
        part = slice(start, start + max(1, _BLOCK // len(candidates)))
        mean = candidates / (2 * _PER_UNIT)
        value, bet = x[part, np.newaxis], bets[part, np.newaxis]
        upper = upper + np.cumsum(np.log1p(np.minimum(bet, CAP / mean) * (value - mean)), axis=0)
        lower = lower + np.cumsum(np.log1p(np.minimum(bet, CAP / (1 - mean)) * (mean - value)), axis=0)
        left = ~np.logical_or.accumulate(np.maximum(upper, lower) >= goal, axis=0)
        some = left[left.any(axis=1)]  # the first rows: what is excluded stays so
        # above falls with the candidate and below rises, so that what is left has no gaps
        low[start : start + len(some)] = (candidates[some.argmax(axis=1)] - 1) / _PER_UNIT - 1
        high[start : start + len(some)] = (candidates[::-1][some[:, ::-1].argmax(axis=1)] + 1) / _PER_UNIT - 1
        candidates, upper, lower = candidates[left[-1]], upper[-1, left[-1]], lower[-1, left[-1]]
        start += len(left)
    return np.maximum.accumulate(low), np.minimum.accumulate(high)


def _bets(x: Floats, level: float) -> Floats:
    """Return a confidence sequence's bet on each value, a prediction from the values before it."""
    t = np.arange(1, len(x) + 1)
    means = (0.5 + np.cumsum(x)) / (t + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2)) / (t + 1)
    before = np.append(0.25, variances)[:-1]
    bets: Floats = np.sqrt(2 * math.log(2 / (1 - level)) / (before * t * np.log1p(t)))
    return bets


def _differences(differences: ArrayLike) -> Floats:
    values = np.asarray(differences, dtype=float)
    if values.ndim != 1:
        raise ValueError(f"differences must be (questions,), not {values.shape}")
    if np.any(np.abs(values) > 1 + ROUNDING):
        raise ValueError("differences must be in [-1, 1]")
    within: Floats = np.clip(values, -1.0, 1.0)
    return within
