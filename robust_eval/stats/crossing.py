"""The temperature at which an accuracy curve crosses a threshold, between and beyond the temperatures of a grid."""

import numpy as np
from numpy.typing import ArrayLike

from robust_eval.stats.interval import Floats


def crossing_temperature(accuracy: ArrayLike, temperatures: ArrayLike, threshold: float = 0.5) -> Floats:
    """Return the lowest temperature at which a curve falls below a threshold.

    Between the temperatures given the curve is interpolated by monotone cubic pieces (Fritsch & Carlson 1980), which
    never leave the range of their ends; the root is found by Brent's method.

    Parameters
    ----------
    accuracy
        (n, T), without NaN.
    temperatures
        (T,), strictly increasing, at least two.
    threshold
        An accuracy equal to it holds.

    Returns
    -------
    (n,): inf where the curve never falls below the threshold, the first temperature where it begins below.

    References
    ----------
    docs/methods.md, §1.

    Examples
    --------
    >>> crossing_temperature([[1.0, 0.5, 0.0], [1.0, 0.9, 0.8]], [0.0, 1.0, 2.0], threshold=0.5).tolist()
    [1.0, inf]
    """
    curves = np.asarray(accuracy, dtype=float)
    levels = np.asarray(temperatures, dtype=float)
    if curves.ndim != 2 or levels.ndim != 1 or levels.size < 2 or curves.shape[1] != levels.size:
        raise ValueError(f"accuracy must be (questions, {levels.size} temperatures), two or more, not {curves.shape}")
    if np.any(np.diff(levels) <= 0):
        raise ValueError("temperatures must be strictly increasing")
    if np.isnan(curves).any():
        raise ValueError("accuracy must not be NaN")
    return np.array([_crossing(curve, levels, threshold) for curve in curves], dtype=float)


def _crossing(curve: Floats, levels: Floats, threshold: float) -> float:
    below = curve < threshold
    if not below.any():
        return np.inf
    first = int(below.argmax())
    if first == 0:
        return float(levels[0])
    if curve[first - 1] == threshold:
        return float(levels[first - 1])
    from scipy.interpolate import PchipInterpolator  # they take half a second, which most runs need not spend
    from scipy.optimize import brentq

    interpolated = PchipInterpolator(levels, curve - threshold)
    return float(brentq(interpolated, levels[first - 1], levels[first]))
