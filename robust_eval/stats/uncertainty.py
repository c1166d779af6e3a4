"""Uncertainty against errors: are wrong answers the less certain ones?

Throughout, ``uncertainty`` is (n,), larger for a less certain answer, and ``correct`` (n,) is 1 or 0; questions with a
NaN in either are left out. For the ranking, only the order of the uncertainties counts, and ties are averaged over all
orders.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.estimate import UNDEFINED, Estimate
from robust_eval.stats.interval import ROUNDING, Floats, independent, share_bounds, student_quantile, units_and_error

LEAST_SURE = 0.2
"""Share of the answers that are called the least certain."""


def auroc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Return the AUROC, the probability that a wrong answer is less certain than a right one; a tie counts one half.

    ``uncertainty`` (n,) is larger for a less certain answer, ``correct`` (n,) is 1 or 0; questions with a NaN in either
    are left out. ValueError for other values of ``correct``, and for different lengths.

    Returns
    -------
    0.5 for an uninformative uncertainty, 1 for one that ranks all wrong answers last; NaN where all answers are right
    or all are wrong.

    References
    ----------
    Hanley & McNeil, Radiology 143 (1982); computed by :func:`sklearn.metrics.roc_auc_score`.

    Examples
    --------
    >>> auroc([0.1, 0.2, 0.2, 0.9], [1, 1, 0, 0])
    0.875
    """
    return _auroc(_ordered(uncertainty, correct))


