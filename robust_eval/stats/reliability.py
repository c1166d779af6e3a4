"""Whether the raters' totals of right answers differ consistently: Cronbach's α, which on 0 and 1 is KR-20.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers"
(docs/methods.md, §2).
"""

import numpy as np
from numpy.typing import ArrayLike

from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats, with_width


def cronbach_alpha(correct: ArrayLike) -> float:
    """α = n / (n − 1) · (1 − Σ_j σ_j² / σ_x²): items are questions, subjects raters, σ_x² the variance of their totals.

    It grows with the number of questions and with differences *between raters*: near 1, the raters' totals differ
    consistently (the original question against its rewrites, say), which does not mean that answers are robust. It may
    be negative.

    Parameters
    ----------
    correct
        (n questions, raters) of 0, 1, and NaN where a rater is missing; questions with one missing are left out. For
        the α of raters as items hand over the transpose.

    Returns
    -------
    NaN with less than two complete questions or two raters, and where the raters' totals do not vary.

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


def cronbach_interval(correct: ArrayLike, level: float = 0.95) -> Estimate:
    """α with Feldt's interval; a bootstrap over questions would be biased.

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
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    alpha = cronbach_alpha(correct)
    if np.isnan(alpha):
        return Estimate(alpha)
    n, raters = _complete(correct).shape
    tail, freedom = (1 - level) / 2, (raters - 1, (raters - 1) * (n - 1))
    from scipy.stats import f as f_distribution  # it takes half a second, which most runs need not spend

    low, high = (1 - (1 - alpha) * f_distribution.isf(share, *freedom) for share in (tail, 1 - tail))
    return Estimate(alpha, *with_width(float(low), float(high)))


def _complete(correct: ArrayLike) -> Floats:
    """Return the questions that every rater answered."""
    table = np.asarray(correct, dtype=float)
    if table.ndim != 2:
        raise ValueError(f"correct must be (questions, raters), not {table.shape}")
    if not np.all(np.isnan(table) | (table == 0) | (table == 1)):
        raise ValueError("correct must hold 0, 1 and NaN alone")
    complete: Floats = table[~np.isnan(table).any(axis=1)]
    return complete
