"""Reliability over repeated trials by the names of the literature: pass@k, pass^k, G-Pass@k, and SliCK's categories.

Throughout, ``right`` (q,) is the number c of right trials of each question and ``n`` (q,) or a number the number of its
trials. k trials are drawn without replacement; a question with fewer trials than k is NaN.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.interval import ROUNDING, Floats

SLICK = ("highly_known", "maybe_known", "weakly_known", "unknown")
"""Categories of :func:`slick`, the best known first."""


def pass_at_k(right: ArrayLike, n: ArrayLike, k: int) -> Floats:
    """Return pass@k, the probability that at least one of k trials is right, 1 − C(n − c, k) / C(n, k).

    ``right`` (q,) has the number c of right trials of each question, ``n`` (q,) the number of its trials; NaN for fewer
    than k. ValueError unless all are whole numbers, 0 ≤ c ≤ n, and k is at least 1.

    Returns
    -------
    (q,) in [0, 1].

    References
    ----------
    Chen et al., "Evaluating Large Language Models Trained on Code" (2021), Eq. 1.

    Examples
    --------
    >>> pass_at_k([0, 1, 4], 4, 2).tolist()
    [0.0, 0.5, 1.0]
    """
    return _tail(right, n, k, 1)


def pass_hat_k(right: ArrayLike, n: ArrayLike, k: int) -> Floats:
    """Return pass^k, the probability that all of k trials are right, C(c, k) / C(n, k).

    ``right``, ``n`` and errors (ValueError) are those of :func:`pass_at_k`.

    Returns
    -------
    (q,) in [0, 1].

    References
    ----------
    Yao et al., "τ-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains" (2024), §3.

    Examples
    --------
    >>> pass_hat_k([0, 2, 4], 4, 2).round(3).tolist()
    [0.0, 0.167, 1.0]
    """
    return _tail(right, n, k, k)


def g_pass_at_k(right: ArrayLike, n: ArrayLike, k: int, share: float) -> Floats:
    """Return the probability that at least ⌈τ k⌉ of k trials are right, G-Pass@k_τ with τ the ``share``.

    ``right``, ``n`` and errors are those of :func:`pass_at_k`; ValueError for a share outside (0, 1], too.

    Returns
    -------
    (q,) in [0, 1]; :func:`pass_hat_k` for a share of 1, :func:`pass_at_k` for one of at most 1/k.

    References
    ----------
    Liu et al., "Are Your LLMs Capable of Stable Reasoning?" (2024), Eq. 3.

    Examples
    --------
    >>> g_pass_at_k([0, 2, 4], 4, 2, 0.5).round(3).tolist()
    [0.0, 0.833, 1.0]
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share}")
    return _tail(right, n, k, math.ceil(share * k - ROUNDING))


def _tail(right: ArrayLike, n: ArrayLike, k: int, needed: int) -> Floats:
    """Return the pass rate: the probability that at least ``needed`` of k trials are right (hypergeometric)."""
    if not k >= 1 or k % 1:
        raise ValueError(f"k must be a whole number of at least 1, not {k}")
    c, trials = np.asarray(right, dtype=float), np.asarray(n, dtype=float)
    if trials.shape not in ((), c.shape):
        raise ValueError(f"n must be a number, or contain one for each question of right, not {trials.shape}")
    for name, counts in (("right", c), ("n", trials)):
        if np.any(counts % 1 > 0):
            raise ValueError(f"{name} must contain whole numbers")
    if np.any((c < 0) | (c > trials)):
        raise ValueError("right must be between 0 and n")
    c, trials = np.broadcast_arrays(c, trials)
    enough = trials >= k
    from scipy.stats import hypergeom  # it takes half a second, which most runs need not spend

    chances = np.full(c.shape, np.nan)
    chances[enough] = np.clip(hypergeom.sf(needed - 1, trials[enough], c[enough], k), 0, 1)
    return chances


def slick(greedy: ArrayLike, right: ArrayLike, n: ArrayLike) -> NDArray[np.intp]:
    """Return the place of each question's SliCK category in :data:`SLICK`; −1 without a greedy verdict or any trial.

    With one set of exemplars: HighlyKnown if the greedy answer and all trials are right, MaybeKnown if the greedy
    answer is right and a trial is wrong, WeaklyKnown if the greedy answer is wrong and a trial is right, Unknown if
    nothing is right. The paper asks greedily with several sets of exemplars: HighlyKnown facts are right with all of
    them, MaybeKnown ones with some. With one set these are our first two categories together.

    ``greedy`` (q,) is 1 where the greedy answer is right, 0 where it is wrong, NaN without a verdict; ``right`` and
    ``n`` (q,) are the numbers of right trials, and of all trials, at a temperature above 0.

    References
    ----------
    Gekhman et al., "Does Fine-Tuning LLMs on New Knowledge Encourage Hallucinations?" (2024), Table 1.

    Examples
    --------
    >>> slick([1, 1, 0, 0, 1], [4, 3, 1, 0, 0], [4, 4, 4, 4, 0]).tolist()
    [0, 1, 2, 3, -1]
    """
    known, c, trials = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in (greedy, right, n)))
    category = np.where(known == 1, np.where(c == trials, 0, 1), np.where(c > 0, 2, 3))
    return np.where(np.isnan(known) | (trials == 0), -1, category)
