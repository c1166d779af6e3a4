"""Factual Robustness Score (FRS) by its definitions: initial entropy, breaking temperature, score.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness".
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.interval import Floats

MAX_TOTAL = 1.01
"""Maximum sum of the probabilities of different tokens: in half precision they miss 1 by up to 0.01."""
TOLERANCE = 1e-9
"""An accuracy this close below the threshold is a tie and holds: sums of probabilities are not exact."""


def top_entropy(probabilities: ArrayLike, k: int = 10, renormalize: bool = True) -> Floats:
    """Return FRS's initial entropy, that of the k most probable tokens, with logarithm to base k.

    Parameters
    ----------
    probabilities
        (..., V), the model's distribution over the next token at temperature 1. If V < k, the missing
        tokens count with probability 0.
    k
        At least 2.
    renormalize
        Divide the k probabilities by their sum. ``False`` is for comparison only: it treats a flat distribution over a
        large vocabulary as certain.

    Returns
    -------
    (...,) in [0, 1]; NaN where a probability is NaN or the k largest are all 0. ValueError for a negative probability,
    a sum above 1, or a k below 2.

    References
    ----------
    Fastowski et al., §3.2, Eq. 1.

    Examples
    --------
    >>> round(float(top_entropy(np.full(10, 0.1))), 9)
    1.0
    >>> float(top_entropy([1.0, 0.0, 0.0]))
    0.0
    """
    if k < 2:
        raise ValueError(f"k must be at least 2, not {k}")
    p = np.asarray(probabilities, dtype=float)
    if p.ndim == 0 or p.shape[-1] == 0:
        raise ValueError("probabilities: the last axis must contain at least one token")
    if np.any(p < 0) or np.any(p.sum(axis=-1) > MAX_TOTAL):
        raise ValueError("probabilities must not be negative, nor sum to more than 1")
    if p.shape[-1] > k:
        p = np.partition(p, -k, axis=-1)[..., -k:]
    if renormalize:
        total = p.sum(axis=-1, keepdims=True)
        p = np.divide(p, total, out=np.full_like(p, np.nan), where=total > 0)
    logarithms = np.log(p, out=np.zeros_like(p), where=p > 0)
    undefined = np.isnan(p).any(axis=-1) | (p.max(axis=-1) == 0)
    entropy = np.where(undefined, np.nan, -(p * logarithms).sum(axis=-1) / math.log(k))
    return np.clip(entropy, 0.0, 1.0) + 0.0  # rounding removed at the source, and no negative zero


def breaking_temperature(
    accuracy: ArrayLike, temperatures: ArrayLike, threshold: float = 0.5, estimator: str = "first"
) -> Floats:
    """Return the breaking temperature, the lowest of the grid with less than ``threshold`` of the trials right.

    Parameters
    ----------
    accuracy
        (n, T), share of right replies; NaN where there was no reply.
    temperatures
        (T,), strictly increasing.
    threshold
        In (0, 1]; an accuracy equal to it holds.
    estimator
        ``first`` takes the accuracies as they are (the paper's); ``isotonic`` first fits the non-increasing curve
        nearest in least squares, which removes the bias of ten noisy trials where the curve is flat near one half.

    Returns
    -------
    (n,): inf for a fact that is *unbroken* at every temperature; NaN where a temperature without any reply precedes
    every break. ValueError for accuracies outside [0, 1], and temperatures that are not ascending or do not fit their
    shape.

    References
    ----------
    Fastowski et al., §3.3. Isotonic regression: Robertson, Wright, Dykstra, Order Restricted Statistical Inference.

    Examples
    --------
    >>> breaking_temperature([[1.0, 0.5, 0.4], [1.0, 0.9, 0.6]], [0.2, 0.4, 0.6]).tolist()
    [0.6, inf]
    """
    curve = np.asarray(accuracy, dtype=float)
    levels = np.asarray(temperatures, dtype=float)
    if curve.ndim != 2 or levels.ndim != 1 or levels.size == 0 or curve.shape[1] != levels.size:
        raise ValueError(f"accuracy must be (questions, {levels.size} temperatures), not {curve.shape}")
    if not np.all(np.isfinite(levels)) or np.any(levels < 0) or np.any(np.diff(levels) <= 0):
        raise ValueError("temperatures must be finite, non-negative and strictly increasing")
    if np.any((curve < -TOLERANCE) | (curve > 1 + TOLERANCE)):
        raise ValueError("accuracy must be in [0, 1]")
    _check_threshold(threshold)
    if estimator == "isotonic":
        curve = np.array([_non_increasing(row) for row in curve]).reshape(curve.shape)
    elif estimator != "first":
        raise ValueError(f"estimator must be 'first' or 'isotonic', not {estimator!r}")

    unknown = np.isnan(curve)
    stops = ~reaches(curve, threshold)
    first = stops.argmax(axis=1)
    broken = levels[first]
    return np.where(~stops.any(axis=1), np.inf, np.where(unknown[np.arange(len(curve)), first], np.nan, broken))


def reaches(accuracy: ArrayLike, threshold: float) -> NDArray[np.bool_]:
    """Return True where an accuracy is at least the threshold, up to rounding, so that a fact holds; False for NaN."""
    return np.asarray(accuracy) >= threshold - TOLERANCE


def _check_threshold(threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], not {threshold}")


def _non_increasing(accuracy: Floats) -> Floats:
    """Fit a non-increasing accuracy curve by least squares to its defined points; undefined ones stay NaN."""
    fitted = accuracy.copy()
    defined = ~np.isnan(accuracy)
    if defined.any():
        from scipy.optimize import isotonic_regression  # it takes half a second, which most runs need not spend

        fitted[defined] = isotonic_regression(accuracy[defined], increasing=False).x
    return fitted


def settled(
    right: int, wrong: int, outstanding: int, threshold: float = 0.5
) -> Literal["holds", "breaks", "unknown"] | None:
    """Return the outcome of a fact at one temperature before all of its trials are available: it *holds* or *breaks*,
    as defined by :func:`breaking_temperature`, whatever the result of the other trials.

    Parameters
    ----------
    right, wrong
        Numbers of replies. Trials without a reply are in neither.
    outstanding
        Number of trials that may still have a right reply, a wrong one, or none.
    threshold
        In (0, 1]; a share of right replies equal to it holds.

    Returns
    -------
    ``holds`` where the share of right replies cannot fall below the threshold, ``breaks`` where it cannot reach it,
    ``unknown`` where no trial has a reply and none is outstanding; None where the outstanding trials decide. ValueError
    for a negative number, or a threshold outside (0, 1].

    References
    ----------
    Fastowski et al., §3.3, for the share that breaks.

    Examples
    --------
    >>> settled(right=5, wrong=2, outstanding=3), settled(right=2, wrong=6, outstanding=2)
    ('holds', 'breaks')
    >>> settled(right=4, wrong=2, outstanding=4) is None
    True
    """
    for name, count in (("right", right), ("wrong", wrong), ("outstanding", outstanding)):
        if count < 0:
            raise ValueError(f"{name} must not be negative, but is {count}")
    _check_threshold(threshold)
    trials = right + wrong + outstanding
    if trials == 0:
        return "unknown"
    if reaches(right / trials, threshold):  # if all of the others come wrong; those that do not come help
        return "holds"
    return None if reaches((right + outstanding) / trials, threshold) else "breaks"


def factual_robustness_score(
    entropy: ArrayLike, breaking_temperature: ArrayLike, d: float, unbroken: str = "one"
) -> Floats:
    """Return FRS = (f + 1) / (f + 2) with f(H, d, t_b) = (1 − H)^d (t_b + 1) − H / (t_b + 1).

    Parameters
    ----------
    entropy
        H, in [0, 1]: the uncertainty of the greedy answer (:func:`top_entropy`, averaged over its tokens).
    breaking_temperature
        t_b ≥ 0 (:func:`breaking_temperature`); inf for an unbroken fact. Broadcasts against ``entropy``.
    d
        Weight of the entropy, any number above 0; the paper uses 1, 2, 5, 10, 50.
    unbroken
        ``one``: an unbroken fact scores 1, as in the paper. ``limit``: inf is taken as the limit of the formula
        (1 for H < 1, 0.5 for H = 1); replace inf by the last grid temperature for a lower bound.

    Returns
    -------
    (n,) in [0, 1]; NaN where an argument is NaN. ValueError for an entropy outside [0, 1], a negative temperature, a d
    that is not a positive number, or shapes that do not fit.

    References
    ----------
    Fastowski et al., Eq. 3, 4 and 6; d below 1: appendix D.

    Examples
    --------
    >>> factual_robustness_score([0.0, 1.0, 0.2], [0.0, 0.0, np.inf], d=1).tolist()
    [0.6666666666666666, 0.0, 1.0]
    """
    h, t = np.asarray(entropy, dtype=float), np.asarray(breaking_temperature, dtype=float)
    try:
        h, t = np.broadcast_arrays(h, t)
    except ValueError:
        raise ValueError(f"breaking_temperature, {t.shape}, must broadcast with entropy, {h.shape}") from None
    if np.any((h < 0) | (h > 1)):
        raise ValueError("entropy must be in [0, 1]")
    if np.any(t < 0):
        raise ValueError("breaking_temperature must not be negative")
    if not d > 0 or math.isinf(d):
        raise ValueError(f"d must be a finite positive number, not {d}")
    if unbroken not in ("one", "limit"):
        raise ValueError(f"unbroken must be 'one' or 'limit', not {unbroken!r}")
    infinite = np.isinf(t)
    finite = np.where(infinite, 0.0, t)
    f = (1 - h) ** d * (finite + 1) - h / (finite + 1)
    limit = np.where((h < 1) | (unbroken == "one"), 1.0, 0.5)
    score = np.where(infinite, limit, (f + 1) / (f + 2))
    return np.where(np.isnan(h) | np.isnan(t), np.nan, score)


def crossing_temperature(accuracy: Floats, temperatures: Floats, threshold: float) -> float:
    """Return the interpolated breaking temperature: the lowest at which an accuracy curve falls below a threshold.

    ``accuracy`` (T,) has no NaN, ``temperatures`` (T,) are at least two and strictly increasing; an accuracy equal to
    the ``threshold`` holds. Between temperatures the curve is interpolated by monotone cubic pieces (Fritsch & Carlson
    1980), which never leave the range of their ends; the root is found by Brent's method (docs/methods.md, §1).

    Returns
    -------
    inf where the curve never falls below the threshold, the first temperature where it begins below.

    Examples
    --------
    >>> crossing_temperature(np.array([1.0, 0.5, 0.0]), np.array([0.0, 1.0, 2.0]), threshold=0.5)
    1.0
    """
    below = ~reaches(accuracy, threshold)
    if not below.any():
        return math.inf
    first = int(below.argmax())
    if first == 0:
        return float(temperatures[0])
    if accuracy[first - 1] <= threshold:
        return float(temperatures[first - 1])
    from scipy.interpolate import PchipInterpolator  # they take half a second, which most runs need not spend
    from scipy.optimize import brentq

    interpolated = PchipInterpolator(temperatures, accuracy - threshold)
    return float(brentq(interpolated, temperatures[first - 1], temperatures[first]))
