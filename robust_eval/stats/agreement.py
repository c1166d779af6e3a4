"""Agreement between the raters of a question, from the labels of their answers alone.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers"
(docs/methods.md, §2).
Throughout, ``counts`` is (n, K): how many of the raters of question j gave label i. Rows may differ in their sum, the
number of raters r_j; those with less than two raters say nothing about agreement and are skipped. ``categories`` is
(n,): the number K_j of labels that question j could have had, at least as many as were given to it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.runtime.parallel import generators, run_parts
from robust_eval.stats.entropy import guessed_entropy
from robust_eval.stats.interval import Floats, defined_mean

Integers = NDArray[np.int64]
_PART = 2**22  # labels that are mapped in one part of the work, which takes about a second


def fleiss_kappa(counts: ArrayLike) -> float:
    """Return Fleiss' κ, the agreement beyond chance, where a label means the same in every question.

    κ = (P_o − P_e) / (1 − P_e); P_o is the mean over questions of the share of pairs of raters that agree,
    (Σ_i f_ij² − r_j) / (r_j (r_j − 1)), and P_e = Σ_i p_i² with p_i the mean over questions of f_ij / r_j.

    ``counts`` (n, K) has the number of raters of each question that gave each label; ValueError unless they are whole
    numbers.

    Returns
    -------
    At most 1; 0 is chance, below 0 less than chance. NaN where no question has two raters, or chance agreement is 1.

    References
    ----------
    Fleiss, Psychological Bulletin 76 (1971); with different numbers of raters Gwet, Handbook of Inter-Rater Reliability
    (2014), §2; questions with a single rater are left out of P_e as well (docs/methods.md, §2).

    Examples
    --------
    >>> round(fleiss_kappa([[3, 0], [0, 3], [2, 1]]), 3)
    0.55
    """
    f, rated = _counts(counts)
    if not rated.any():
        return float("nan")
    f = f[rated]
    shares = f / f.sum(axis=1, keepdims=True)
    return float(beyond_chance(question_agreement(f).mean(), (shares.mean(axis=0) ** 2).sum()))


def remapped_kappa(counts: ArrayLike, categories: ArrayLike, draws: int = 1000, seed: int = 0) -> float:
    """Return Fleiss' κ where labels mean nothing across questions, as cluster numbers do.

    The mean over ``draws`` (with ``seed``) that map the labels of each question into its K_j categories by a random
    injection, independent between questions. Where all K_j are equal, its limit for many questions is
    :func:`free_marginal_kappa`; where they are not, labels of two questions coincide by chance with probability
    1 / max(K_j, K_j′), which is less than the mean of 1 / K_j.

    ``counts`` (n, K) has the number of raters of each question that gave each label, ``categories`` (n,) the number of
    labels that the question could have had. ValueError unless they are whole numbers, and where a question has more
    labels than categories.

    Returns
    -------
    At most 1. Draws in which chance agreement is 1 are left out; NaN where all are, or no question has two raters.

    References
    ----------
    Cho & Watson, §5.2; what is mapped: docs/methods.md, §2.

    Examples
    --------
    >>> counts = [[3, 0], [3, 0], [2, 1]]  # clusters numbered by their size, which looks like a common opinion
    >>> fleiss_kappa(counts) < 0 < remapped_kappa(counts, [3, 3, 3])
    True
    """
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}")
    f, k, rated = _with_categories(counts, categories)
    if not rated.any():
        return float("nan")
    f, k = f[rated], k[rated]
    labels = np.count_nonzero(f, axis=1)
    shares = -np.sort(-f, axis=1)[:, : labels.max()] / f.sum(axis=1, keepdims=True)  # given labels first
    number = min(draws, -(-draws * shares.size // _PART))
    sizes = [len(part) for part in np.array_split(range(draws), number)]
    batches = list(zip(sizes, generators(seed, number), strict=True))
    chance = np.concatenate(run_parts("kappa", _chance_agreement, (labels, k, shares), batches))
    kappas = beyond_chance(question_agreement(f).mean(), chance)
    defined = kappas[~np.isnan(kappas)]
    return float(np.mean(defined)) if len(defined) else float("nan")


def _chance_agreement(mapped: tuple[Integers, Integers, Floats], part: tuple[int, np.random.Generator]) -> Floats:
    """Return the chance agreement of each random mapping of labels to categories, from the numbers of labels (n,) and
    of categories (n,) of the questions, and the share of each label (n, most labels).
    """
    labels, categories, shares = mapped
    draws, generator = part
    is_used = shares > 0
    chance = np.empty(draws)
    for draw in range(draws):
        places = _injections(labels, categories, generator)
        marginal = np.bincount(places[is_used], shares[is_used]) / len(labels)
        chance[draw] = (marginal**2).sum()
    return chance


def _injections(labels: Integers, categories: Integers, generator: np.random.Generator) -> Integers:
    """Return (n, most labels) distinct random categories for the labels of each question, undefined beyond them."""
    places = np.zeros((len(labels), labels.max()), dtype=np.int64)
    for label in range(labels.max()):
        rows = np.flatnonzero(labels > label)
        free = generator.integers(categories[rows] - label)  # counted among those that are not taken
        for taken in np.sort(places[rows, :label], axis=1).T:
            free += free >= taken
        places[rows, label] = free
    return places


def free_marginal_kappa(counts: ArrayLike, categories: ArrayLike) -> float:
    """Return the agreement beyond that of raters who choose uniformly among the categories: (P_o − m) / (1 − m), m the
    mean of 1/K_j.

    ``counts``, ``categories`` and errors (ValueError) are those of :func:`remapped_kappa`.

    Returns
    -------
    At most 1; NaN where no question has two raters, or all have one category.

    References
    ----------
    Brennan & Prediger, Educational and Psychological Measurement 41 (1981); Randolph (2005) with raters r_j.

    Examples
    --------
    >>> free_marginal_kappa([[3, 0, 0], [1, 1, 1]], [3, 3])
    0.25
    """
    f, k, rated = _with_categories(counts, categories)
    if not rated.any():
        return float("nan")
    f, k = f[rated], k[rated]
    return float(beyond_chance(question_agreement(f).mean(), (1 / k).mean()))


def gibbs_m2(counts: ArrayLike, categories: ArrayLike) -> float:
    """Return Gibbs' M2, the raters' certainty: 1 − the mean of K_j / (K_j − 1) · (1 − Σ_i p_ij²), p_ij = f_ij / r_j.

    ``counts``, ``categories`` and errors (ValueError) are those of :func:`remapped_kappa`.

    Returns
    -------
    In [0, 1]: 1 where all raters agree, 0 where they are spread evenly over the categories. A question with one
    category counts 1. NaN where no question has two raters.

    References
    ----------
    Gibbs & Poston, Social Forces 53 (1975); Cho & Watson, §5.2.

    Examples
    --------
    >>> gibbs_m2([[2, 2], [4, 0]], [2, 2])
    0.5
    """
    return defined_mean(question_m2(counts, categories))


def question_m2(counts: ArrayLike, categories: ArrayLike) -> Floats:
    """Return (n,) Gibbs' M2 of each question (:func:`gibbs_m2`); NaN with fewer than two raters.

    >>> question_m2([[2, 2], [4, 0], [1, 0]], [2, 2, 2]).tolist()
    [0.0, 1.0, nan]
    """
    f, k, rated = _with_categories(counts, categories)
    f, k = f[rated], k[rated]
    pairs = f.sum(axis=1) ** 2
    diversity = k * (pairs - (f**2).sum(axis=1)) / (np.maximum(k - 1, 1) * pairs)  # of whole numbers: 1 is exactly 1
    return _of_questions(rated, 1 - np.where(k > 1, diversity, 0.0))


def normalized_certainty(counts: ArrayLike, categories: ArrayLike) -> float:
    """Return the raters' certainty H_η = 1 + the mean of Σ_i p_ij log p_ij / log K_j, p_ij = f_ij / r_j.

    ``counts``, ``categories`` and errors (ValueError) are those of :func:`remapped_kappa`.

    Returns
    -------
    In [0, 1]: 1 where all raters agree, 0 where they are spread evenly over the categories. A question with one
    category counts 1. NaN where no question has two raters.

    References
    ----------
    Cho & Watson, §5.2; normalised entropy: Kumar, Kumar & Kapur, Int. J. General Systems 12 (1986).

    Examples
    --------
    >>> normalized_certainty([[2, 2], [4, 0]], [2, 2])
    0.5
    """
    return defined_mean(question_certainty(counts, categories))


def question_certainty(counts: ArrayLike, categories: ArrayLike) -> Floats:
    """Return (n,) the certainty H_η of each question (:func:`normalized_certainty`); NaN with fewer than two raters.

    >>> question_certainty([[2, 2], [4, 0], [1, 0]], [2, 2, 2]).tolist()
    [0.0, 1.0, nan]
    """
    f, k, rated = _with_categories(counts, categories)
    p = f[rated] / f[rated].sum(axis=1, keepdims=True)
    entropy = -(p * np.log(p, out=np.zeros_like(p), where=p > 0)).sum(axis=1)
    certainty = 1 - np.divide(entropy, np.log(k[rated]), out=np.zeros(len(p)), where=k[rated] > 1)
    return _of_questions(rated, np.clip(certainty, 0, 1))  # rounding removed at the source


class Certainty(NamedTuple):
    """Both certainties of a question's raters: normalised certainty H_η and Gibbs' M2."""

    certainty: float
    m2: float


def certainty_when_guessing(categories: int, raters: int) -> Certainty:
    """Return the expected certainties of independent raters who choose evenly among ``categories``.

    Neither is 0, because a few guesses are never spread evenly: E[M2] = 1/r, whatever K is, and
    E[H_η] = 1 + K · E[(X/r) ln(X/r)] / ln K, where X, how many of r raters choose one category, is binomial (r, 1/K).
    Both are 1 where there is one category, and NaN with less than two raters.

    References
    ----------
    docs/methods.md, §2. Var X = r/K · (1 − 1/K), so E[Σ_i p_ij²] = 1/K + (1 − 1/K)/r, which gives M2.

    Examples
    --------
    >>> [round(value, 3) for value in certainty_when_guessing(2, 2)]  # two raters agree in half of all cases
    [0.5, 0.5]
    """
    if raters < 2:
        return Certainty(math.nan, math.nan)
    if categories == 1:
        return Certainty(1.0, 1.0)
    return Certainty(1 - guessed_entropy(categories, raters) / math.log(categories), 1 / raters)


def question_agreement(counts: ArrayLike) -> Floats:
    """Return (n,) the share P_j of a question's pairs of raters that agree; NaN with fewer than two raters.

    >>> question_agreement([[3, 0], [2, 1], [1, 0]]).round(2).tolist()
    [1.0, 0.33, nan]
    """
    f, rated = _counts(counts)
    raters = f[rated].sum(axis=1)
    return _of_questions(rated, ((f[rated] ** 2).sum(axis=1) - raters) / (raters * (raters - 1)))


def squared_shares(counts: ArrayLike) -> Floats:
    """Return (n,) Σ_i p_ij², the probability that two answers drawn from a question's raters agree; NaN with fewer than
    two raters.

    >>> squared_shares([[2, 2], [4, 0], [1, 0]]).tolist()
    [0.5, 1.0, nan]
    """
    f, rated = _counts(counts)
    return _of_questions(rated, ((f[rated] / f[rated].sum(axis=1, keepdims=True)) ** 2).sum(axis=1))


def _of_questions(rated: NDArray[np.bool_], values: Floats) -> Floats:
    """Return (n,) the values of the questions that are ``rated`` (n,); NaN for the others."""
    of_all = np.full(len(rated), np.nan)
    of_all[rated] = values
    return of_all


def beyond_chance(observed: ArrayLike, chance: ArrayLike) -> Floats:
    """Return κ of observed and chance agreement, (observed − chance) / (1 − chance); NaN if chance agreement is 1.

    >>> beyond_chance([0.75, 1.0], [0.5, 1.0]).tolist()
    [0.5, nan]
    """
    actual, expected = np.broadcast_arrays(np.asarray(observed, dtype=float), np.asarray(chance, dtype=float))
    kappa: Floats = np.divide(
        actual - expected, 1 - expected, out=np.full(actual.shape, np.nan), where=expected < 1 - 1e-12
    )
    return kappa


def _counts(counts: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the checked label counts, and a mask of the questions with at least two raters."""
    f = np.asarray(counts, dtype=float)
    if f.ndim != 2:
        raise ValueError(f"counts must be (questions, labels), not {f.shape}")
    if not np.all(np.isfinite(f)) or np.any(f < 0) or np.any(f != np.round(f)):
        raise ValueError("counts must be non-negative whole numbers of raters")
    return f, f.sum(axis=1) >= 2


