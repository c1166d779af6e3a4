"""Variance of right answers: between questions, rewrites and trials (docs/profile.md); between reasoning traces and
within one trace (docs/methods.md, §7).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.estimate import UNDEFINED, Estimate, share_of
from robust_eval.stats.frs import TOLERANCE
from robust_eval.stats.interval import Floats, check_level, drop_degenerate, student_quantile, units_and_error

MAX_REPETITIONS = 100
"""Maximum number of rewrites, and of trials, of a :class:`Split`."""


class Split(NamedTuple):
    """Split of a budget: numbers of ``questions``, of ``rewrites`` of each question and of ``trials`` of each rewrite,
    with the ``standard_error`` of the mean and the ``cost``.
    """

    questions: int
    rewrites: int
    trials: int
    standard_error: float
    cost: float


class VarianceComponents(NamedTuple):
    """Variance of answers between questions, between the rewrites of a question, and between the trials of a rewrite.

    A component that the answers do not identify is NaN and included in the preceding one: ``trial`` if each rewrite has
    one trial, ``rewrite`` if each question has one wording. A negative estimate means that the component is close to 0.

    >>> components = VarianceComponents(Estimate(0.1), Estimate(0.03), Estimate(0.12))
    >>> round(components.standard_error(100, rewrites=3, trials=4), 4)
    0.0346
    """

    question: Estimate
    rewrite: Estimate
    trial: Estimate

    def standard_error(self, questions: float, rewrites: float = 1, trials: float = 1) -> float:
        """Return √(σ²_Q / Q + σ²_W / QW + σ²_E / QWK) of the mean of ``questions`` Q with ``rewrites`` W of each and
        ``trials`` K of each rewrite.

        NaN for several rewrites or trials whose component is NaN, and if the components do not add up to more than 0.
        """
        between, within, inside = self._values(rewrites, trials)
        variance = (between + (within + inside / trials) / rewrites) / questions
        return math.sqrt(variance) if variance > 0 else math.nan

    def best_split(self, budget: float, question: float, rewrite: float, answer: float) -> Split:
        """Return the numbers of questions, rewrites and trials with the lowest standard error within a ``budget``.

        ``question`` is the price of a question, ``rewrite`` that of each of its rewrites, ``answer`` that of each
        trial, in the unit of the budget. Negative components count as 0. ValueError for a negative price, if all are 0,
        and for a budget below the price of one answer.

        References
        ----------
        Cochran, Sampling Techniques (1977), §10.8: the same for two stages, without whole numbers.
        """
        if min(question, rewrite, answer) < 0 or not question + rewrite + answer > 0:
            raise ValueError(f"prices must be at least 0 and not all 0, not {question}, {rewrite}, {answer}")
        several = [1 if math.isnan(each.value) else MAX_REPETITIONS for each in (self.rewrite, self.trial)]
        w, k = np.meshgrid(*(np.arange(1.0, number + 1) for number in several), indexing="ij")
        price = question + w * (rewrite + k * answer)
        q = np.floor(budget / price + TOLERANCE)
        if not q[0, 0] >= 1:
            raise ValueError(f"budget must be at least {price[0, 0]:g}, the price of one answer, not {budget:g}")
        between, within, inside = (max(0.0, each) for each in self._values(*several))
        variance = np.divide(between + (within + inside / k) / w, q, out=np.full(q.shape, np.inf), where=q > 0)
        best = np.unravel_index(np.argmin(variance), q.shape)
        numbers = int(q[best]), int(w[best]), int(k[best])
        return Split(*numbers, math.sqrt(variance[best]), float(q[best] * price[best]))

    def _values(self, rewrites: float, trials: float) -> tuple[float, float, float]:
        """Return the components; 0 for one that is a part of the one before, unless there are several of its kind."""
        rewrite, trial = (
            0.0 if math.isnan(each.value) and number == 1 else each.value
            for each, number in ((self.rewrite, rewrites), (self.trial, trials))
        )
        return self.question.value, rewrite, trial


def variance_components(
    correct: ArrayLike,
    question: ArrayLike,
    rewrite: ArrayLike,
    groups: ArrayLike | None = None,
    level: float = 0.95,
) -> VarianceComponents:
    """Estimate the variance between questions, between their rewrites, and between the trials of a rewrite.

    The nested analysis of variance for unequal numbers: the sums of squares between questions, between rewrites within
    them, and within rewrites are set equal to their expectations. Negative estimates are kept, which avoids bias. The
    intervals are Student's, with the standard error of the jackknife over questions or groups of them; those of the
    bootstrap contain the true value less often (benchmarks/intervals.py). For two runs, ``correct`` are the differences
    of their answers to the same question, rewrite and trial.

    Parameters
    ----------
    correct
        (N,) 1 for each right answer and 0 for a wrong one, or differences of these; NaN are left out.
    question, rewrite
        Labels (N,) of the question of each answer, and of the rewrite within the question.
    groups
        Labels (N,) of questions that depend on one another.
    level
        Nominal coverage, in (0, 1).

    Returns
    -------
    VarianceComponents in the squared unit of ``correct``. All are NaN with fewer than two questions. ValueError for
    arrays of different lengths, an infinite value, and a level outside (0, 1).

    References
    ----------
    Searle, Casella & McCulloch, Variance Components (1992), §3.6; of two nested factors: Searle, Linear Models (1971),
    §11.

    Examples
    --------
    >>> question, rewrite = [1, 1, 1, 1, 2, 2, 2, 2], [0, 0, 1, 1, 0, 0, 1, 1]
    >>> components = variance_components([1, 1, 1, 0, 0, 0, 1, 0], question, rewrite)
    >>> [each.value for each in components]
    [0.0625, 0.0, 0.25]
    """
    check_level(level)
    values = np.asarray(correct, dtype=float)
    labels = [np.asarray(each) for each in (question, rewrite, *([] if groups is None else [groups]))]
    if values.ndim != 1 or any(each.shape != values.shape for each in labels):
        raise ValueError(f"all need the same shape, (N,), not {[values.shape, *(each.shape for each in labels)]}")
    if np.isinf(values).any():
        raise ValueError("correct must contain finite values or NaN")
    used = ~np.isnan(values)
    values, (question, rewrite, *units) = values[used], [each[used] for each in labels]
    _, first, row = np.unique(question, return_index=True, return_inverse=True)
    n = len(first)
    if n < 2:
        return VarianceComponents(UNDEFINED, UNDEFINED, UNDEFINED)
    sums = _sums(values, row, np.unique(rewrite, return_inverse=True)[1])
    whole = sums.sum(axis=0)
    points = _nested(whole)
    pseudo_values = n * points - (n - 1) * _nested(whole - sums)
    estimates = []
    for point, each in zip(points.tolist(), pseudo_values.T, strict=True):
        number, error = units_and_error(each, units[0][first] if units else None)
        width = student_quantile(level, number - 1) * error if number > 1 else math.nan
        estimates.append(Estimate(point, *drop_degenerate(point - width, point + width)))
    return VarianceComponents(*estimates)


def _sums(values: Floats, question: NDArray[np.intp], rewrite: NDArray[np.intp]) -> Floats:
    """Return (n, 10) the sums that :func:`_nested` needs of each question, in its order."""
    _, first, cell = np.unique(question * (rewrite.max() + 1) + rewrite, return_index=True, return_inverse=True)
    number, total = np.bincount(cell), np.bincount(cell, values)
    row = question[first]
    cells, answers, pairs, right, by_cell = (
        np.bincount(row, each) for each in (number > 0, number, number**2, total, total**2 / number)
    )
    squares = np.bincount(question, values**2)
    questions, by_question = np.ones(len(cells)), right**2 / answers
    parts = questions, cells, answers, answers**2, pairs, pairs / answers, right, by_question, by_cell, squares
    return np.stack(parts, axis=1)


def _nested(sums: Floats) -> Floats:
    """Return (..., 3) the variance components of questions, rewrites and trials, from sums (..., 10) over questions."""
    questions, cells, answers, answers_squared, pairs, pairs_within, right, by_question, by_cell, squares = np.moveaxis(
        sums, -1, 0
    )
    inside = share_of(squares - by_cell, answers - cells)
    trial = np.nan_to_num(inside)
    within = share_of(by_cell - by_question - (cells - questions) * trial, answers - pairs_within)
    rewrite = np.nan_to_num(within)
    other = (questions - 1) * trial + (pairs_within - pairs / answers) * rewrite
    between = share_of(by_question - right**2 / answers - other, answers - answers_squared / answers)
    return np.stack([between, within, inside], axis=-1)


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


def pooled_share(part: Floats, whole: Floats) -> float:
    """Return the pooled share of a variance, Σ part / Σ whole over questions; NaN for a whole of 0.

    >>> [pooled_share(np.array(part), np.array([0.2, 0.2])) for part in ([0.1, 0.0], [0.2, 0.2])]
    [0.25, 1.0]
    """
    total = float(whole.sum())
    return float(part.sum()) / total if total else math.nan
