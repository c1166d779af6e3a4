"""Variance of right answers between reasoning traces and within one trace (docs/methods.md, §7)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from robust_eval.stats.frs import TOLERANCE
from robust_eval.stats.interval import Floats, share_of


class Variance(NamedTuple):
    """Variance of right or wrong ``between`` the traces of a question and ``within`` the answers after one, each (n,);
    NaN for too little data. Their sum is the whole.
    """

    between: Floats
    within: Floats


def drawn_variance(right: ArrayLike, answers: ArrayLike) -> Variance:
    """Estimate both variances of n questions from draws: ``right`` (n, K) of the ``answers`` (n, K) after each of K
    traces.

    The one-way estimate: mean square between traces minus mean square within, over the number of answers after each
    (where it differs, Σ answers minus Σ answers² / Σ answers, over K − 1). Values below 0 stay, so that means over
    questions are without bias. NaN with fewer than two traces that have answers, and where none has two.

    References
    ----------
    Searle, Casella & McCulloch, Variance Components (1992), §3.6; docs/methods.md, §7.

    Examples
    --------
    >>> drawn_variance([[2, 0]], [[2, 2]])
    Variance(between=array([0.5]), within=array([0.]))
    """
    correct, number = np.asarray(right, dtype=float), np.asarray(answers, dtype=float)
    whole, traces = number.sum(axis=1), np.count_nonzero(number, axis=1)
    is_defined = (traces >= 2) & (whole > traces)
    share = share_of(correct, number)
    mean = share_of(correct.sum(axis=1), whole)
    across = share_of(np.nansum(number * (share - mean[:, None]) ** 2, axis=1), traces - 1.0)
    inside = share_of(np.nansum(number * share * (1 - share), axis=1), whole - traces)
    each = share_of(whole - share_of((number**2).sum(axis=1), whole), traces - 1.0)
    between = (across - inside) / each
    return Variance(np.where(is_defined, between, np.nan), np.where(is_defined, inside, np.nan))


def exact_variance(right: ArrayLike, squared_error: ArrayLike = 0.0) -> Variance:
    """Estimate both variances of n questions from the probability ``right`` (n, K) of a right answer after each of K
    drawn traces; NaN for no trace, and for a question with fewer than two.

    It is what :func:`drawn_variance` tends to with more and more answers after each trace. Where probabilities are
    estimated, the square of their standard error (n, K) is taken off what lies between traces, and added within.

    Examples
    --------
    >>> exact_variance([[0.0, 0.5]])
    Variance(between=array([0.125]), within=array([0.125]))
    """
    p = np.asarray(right, dtype=float)
    noise = np.where(np.isnan(p), np.nan, squared_error)
    traces = np.count_nonzero(~np.isnan(p), axis=1)
    is_defined = traces >= 2
    between, within = np.full((2, len(p)), np.nan)
    between[is_defined] = np.nanvar(p[is_defined], axis=1, ddof=1) - np.nanmean(noise[is_defined], axis=1)
    within[is_defined] = np.nanmean((p * (1 - p) + noise)[is_defined], axis=1)
    return Variance(between, within)


def pooled_share(part: Floats, whole: Floats, axis: int = 0) -> Floats:
    """Return Σ part / Σ whole over questions; NaN for a whole of 0.

    >>> [float(pooled_share(np.array(part), np.array([0.2, 0.2]))) for part in ([0.1, 0.0], [0.2, 0.2])]
    [0.25, 1.0]
    """
    total = np.asarray(whole.sum(axis=axis))
    share: Floats = np.divide(part.sum(axis=axis), total, out=np.full(total.shape, np.nan), where=total != 0)
    return share


def breaking_budget(accuracy: ArrayLike, budgets: ArrayLike, threshold: float = 0.5) -> Floats:
    """Return (n,) the smallest sufficient budget: with it and with every larger one at least ``threshold`` of the
    answers are right.

    Parameters
    ----------
    accuracy
        (n, B), the share of right answers with each budget; NaN where there is no answer.
    budgets
        (B,), ascending.
    threshold
        In (0, 1].

    Returns
    -------
    inf where the largest budget is not enough although another one is (censored above); NaN for a fact that no budget
    makes known, and where an accuracy is not known.

    References
    ----------
    docs/methods.md, §7.

    Examples
    --------
    >>> breaking_budget([[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0]], [0, 64, 256])
    array([ 64., 256.,  inf,  nan])
    """
    values, grid = np.asarray(accuracy, dtype=float), np.asarray(budgets, dtype=float)
    is_sufficient = values >= threshold - TOLERANCE
    stays_sufficient = np.flip(np.logical_and.accumulate(np.flip(is_sufficient, axis=1), axis=1), axis=1)
    smallest = np.where(stays_sufficient[:, -1], grid[stays_sufficient.argmax(axis=1)], np.inf)
    return np.where(is_sufficient.any(axis=1) & ~np.isnan(values).any(axis=1), smallest, np.nan)