def _with_categories(counts: ArrayLike, categories: ArrayLike) -> tuple[Floats, Integers, NDArray[np.bool_]]:
    """Return label counts, categories, and a mask of the questions with at least two raters; ValueError names a
    question with too many labels.
    """
    f, rated = _counts(counts)
    k = np.asarray(categories)
    if k.shape != (len(f),):
        raise ValueError(f"categories must contain a number for each of the {len(f)} questions, not {k.shape}")
    if not np.all(np.isfinite(k)) or np.any(k != np.round(k)) or np.any(k < 1) or np.any(k > 2**31):
        raise ValueError("categories must be whole numbers of at least 1")
    k = k.astype(np.int64)
    labels = np.count_nonzero(f, axis=1)
    if np.any(labels > k):
        row = int(np.argmax(labels > k))
        raise ValueError(f"question {row} has {labels[row]} labels, more than its {k[row]} categories")
    return f, k, rated


def cohen_kappa(counts: ArrayLike) -> float:
    """Return Cohen's κ, the agreement beyond chance, (observed − chance) / (1 − chance).

    ``counts`` (K, K) has the numbers of items to which the first rater gave the label of the row and the second that of
    the column. ValueError unless it is square and not negative.

    Returns
    -------
    At most 1; NaN without an item, and where both give all items the same label, so that chance agreement is 1.

    References
    ----------
    Cohen, Educational and Psychological Measurement 20 (1960).

    Examples
    --------
    >>> round(cohen_kappa([[20, 5], [10, 15]]), 3)
    0.4
    """
    table = np.asarray(counts, dtype=float)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or np.any(table < 0):
        raise ValueError(f"counts must be a square table of numbers of at least 0, not {table.shape}")
    total = float(table.sum())
    expected = float(table.sum(axis=0) @ table.sum(axis=1))
    # in whole numbers, so that the test for a chance agreement of 1, expected / total², is exact
    if total == 0 or expected == total**2:
        return math.nan
    from statsmodels.stats.inter_rater import (
        cohens_kappa as kappa_of,  # it takes a second, which most runs need not spend
    )

    return float(kappa_of(table, return_results=False))