def prediction_rejection_ratio(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Return PRR: the gain of rejecting uncertain answers over random rejection, as a share of its maximum.

    PRR = (A_random − A) / (A_random − A_oracle), with A the area under the curve of :func:`risk_coverage`.

    ``uncertainty``, ``correct`` and errors (ValueError) are those of :func:`auroc`.

    Returns
    -------
    0 for an uninformative uncertainty, 1 for one that ranks all wrong answers last, below 0 for a misleading one; NaN
    where all answers are right or all are wrong.

    References
    ----------
    Malinin & Gales, "Uncertainty Estimation in Autoregressive Structured Prediction" (ICLR 2021).

    Examples
    --------
    >>> round(prediction_rejection_ratio([0.1, 0.2, 0.2, 0.9], [1, 1, 0, 0]), 3)
    0.786
    """
    return error_ranking(uncertainty, correct).prr.estimate.value


class RiskCoverage(NamedTuple):
    """Risk-coverage curve: ``risk`` (n,) is the share of wrong answers among the 1, 2, … n most certain ones, and
    ``coverage`` (n,) the share of all answers that these are; ``area`` is the mean risk (AURC).
    """

    coverage: Floats
    risk: Floats
    area: float


def risk_coverage(uncertainty: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """Return the risk-coverage curve: the share of wrong answers among the most certain ones.

    ``uncertainty``, ``correct`` and errors (ValueError) are those of :func:`auroc`.

    References
    ----------
    El-Yaniv & Wiener, JMLR 11 (2010). Geifman, Uziel & El-Yaniv (ICLR 2019): AURC.

    Examples
    --------
    >>> curve = risk_coverage([0.1, 0.2, 0.2, 0.9], [1, 1, 0, 0])
    >>> curve.risk.round(3).tolist(), round(curve.area, 3)
    ([0.0, 0.25, 0.333, 0.5], 0.271)
    """
    data = _ordered(uncertainty, correct)
    number = np.arange(1.0, len(data.wrong) + 1)
    at = np.sort(data.level)
    risk = (data.wrong_before[at] + (number - data.before[at]) * data.risk[at]) / number
    return RiskCoverage(number / max(len(number), 1), risk, float(risk.mean()) if len(risk) else math.nan)


class JointMetric(NamedTuple):
    """Uncertainty metric of all answers together, and the value of each question for tests over questions.

    ``by_question`` (n,) is the metric plus n times its derivative by the weight of the question: the mean over
    questions is the metric, and the variance of the mean is that of the metric. NaN where a question was left out.
    """

    estimate: Estimate
    by_question: Floats


class ErrorRanking(NamedTuple):
    """AUROC, prediction rejection ratio, and area under the risk-coverage curve of an uncertainty, and the share of all
    errors that the :data:`LEAST_SURE` answers hold.
    """

    auroc: JointMetric
    prr: JointMetric
    aurc: JointMetric
    caught: JointMetric


def error_ranking(uncertainty: ArrayLike, correct: ArrayLike, groups: ArrayLike | None = None) -> ErrorRanking:
    """Return the metrics of an uncertainty with their intervals over questions, or over ``groups`` (n,) of them.

    Student's interval with the standard error of the infinitesimal jackknife over the units, on a scale without bounds:
    −ln (1 − p) of PRR, ln p / (1 − p) of the others. There is none at the ends of these scales. The degrees of freedom
    are those of the units with wrong answers, or with right ones if these are fewer. It covers 93 to 98 % of true
    values (benchmarks/uncertainty.py), where the percentile bootstrap covers 84 to 94 % for PRR.

    References
    ----------
    DeLong, DeLong & Clarke-Pearson, Biometrics 44 (1988); with groups Obuchowski, Biometrics 53 (1997). Efron, The
    Jackknife, the Bootstrap and Other Resampling Plans (1982), chapter 6: the infinitesimal jackknife.

    Examples
    --------
    >>> metric = error_ranking([0.1, 0.2, 0.2, 0.9], [1, 1, 0, 0]).auroc
    >>> metric.estimate.value, metric.by_question.round(3).tolist()
    (0.875, [1.125, 0.625, 0.625, 1.125])
    """
    data = _ordered(uncertainty, correct)
    n, wrong = len(data.wrong), data.wrong
    undefined = JointMetric(UNDEFINED, np.full(len(data.defined), np.nan))
    if not n:
        return ErrorRanking(undefined, undefined, undefined, undefined)
    labels = None if groups is None else np.asarray(groups)[data.defined]

    def joint(value: float, slopes: Floats, scale: "_Unbounded") -> JointMetric:
        """Return an uncertainty metric by its derivatives (n,) by the weights of the questions."""
        by_question = np.full(len(data.defined), np.nan)
        by_question[data.defined] = value + n * (slopes - slopes.mean())
        _, error = units_and_error(by_question[data.defined], labels)
        return JointMetric(_interval(value, fewest - 1, error, scale), by_question)

    fewest = min(
        independent(int(each.sum()), labels if labels is None else labels[each]) for each in (wrong == 1, wrong == 0)
    )
    errors = float(wrong.sum())
    right = n - errors
    area, of_area = _area(data)
    aurc = joint(area, of_area, _SHARE)
    if not errors or not right:
        return ErrorRanking(undefined, undefined, aurc, undefined)
    value = _auroc(data)
    less_certain = errors - data.wrong_before - data.wrong_in / 2
    more_certain = data.before - data.wrong_before + (data.total - data.wrong_in) / 2
    pairs = np.where(wrong == 1, more_certain[data.level], less_certain[data.level])
    of_auroc = (pairs - value * np.where(wrong == 1, right, errors)) / (errors * right)
    missed = _harmonic(n) - _harmonic(right)
    oracle, chance = (errors - right * missed) / n, errors / n
    of_right = -missed - right * (_harmonic_slope(n) - _harmonic_slope(right))
    of_oracle = (np.where(wrong == 1, 1 - right * _harmonic_slope(n), of_right) - oracle) / n
    gain, possible = chance - area, chance - oracle
    of_gain, of_possible = ((wrong - chance) / n - each for each in (of_area, of_oracle))
    ratio = float(gain / possible)
    prr = joint(ratio, (of_gain - ratio * of_possible) / possible, _RATIO)
    share, of_share = _caught(data)
    return ErrorRanking(joint(value, of_auroc, _SHARE), prr, aurc, joint(share, of_share, _SHARE))


def coverage_at_risk(
    uncertainty: ArrayLike, correct: ArrayLike, risks: Sequence[float], groups: ArrayLike | None = None
) -> list[Estimate]:
    """Return for each risk the largest share of answers that a threshold of the uncertainty accepts with at most this
    share of wrong ones among them; 0 where every threshold accepts more.

    The bounds are the largest shares at which the upper and the lower bound of Wilson's interval of the risk do not
    exceed it (with groups, of the effective number of answers). The interval is wide, and tends to cover too often.
    There is no interval if its bounds are equal, or for a single answer or group.

    References
    ----------
    Geifman & El-Yaniv, "Selective Classification for Deep Neural Networks" (NeurIPS 2017).

    Examples
    --------
    >>> [value.value for value in coverage_at_risk(range(100), [1] * 80 + [0] * 20, [0.05, 0.1])]
    [0.84, 0.88]
    """
    data = _ordered(uncertainty, correct)
    labels = None if groups is None else np.unique(np.asarray(groups)[data.defined], return_inverse=True)[1]
    n = len(data.wrong)
    units = n if labels is None else int(labels.max(initial=-1)) + 1
    if not n:
        return [UNDEFINED for _ in risks]
    accepted = data.before + data.total
    share = (data.wrong_before + data.wrong_in) / accepted
    quantile = student_quantile(0.95, max(units - 1, 1))
    bounds = np.empty((len(share), 2))
    for level, (risk, number) in enumerate(zip(share.tolist(), accepted.tolist(), strict=True)):
        inside = data.level <= level
        error = 0.0 if labels is None else units_and_error(data.wrong[inside], labels[inside])[1]
        bounds[level] = share_bounds(risk, int(number), 0.0 if math.isnan(error) else error, quantile)
    curves = (share, bounds[:, 1], bounds[:, 0])
    shares = ([float((accepted[curve <= risk + ROUNDING] / n).max(initial=0.0)) for curve in curves] for risk in risks)
    return [Estimate(value, *((low, high) if units > 1 and low < high else ())) for value, low, high in shares]


class _Ordered(NamedTuple):
    """Answers in the order of their levels of uncertainty, the most certain first.

    ``defined`` (N,) says which questions count; of these n ``level`` is the level and ``wrong`` 1 or 0. Of each level,
    ``total`` is the number of answers, ``wrong_in`` that of wrong ones, ``before`` and ``wrong_before`` those of all
    levels before it, and ``risk`` the share of wrong ones in it.
    """

    defined: NDArray[np.bool_]
    level: NDArray[np.intp]
    wrong: Floats
    total: Floats
    wrong_in: Floats
    before: Floats
    wrong_before: Floats
    risk: Floats


def checked_scores(name: str, values: ArrayLike, correct: ArrayLike) -> tuple[Floats, Floats]:
    """Return the values and the verdicts, checked, as arrays (n,); ValueError names the one that is wrong."""
    x, y = np.asarray(values, dtype=float), np.asarray(correct, dtype=float)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"{name} and correct must both be (questions,), not {x.shape} and {y.shape}")
    if np.any((y != 0) & (y != 1) & ~np.isnan(y)):
        raise ValueError("correct must be 1, 0 or NaN")
    return x, y


def _ordered(uncertainty: ArrayLike, correct: ArrayLike) -> _Ordered:
    u, y = checked_scores("uncertainty", uncertainty, correct)
    defined = ~np.isnan(u) & ~np.isnan(y)
    level = np.unique(u[defined], return_inverse=True)[1]
    wrong = 1 - y[defined]
    total, wrong_in = (np.bincount(level, weights).astype(float) for weights in (None, wrong))
    before, wrong_before = (np.cumsum(each) - each for each in (total, wrong_in))
    return _Ordered(defined, level, wrong, total, wrong_in, before, wrong_before, wrong_in / total)


def _auroc(data: _Ordered) -> float:
    if not 0 < data.wrong.sum() < len(data.wrong):
        return math.nan
    from sklearn.metrics import roc_auc_score  # it takes a second, which most runs need not spend

    return float(roc_auc_score(data.wrong, data.level))


def _area(data: _Ordered) -> tuple[float, Floats]:
    """Return the area under the risk-coverage curve, Σ_m (wrong among the first m) / m / n, and its derivative (n,) by
    the weight of each question.
    """
    n, after = len(data.wrong), data.before + data.total
    steps = _harmonic(after) - _harmonic(data.before)  # Σ 1 / m over the places of a level
    first = data.wrong_before - data.before * data.risk
    area = float((first * steps + data.wrong_in).sum()) / n

    def later(values: Floats) -> Floats:
        """Return for each level of uncertainty the sum of the values of all levels after it."""
        return np.cumsum(values[::-1])[::-1] - values

    bends = later(first * (_harmonic_slope(after) - _harmonic_slope(data.before)) - data.risk * steps)
    level, wrong = data.level, data.wrong
    in_level = (
        -(data.before / data.total * steps)[level] * (wrong - data.risk[level])
        + (first * _harmonic_slope(after))[level]
        + wrong
    )
    return area, (wrong * later(steps)[level] + bends[level] + in_level - area) / n


def _caught(data: _Ordered) -> tuple[float, Floats]:
    """Return the share of all errors in the least certain answers, and its derivative (n,) by the weight of each
    question; a cut inside a level takes a part of it.
    """
    n, errors = len(data.wrong), float(data.wrong.sum())

    def accepted(share: float) -> Floats:
        """Return the part of each level of uncertainty in this share of the answers, the most certain ones."""
        return np.asarray(np.clip((share * n - data.before) / data.total, 0, 1), dtype=float)

    caught = 1 - accepted(1 - LEAST_SURE)
    value = float(data.wrong_in @ caught) / errors
    around = accepted(1 - LEAST_SURE / 2) - accepted(1 - 1.5 * LEAST_SURE)
    risk = float(data.wrong_in @ around) / float(data.total @ around)  # of the answers that the cut moves over
    inside = caught[data.level]
    return value, (data.wrong * (inside - value) - risk * (inside - LEAST_SURE)) / errors


def _harmonic(number: ArrayLike) -> Floats:
    """Return the harmonic number 1 + 1/2 + … + 1/n, continued to all numbers from 0 on."""
    from scipy.special import digamma  # it takes a tenth of a second, which most runs need not spend

    return np.asarray(digamma(np.asarray(number) + 1.0) + np.euler_gamma, dtype=float)


def _harmonic_slope(number: ArrayLike) -> Floats:
    from scipy.special import polygamma

    return np.asarray(polygamma(1, np.asarray(number) + 1.0), dtype=float)


class _Unbounded(NamedTuple):
    """Scale without bounds for an uncertainty metric: the function of a value, its inverse, and its derivative."""

    to: Callable[[float], float]
    back: Callable[[float], float]
    slope: Callable[[float], float]


_SHARE = _Unbounded(lambda p: math.log(p / (1 - p)), lambda x: 1 / (1 + math.exp(-x)), lambda p: 1 / (p * (1 - p)))
_RATIO = _Unbounded(lambda p: -math.log(1 - p), lambda x: 1 - math.exp(-x), lambda p: 1 / (1 - p))


def _interval(value: float, freedom: int, error: float, scale: _Unbounded) -> Estimate:
    """Return an uncertainty metric's value with Student's interval on a scale; without one at an end of the scale."""
    inside = (value > ROUNDING or scale is _RATIO) and value < 1 - ROUNDING
    if freedom < 1 or not inside or not error > ROUNDING:
        return Estimate(value)
    half = student_quantile(0.95, freedom) * error * scale.slope(value)
    return Estimate(value, *(scale.back(scale.to(value) + side * half) for side in (-1, 1)))
