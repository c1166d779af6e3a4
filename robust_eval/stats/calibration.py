"""Calibration: is an answer with probability p right in a share p of cases?"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.estimate import UNDEFINED, Estimate
from robust_eval.stats.interval import ROUNDING, Floats, student_quantile, units_and_error
from robust_eval.stats.uncertainty import checked_scores

BINS, MIN_IN_BIN = 10, 40
"""Largest number of bins of a calibration error, and smallest number of questions in each; they hold equally many, but
for ties.
"""


class CalibrationBins(NamedTuple):
    """Calibration bins of probabilities: ``bin`` (n,) of each question, −1 where it was left out; (b,) the ``number``
    of questions, their mean ``probability`` and the share of right ones (``accuracy``).
    """

    bin: NDArray[np.intp]
    number: Floats
    probability: Floats
    accuracy: Floats


def calibration_bins(probability: ArrayLike, correct: ArrayLike) -> CalibrationBins:
    """Return calibration bins with equally many questions (:data:`BINS`); equal probabilities share a bin."""
    p, y = checked_scores("probability", probability, correct)
    if np.any((p < -ROUNDING) | (p > 1 + ROUNDING)):
        raise ValueError("probability must be between 0 and 1")
    defined = ~np.isnan(p + y)
    level, total = np.unique(p[defined], return_inverse=True, return_counts=True)[1:]
    bins = min(BINS, max(1, total.sum() // MIN_IN_BIN))
    middle = np.cumsum(total) - total / 2  # the place of all equal ones in the order
    used, place = np.unique((middle * bins // max(total.sum(), 1))[level], return_inverse=True)
    bin_of = np.full(len(p), -1)
    bin_of[defined] = place
    number = np.bincount(place, minlength=len(used)).astype(float)
    means = (np.bincount(place, each[defined], minlength=len(used)) / number for each in (p, y))
    return CalibrationBins(bin_of, number, *means)


class CalibrationError(NamedTuple):
    """Expected calibration error: as it is, ``plug_in``, which is too large in small samples, and ``corrected`` with
    its interval.
    """

    plug_in: float
    corrected: Estimate


def calibration_errors(probability: ArrayLike, correct: ArrayLike, groups: ArrayLike | None = None) -> CalibrationError:
    """Return the calibration error: the mean distance of probability and accuracy over :func:`calibration_bins`.

    The corrected error of a bin takes the sign of the deviation from one half of its questions and the deviation from
    the other, averaged over all halves: d (2 Φ(d / σ) − 1) − 2 σ φ(d / σ), with d the deviation of the bin and
    σ² = Σ p (1 − p) / n². It is 0 on average for a calibrated forecaster, and may be negative; for large deviations it
    is the plug-in error, in between it is too small. The bootstrap's correction leaves more than half of the bias that
    the plug-in error has for a calibrated forecaster. The interval begins below the corrected error (not below 0,
    unless that is) and ends above the plug-in error, by Student's quantile times the standard error each.

    References
    ----------
    Naeini, Cooper & Hauskrecht (AAAI 2015): ECE. Bröcker & Smith, Weather and Forecasting 22 (2007): its distribution
    for a calibrated forecaster.

    Examples
    --------
    >>> error = calibration_errors([0.9] * 50 + [0.5] * 50, [1] * 40 + [0] * 10 + [1] * 25 + [0] * 25)
    >>> round(error.plug_in, 3), round(error.corrected.value, 3)
    (0.05, 0.02)
    """
    binned = calibration_bins(probability, correct)
    inside = binned.bin >= 0
    if not inside.any():
        return CalibrationError(math.nan, UNDEFINED)
    p, y = (np.asarray(each, dtype=float)[inside] for each in (probability, correct))
    place = binned.bin[inside]
    deviation = binned.accuracy - binned.probability
    weight = binned.number / binned.number.sum()
    sigma = np.sqrt(np.bincount(place, np.clip(p * (1 - p), 0, None), minlength=len(weight))) / binned.number
    ratio = np.divide(np.abs(deviation), sigma, out=np.full_like(sigma, np.inf), where=sigma > 0)
    from scipy.special import ndtr  # it takes a tenth of a second, which most runs need not spend

    density = np.exp(-np.square(np.minimum(ratio, 40)) / 2) / math.sqrt(2 * math.pi)
    plug_in = float(weight @ np.abs(deviation))
    corrected = float(weight @ (np.abs(deviation) * (2 * ndtr(ratio) - 1) - 2 * sigma * density))
    labels = None if groups is None else np.asarray(groups)[inside]
    units, error = units_and_error(np.sign(deviation)[place] * (y - p), labels)
    bounds = (math.nan, math.nan)
    if units > 1 and error > ROUNDING:
        half = student_quantile(0.95, units - 1) * error
        bounds = min(max(corrected - half, 0.0), corrected), min(plug_in + half, 1.0)
    return CalibrationError(plug_in, Estimate(corrected, *bounds))


def calibration_error(probability: ArrayLike, correct: ArrayLike) -> float:
    """Return the expected calibration error, corrected for its bias (:func:`calibration_errors`).

    ``probability`` (n,) in [0, 1] is that of the answer being right, ``correct`` (n,) is 1 or 0; questions with a NaN
    in either are left out.

    Returns
    -------
    At most 1, on average 0 for calibrated probabilities, and possibly negative; NaN without any question. ValueError
    for values other than those above, and different lengths.

    Examples
    --------
    >>> round(calibration_error([0.9] * 50 + [0.5] * 50, [1] * 20 + [0] * 30 + [1] * 25 + [0] * 25), 3)
    0.222
    """
    return calibration_errors(probability, correct).corrected.value
