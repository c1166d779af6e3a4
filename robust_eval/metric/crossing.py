"""The temperature at which an accuracy curve crosses a threshold, between and beyond the temperatures of a grid."""

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from robust_eval.answer import rows
from robust_eval.metric.score import Floats

NORMAL_95 = 1.959963984540054
"""95 % of a normal distribution lie within so many standard deviations."""


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


def crossings(question_ids: list[str], curves: pa.Table, threshold: float) -> dict[str, Floats]:
    """Return for each question the temperature at which its curve crosses the threshold, with the ends of its 95 %
    interval.

    The interval reaches from where the curve less its error crosses to where the curve and its error do.
    """
    by_question: dict[str, list[tuple[float, float, float]]] = {question_id: [] for question_id in question_ids}
    for question_id, *point in rows(curves, "question_id", "temperature", "accuracy", "standard_error"):
        by_question[question_id].append((point[0], point[1], point[2]))
    found: dict[str, Floats] = {name: np.full(len(question_ids), np.nan) for name in ("value", "low", "high")}
    for index, points in enumerate(by_question.values()):
        if len(points) > 1 and not np.isnan(points).any():  # without a right answer there is no accuracy
            temperature, accuracy, error = np.array(sorted(points)).T
            for name, shift in (("value", 0.0), ("low", -NORMAL_95), ("high", NORMAL_95)):
                curve = np.clip(accuracy + shift * error, 0, 1)
                found[name][index] = crossing_temperature(curve[None], temperature, threshold)[0]
    return found
