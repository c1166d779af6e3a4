"""Entropy of repeated answers, and its theoretical relation to the error rate.

Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning", Fig. 5.
"""

from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike

from robust_eval.stats.interval import Floats

FAMILIES: dict[int, tuple[tuple[float, ...], ...]] = {
    2: ((),),
    3: ((0.1,), (0.3,), (0.5,), (0.7,), (0.9,)),
    4: ((0.3, 0.05), (0.3, 0.1), (0.3, 0.3), (0.3, 0.5), (0.3, 0.65)),
    5: tuple(
        (first / 10, second / 10, third / 10)
        for first, second, third in combinations_with_replacement(range(1, 9), 3)
        if first + second + third < 10
    ),
}
"""Number of distinct answers, and the fixed wrong shares of each curve of Fig. 5: one for every order of the shares,
and none of shares that sum to 1, of which only a point would be left."""

_ROUNDING = 1e-12  # by which fixed shares may exceed an error rate that they sum to


def entropy_of(error_rate: ArrayLike, *fixed_wrong_shares: float) -> Floats:
    """Return the entropy of an answer that is right with probability 1 − e, where all wrong shares but one are fixed.

    H(e) = −(1 − e) ln(1 − e) − Σ p_i ln p_i − r ln r, where the last wrong answer takes the rest r = e − Σ p_i.

    ``error_rate`` (any shape) is e in [0, 1]; ``fixed_wrong_shares`` are p_i of the other wrong answers, of which none
    gives the binary entropy.

    Returns
    -------
    Of the shape of ``error_rate``, in nats; NaN for NaN, and where the fixed shares sum to more than the error rate.

    References
    ----------
    Reganova & Steinbach, Fig. 5.

    Examples
    --------
    >>> entropy_of([0.0, 0.5, 1.0]).round(4).tolist()
    [0.0, 0.6931, 0.0]
    >>> entropy_of([0.2, 0.5, 1.0], 0.5).round(4).tolist()
    [nan, 0.6931, 0.6931]
    """
    error = np.asarray(error_rate, dtype=float)
    if np.any((error < -_ROUNDING) | (error > 1 + _ROUNDING)):
        raise ValueError("error rates must be between 0 and 1")
    error = np.clip(error, 0, 1)
    rest = error - sum(fixed_wrong_shares)
    rest = np.where(rest < -_ROUNDING, np.nan, np.maximum(rest, 0))
    from scipy.special import entr  # it takes a tenth of a second, which most runs need not spend

    return np.asarray(entr(1 - error) + sum(map(entr, fixed_wrong_shares)) + entr(rest), dtype=float)


def answer_entropy(counts: ArrayLike) -> Floats:
    """Return the plug-in entropy of the answers to each question, H = −Σ p ln p with p = counts / their sum.

    ``counts`` (n, K) has the numbers of answers to each question with each label, or the sums of their weights.

    Returns
    -------
    (n,) in nats, at most ln K; NaN for a question without any answer. ValueError for negative counts.

    References
    ----------
    Reganova & Steinbach, §2.3.

    Examples
    --------
    >>> answer_entropy([[20, 0], [10, 10]]).round(4).tolist()
    [0.0, 0.6931]
    """
    n = np.asarray(counts, dtype=float)
    if n.ndim != 2:
        raise ValueError(f"counts must be (questions, labels), not {n.shape}")
    if np.any(n < 0):
        raise ValueError("counts must not be negative")
    total = n.sum(axis=1, keepdims=True)
    p = np.divide(n, total, out=np.zeros_like(n), where=total > 0)
    logarithms = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.where(total[:, 0] > 0, np.abs((p * logarithms).sum(axis=1)), np.nan)


def miller_madow(counts: ArrayLike, maximum: ArrayLike) -> Floats:
    """Return :func:`answer_entropy` corrected for the bias of small samples, H + (m − 1) / (2 N).

    ``counts`` (n, K) says how often question j was answered with label i: N answers with m different labels.
    ``maximum``, (n,) or a number, is the largest possible entropy in nats, which the corrected one may not exceed.

    Returns
    -------
    (n,) in nats; NaN for a question without any answer.

    References
    ----------
    Miller, in Information Theory in Psychology (1955); docs/methods.md, §3.

    Examples
    --------
    >>> miller_madow([[15, 5], [4, 4]], np.log(5)).round(4).tolist()
    [0.5873, 0.7556]
    """
    n = np.asarray(counts, dtype=float)
    entropy = answer_entropy(n)
    answers = n.sum(axis=1)
    correction = np.divide(np.count_nonzero(n, axis=1) - 1, 2 * answers, out=np.zeros_like(entropy), where=answers > 0)
    corrected: Floats = np.minimum(entropy + correction, maximum)
    return corrected


def guessed_entropy(choices: int, trials: int) -> float:
    """Return the mean entropy (nats) of guessing: answers drawn evenly among the choices.

    >>> round(guessed_entropy(2, 2), 4)
    0.3466
    """
    counts = np.arange(1, trials + 1)
    share = counts / trials
    from scipy import stats  # it takes half a second, which most runs need not spend

    return float(choices * np.sum(stats.binom.pmf(counts, trials, 1 / choices) * -share * np.log(share)))
