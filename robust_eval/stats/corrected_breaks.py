"""Breaking temperatures corrected for the errors of the grader, by labels of some answers (docs/methods.md, §5)."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.correction import MIN_LABELS, corrected_rate
from robust_eval.stats.estimate import Estimate, share_of
from robust_eval.stats.frs import breaking_temperature
from robust_eval.stats.interval import Floats, draw_groups, drop_degenerate, group_members

RESAMPLES = 500
_STEPS = 50
_PSEUDO = 0.25
"""Pseudo-labels of each verdict at both ends of the grid; they keep every logistic fit finite."""
_STEEP = 0.5
"""The standard deviation of the prior of a slope: by how much the logit of a rate changes from the middle of the grid
to its ends. Without it the few labels of one end would make the rates there, on which early breaks hang."""


class ErrorRates(NamedTuple):
    """Sensitivity and specificity of verdicts, each (T,) by temperature; NaN where no label tells."""

    sensitivity: Floats
    specificity: Floats


def error_rate(hits: Floats, number: Floats, grid: Floats) -> Floats:
    """Return (T,) the rate at which right answers are called right, or wrong ones wrong, at each temperature.

    ``hits`` (T,) are the answers with the verdict that people agree with, of a ``number`` (T,) of labelled ones at the
    temperatures ``grid`` (T,); weights of labels make fractions of them. Where each temperature has 20 such answers or
    more, a rate is their share. Elsewhere it is a logistic regression on the temperature over all of them, with a
    quarter of a label added for each verdict at both ends of the grid, which keeps it finite, and a normal prior on the
    slope that keeps it small.
    """
    if number.sum() <= 0:
        return np.full(len(grid), np.nan)
    return hits / number if (number >= MIN_LABELS).all() else _logistic(hits, number, grid)


def _logistic(hits: Floats, number: Floats, grid: Floats) -> Floats:
    """Return (T,) the rates of a fitted logistic regression, by Newton's method."""
    x = grid - grid.mean() if len(grid) > 1 else np.zeros(1)
    x = x / max(float(np.abs(x).max()), 1.0)
    successes, trials = np.array(hits, dtype=float), np.array(number, dtype=float)
    for end in (0, -1):
        successes[end] += _PSEUDO
        trials[end] += 2 * _PSEUDO
    level = slope = 0.0
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(level + slope * x, -30, 30)))
        rest, weight = successes - trials * p, trials * p * (1 - p)
        g0, g1 = rest.sum(), (rest * x).sum() - slope / _STEEP**2
        h00, h01, h11 = weight.sum(), (weight * x).sum(), (weight * x**2).sum() + 1 / _STEEP**2
        determinant = max(h00 * h11 - h01**2, 1e-12)
        steps = (h11 * g0 - h01 * g1) / determinant, (h00 * g1 - h01 * g0) / determinant
        level += np.clip(steps[0], -2, 2)
        slope += np.clip(steps[1], -2, 2) if len(grid) > 1 else 0
        if max(map(abs, steps)) < 1e-10:
            break
    return np.asarray(1 / (1 + np.exp(-(level + slope * x))))


class LabelCounts(NamedTuple):
    """Counts of the labelled answers to n questions at T temperatures, (n, T) each: sums of the labels' weights.

    ``right`` are answers that people call right, ``true_positives`` those of them whose verdict is right; ``wrong`` and
    ``true_negatives`` likewise.
    """

    true_positives: Floats
    right: Floats
    true_negatives: Floats
    wrong: Floats

    def rates(self, grid: Floats, times: Floats | None = None) -> ErrorRates:
        """Return the grader's error rates (T,), with each question counted ``times`` (n,) times."""
        weight = np.ones(len(self.right)) if times is None else times
        totals = LabelCounts(*(weight @ counts for counts in self))
        sensitivity = error_rate(totals.true_positives, totals.right, grid)
        return _shrink_difference(
            ErrorRates(sensitivity, error_rate(totals.true_negatives, totals.wrong, grid)), totals
        )


class LabelledGrid(NamedTuple):
    """Grid of a grader's verdicts on n questions at T temperatures, with human labels of some answers.

    ``right`` and ``replies`` are (n, T): how many verdicts are right, and how many there are. ``temperatures`` (T,) are
    strictly increasing; ``threshold`` and ``estimator`` are as :func:`~robust_eval.stats.frs.breaking_temperature` has
    them.
    """

    right: Floats
    replies: Floats
    temperatures: Floats
    labels: LabelCounts
    threshold: float = 0.5
    estimator: str = "first"


def _shrink_difference(rates: ErrorRates, totals: LabelCounts) -> ErrorRates:
    """Shrink the difference between the grader's sensitivity and specificity by James-Stein.

    Where the two are alike the crossing of one half does not move, and a difference that is but noise would move it.
    The difference is that within temperatures: right answers are those of low ones, where graders err less, so that
    over all answers together sensitivity is the higher one of two that are alike. Of a difference within two standard
    errors of none nothing stays; of a larger one 1 − variance / difference², as James and Stein have it.

    References
    ----------
    Greenland & Robins, Biometrics 41 (1985): the difference of two shares over strata, by Mantel and Haenszel.
    """
    true_positives, right, true_negatives, wrong = totals
    both = (right > 0) & (wrong > 0)
    if not both.any():
        return rates
    se, sp = true_positives[both] / right[both], true_negatives[both] / wrong[both]
    weight = right[both] * wrong[both] / (right[both] + wrong[both])
    weight /= weight.sum()
    difference = float(weight @ (se - sp))
    variances = [
        share * (1 - share) for share in (true_positives.sum() / right.sum(), true_negatives.sum() / wrong.sum())
    ]
    noise = float(weight**2 @ (variances[0] / right[both] + variances[1] / wrong[both]))
    weight_left = 1 - noise / difference**2 if abs(difference) > 2 * math.sqrt(noise) else 0.0
    middle, half = (rates.sensitivity + rates.specificity) / 2, (rates.sensitivity - rates.specificity) / 2
    return ErrorRates(middle + weight_left * half, middle - weight_left * half)


