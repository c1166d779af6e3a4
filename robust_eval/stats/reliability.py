"""Reliability and accuracy of raters: Cronbach's α (on 0 and 1 KR-20); original question, worst, best, vote.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers"
(docs/methods.md, §2).
"""

import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats, defined_mean, drop_degenerate


def cronbach_alpha(correct: ArrayLike) -> float:
    """Return Cronbach's α = n / (n − 1) · (1 − Σ_j σ_j² / σ_x²): items are questions, subjects raters, σ_x² the
    variance of their totals.

    It grows with the number of questions and with differences *between raters*: near 1, the raters' totals differ
    consistently (the original question against its rewrites, say), which does not mean that answers are robust. It may
    be negative.

    Parameters
    ----------
    correct
        (n questions, raters) of 0, 1, and NaN where a rater is missing; questions with one missing are left out. For
        the α of raters as items, pass the transpose.

    Returns
    -------
    At most 1; NaN with fewer than two complete questions or two raters, and where the raters' totals do not vary.
    ValueError for other values than 0, 1 and NaN.

    References
    ----------
    Cronbach, Psychometrika 16 (1951); Kuder & Richardson, Psychometrika 2 (1937). Variances have ddof = 1.

    Examples
    --------
    >>> round(cronbach_alpha([[1, 1, 0], [1, 0, 0], [1, 1, 0]]), 3)
    0.857
    """
    complete = _complete(correct)
    n, raters = complete.shape
    if n < 2 or raters < 2:
        return float("nan")
    total = float(complete.sum(axis=0).var(ddof=1))
    if total < 1e-12:
        return float("nan")
    return float(n / (n - 1) * (1 - complete.var(axis=1, ddof=1).sum() / total))


def cronbach_interval(correct: ArrayLike) -> Estimate:
    """Return Cronbach's α with Feldt's 95 % interval; a bootstrap over questions would be biased.

    (1 − α_true) / (1 − α) is distributed as F with raters − 1 and (raters − 1)(n − 1) degrees of freedom. Where α is 1
    (the raters differ alike on all questions) this interval has no width, and none is given.

    References
    ----------
    Feldt, Psychometrika 30 (1965).

    Examples
    --------
    >>> [round(bound, 3) for bound in cronbach_interval([[1, 1, 0], [1, 0, 0], [1, 1, 0]])]
    [0.857, -0.521, 0.996]
    """
    alpha = cronbach_alpha(correct)
    if np.isnan(alpha):
        return Estimate(alpha)
    n, raters = _complete(correct).shape
    freedom = (raters - 1, (raters - 1) * (n - 1))
    from scipy.stats import f as f_distribution  # it takes half a second, which most runs need not spend

    low, high = (1 - (1 - alpha) * f_distribution.isf(share, *freedom) for share in (0.025, 0.975))
    return Estimate(alpha, *drop_degenerate(float(low), float(high)))


def _complete(correct: ArrayLike) -> Floats:
    """Return the questions that every rater answered, for Cronbach's α."""
    table = np.asarray(correct, dtype=float)
    if table.ndim != 2:
        raise ValueError(f"correct must be (questions, raters), not {table.shape}")
    if not np.all(np.isnan(table) | (table == 0) | (table == 1)):
        raise ValueError("correct must contain only 0, 1 and NaN")
    complete: Floats = table[~np.isnan(table).any(axis=1)]
    return complete


Value = TypeVar("Value")


class Robustness(NamedTuple, Generic[Value]):
    """Robustness of raters: base accuracy A, worst case Ω, best case O, plurality Ŷ, item difficulty μ_D: means over
    questions, or (n,) of each question.
    """

    accuracy: Value
    worst: Value
    best: Value
    plurality: Value
    difficulty: Value


def robustness(correct: ArrayLike, ensemble_correct: ArrayLike) -> Robustness[float]:
    """Return the five statistics of robustness, each a mean over the questions for which it is defined.

    Parameters
    ----------
    correct
        (n questions, raters) of 0, 1, and NaN where a rater is missing; column 0 is the original question.
    ensemble_correct
        (n,) of 0, 1 and NaN: 1 where the answer that the raters voted for is right.

    Returns
    -------
    Values in [0, 1], NaN where no question has them. Worst, best and difficulty are taken over the raters that a
    question has. ValueError for other values than 0, 1 and NaN, and a question whose voted answer has a verdict that no
    rater's answer has.

    References
    ----------
    Cho & Watson, §5.1.

    Examples
    --------
    >>> robustness([[1, 1, 0, 1], [0, 0, 1, 0]], [1, 0])
    Robustness(accuracy=0.5, worst=0.0, best=1.0, plurality=0.5, difficulty=0.5)
    """
    by_question = question_robustness(correct, ensemble_correct)
    return Robustness(*(defined_mean(values) for values in by_question))


def question_robustness(correct: ArrayLike, ensemble_correct: ArrayLike) -> Robustness[Floats]:
    """Return the statistics of each question that :func:`robustness` averages; same arguments.

    Where both are graded, worst ≤ accuracy ≤ best and worst ≤ plurality ≤ best: ValueError names a question whose
    ensemble answer has a verdict that none of its raters has.
    """
    table, ensemble = np.asarray(correct, dtype=float), np.asarray(ensemble_correct, dtype=float)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"correct must be (questions, raters) with at least one rater, not {table.shape}")
    if ensemble.shape != (len(table),):
        raise ValueError(
            f"ensemble_correct must contain one value for each of {len(table)} questions, not {ensemble.shape}"
        )
    for name, values in (("correct", table), ("ensemble_correct", ensemble)):
        if not np.all(np.isnan(values) | (values == 0) | (values == 1)):
            raise ValueError(f"{name} must contain only 0, 1 and NaN")
    has_verdict = ~np.isnan(table)
    graded = has_verdict.any(axis=1)
    worst = np.where(graded, np.where(has_verdict, table, np.inf).min(axis=1), np.nan)
    best = np.where(graded, np.where(has_verdict, table, -np.inf).max(axis=1), np.nan)
    right, raters = np.where(has_verdict, table, 0).sum(axis=1), has_verdict.sum(axis=1)
    difficulty = np.divide(right, raters, out=np.full(len(table), np.nan), where=graded)
    with np.errstate(invalid="ignore"):
        outside = (ensemble < worst) | (ensemble > best) | (~np.isnan(ensemble) & ~graded)
    if outside.any():
        row = int(np.argmax(outside))
        verdict = "right" if ensemble[row] else "wrong"
        raise ValueError(f"question {row}: the ensemble answer is {verdict}, and no rater's answer is")
    return Robustness(table[:, 0], worst, best, ensemble, difficulty)


def guessing(choices: int, raters: int) -> Robustness[float]:
    """Return the expected robustness of raters who guess independently among ``choices``.

    References
    ----------
    docs/methods.md, §2: A = Ŷ = μ_D = 1/K, Ω = K^−r, O = 1 − ((K − 1)/K)^r with r raters.

    Examples
    --------
    >>> guessing(2, 2)
    Robustness(accuracy=0.5, worst=0.25, best=0.75, plurality=0.5, difficulty=0.5)
    """
    p = 1 / choices
    return Robustness(p, p**raters, -math.expm1(raters * math.log1p(-p)) if choices > 1 else 1.0, p, p)
