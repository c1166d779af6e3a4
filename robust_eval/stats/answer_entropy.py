"""Entropy of the answers to a question that is asked again and again.

Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning", §2.3.
"""

import numpy as np
from numpy.typing import ArrayLike

from robust_eval.stats.interval import Floats


def answer_entropy(counts: ArrayLike) -> Floats:
    """Plug-in entropy of the answers to each question, H = −Σ p ln p with p = counts / their sum.

    Parameters
    ----------
    counts
        (n, K), how often question j was answered with label i; sums of weights are taken as well.

    Returns
    -------
    (n,) in nats, at most ln K; NaN for a question without any answer.

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


def miller_madow(counts: ArrayLike, most: ArrayLike) -> Floats:
    """Return the entropy of :func:`answer_entropy` with the bias of few answers taken out, H + (m − 1) / (2 N).

    Parameters
    ----------
    counts
        (n, K), how often question j was answered with label i: N answers with m different labels.
    most
        (n,) or a number: the largest entropy that is possible, in nats, which the corrected one may not exceed.

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
    corrected: Floats = np.minimum(entropy + correction, most)
    return corrected