def label_counts(
    verdicts: Floats, labels: Floats, rows: NDArray[np.intp], columns: NDArray[np.intp], weights: Floats, shape: Any
) -> LabelCounts:
    """Count the labelled answers (N,); ``rows`` and ``columns`` (N,) are their questions and temperatures."""
    is_labelled = ~np.isnan(labels) & ~np.isnan(verdicts)
    counts = []
    for label in (1.0, 0.0):
        of = is_labelled & (labels == label)
        for chosen in (of & (verdicts == label), of):
            table = np.zeros(shape)
            np.add.at(table, (rows[chosen], columns[chosen]), weights[chosen])
            counts.append(table)
    return LabelCounts(*counts)


def corrected_breaks(grid: LabelledGrid, times: Floats | None = None) -> Floats:
    """Return (n,) the breaking temperatures of corrected accuracies
    (:func:`~robust_eval.stats.correction.corrected_rate`), with the labels of each question counted ``times`` times.

    They are NaN where there is no reply, no label, or where verdicts say too little at a temperature before any break.

    References
    ----------
    Rogan & Gladen, American Journal of Epidemiology 107 (1978).
    """
    rates = grid.labels.rates(grid.temperatures, times)
    shares = share_of(grid.right, grid.replies)
    if grid.estimator == "first":
        shares = np.clip(shares + _half_a_trial(grid.replies, grid.threshold), 0, 1)
    accuracy = corrected_rate(shares, rates.sensitivity, rates.specificity)
    return breaking_temperature(accuracy, grid.temperatures, grid.threshold, grid.estimator)


def break_intervals(
    statistics: Callable[[Floats, NDArray[np.intp]], Sequence[float]],
    grid: LabelledGrid,
    groups: ArrayLike,
    trials: Floats | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Estimate]:
    """Return metrics of corrected breaking temperatures with 95 % intervals that cover questions, trials and labels.

    ``statistics`` turns breaking temperatures (m,) of the questions with these numbers (m,) into numbers. Each resample
    draws ``groups`` (n,) of questions with their labels and, from each question, its ``trials`` (n, T, k), which are 1
    where right, 0 where wrong, and NaN without a verdict: whole ones, because one may be alike at all temperatures.
    Enumerated answers have no trials to resample. Trials that are drawn twice over scatter more, which shifts what is
    no linear function of them: the interval is the reflected one, 2 · value − quantiles, so that the shift goes the
    other way, extended to the value if it does not contain it. Where a resample is infinite (unbroken), as a median may
    be, there is nothing to reflect: the interval holds the value and the quantiles themselves, infinite ones too.

    References
    ----------
    Efron & Tibshirani, An Introduction to the Bootstrap (1993), §8.3 (units) and §13.4 (reflected quantiles).
    """
    right, replies = grid.right, grid.replies
    generator = np.random.default_rng(seed)
    members = group_members(groups)
    samples = []
    for _ in range(resamples):
        chosen = draw_groups(members, generator)
        times = np.bincount(chosen, minlength=len(right)).astype(float)
        hits, number = right[chosen], replies[chosen]
        if trials is not None:
            hits, number = _whole_trials(trials[chosen], generator)
        samples.append(statistics(corrected_breaks(grid._replace(right=hits, replies=number), times), chosen))
    values = statistics(corrected_breaks(grid), np.arange(len(right)))
    return [
        _interval(float(value), column[~np.isnan(column)])
        for value, column in zip(values, np.array(samples, dtype=float).T, strict=True)
    ]


def _interval(value: float, draws: Floats) -> Estimate:
    """Return a corrected value with its 95 % bootstrap interval, if that has a width."""
    levels = [0.025, 0.975]
    if math.isnan(value) or not len(draws):
        return Estimate(value)
    if np.isfinite(draws).all() and math.isfinite(value):
        high, low = 2 * value - np.quantile(draws, levels)
    else:
        low, high = np.quantile(draws, levels, method="inverted_cdf")  # between two draws may lie inf − inf
    return Estimate(value, *drop_degenerate(min(float(low), value), max(float(high), value)))


def _whole_trials(trials: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Resample as many trials with replacement; return the numbers (n, T) of right ones and of those with a verdict."""
    questions, _, k = trials.shape
    times = generator.multinomial(k, np.full(k, 1 / k), size=questions)[:, :, None].astype(float)
    return tuple((counted @ times)[:, :, 0] for counted in (np.nan_to_num(trials), 1.0 - np.isnan(trials)))


def _half_a_trial(replies: Floats, threshold: float) -> Floats:
    """Return (n, T) the distance of the threshold above the middle between two numbers of trials called right: the
    largest that breaks, and the smallest that holds.

    Of k trials all shares between the two break alike. Shares of verdicts are raised by so much before they are
    corrected: next to the threshold itself every error of a rate, however small, would decide on all ties, and on
    either side of it another error is too small to. Where sensitivity and specificity are taken for alike, corrected
    and uncorrected verdicts so break at the same temperature.
    """
    middle = share_of(np.ceil(threshold * replies - 1e-9) - 0.5, replies)
    return np.where(replies > 0, threshold - middle, 0.0)
