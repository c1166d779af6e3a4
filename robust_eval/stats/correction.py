"""Estimates from verdicts that err, corrected by human labels of some answers (docs/methods.md, §5).

Means are prediction-powered: verdicts of all answers say how far the labelled ones stand for the others. Breaking
temperatures go through the rates at which a grader errs.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robust_eval.stats.estimate import UNDEFINED, Estimate
from robust_eval.stats.interval import (
    ROUNDING,
    SHARE,
    Floats,
    check_level,
    degenerate_interval,
    share_bounds,
    student_quantile,
)

MIN_LABELS = 20
"""Minimum number of labels of a separate mean, or of a separate error rate, at one temperature."""
MIN_YOUDEN = 0.2
"""Minimum of sensitivity + specificity − 1; below it verdicts are not corrected."""
_MIN_REMAINDER = 0.2
"""Minimum of 1 − leverage as the divisor of a residual."""


class _Pool(NamedTuple):
    """Corrected estimate from a pool of answers: the mean of the labels, moved by the difference of the verdicts.

    ``influence`` (N,) is the effect of each answer of the run on the estimate. ``is_degenerate`` is True if labels
    do not vary about the verdicts.
    """

    estimate: float
    influence: Floats
    is_degenerate: bool


def corrected_mean(
    verdicts: ArrayLike,
    labels: ArrayLike,
    strata: ArrayLike | None = None,
    level: float = 0.95,
    *,
    questions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    counts: ArrayLike | None = None,
) -> Estimate:
    """Return the mean of the labels of all answers, estimated from some labels and all verdicts.

    It is mean_n(Y) + λ (mean_N(G) − mean_n(G)), where G are verdicts, Y labels, n the answers with a label and N those
    without; λ = Cov_n(Y, G) / ((1 + n/N) Var(G)), between 0 and 1. λ is 0 if verdicts are uninformative or every answer
    has a label: the result is then the mean of the labels alone. Each stratum has such a mean, weighted by its share of
    the answers. All share one λ, because one estimated from the few labels of each would bias the mean: numerator and
    denominator are sums over strata, with the weight share² / n.

    The interval is Student's, with one degree of freedom less than the number of questions with labels. The variance
    sums the contributions of the answers to one question before squaring, because they depend on one another. If all
    labels agree with the verdicts, or all labels are equal, the interval is widened by what that many labels may have
    missed (:func:`~robust_eval.stats.interval.degenerate_interval`).

    Parameters
    ----------
    verdicts
        (N,) 0 or 1. Answers without a verdict (NaN) are left out.
    labels
        (N,) 0 or 1; NaN where nobody has labelled the answer.
    strata
        (N,) numbers, such as temperatures. Neighbours are pooled until each pool has 20 labels. Strata must not be
        defined by the verdict, which would not vary within them: use ``weights`` for labels drawn by verdict.
    level
        Nominal coverage, in (0, 1).
    questions
        (N,) names of questions, or of groups of them that depend on one another; by default each answer is one.
    weights
        (N,) one over the probability with which each answer was drawn for labelling, where that differs within a pool.
    counts
        (N,) how much each answer counts; by default all count the same.

    Returns
    -------
    Estimate with ``value``, ``low`` and ``high``, in [0, 1]; NaN without a label. ValueError for arrays of different
    lengths, and values other than those above.

    References
    ----------
    Angelopoulos, Bates, Fannjiang, Jordan, Zrnic, "Prediction-powered inference", Science 382 (2023); power tuning:
    Angelopoulos, Duchi, Zrnic, "PPI++", arXiv:2311.01453 (2023).

    Examples
    --------
    >>> mean = corrected_mean([1, 1, 0, 0, 1, 1, 0, 1], [1, 1, 0, 1, *[math.nan] * 4])
    >>> round(mean.value, 4)
    0.8083
    """
    data = _JudgedAnswers.of(verdicts, labels, strata, questions, weights, counts, level)
    if not data.labelled.any():
        return UNDEFINED
    number = _pools(data.strata, data.labelled)
    masks = [number == place for place in np.unique(number)]
    power = _power(data, masks)
    estimate, influence, is_degenerate = 0.0, np.zeros(len(data)), True
    for inside in masks:
        pool, share = _pool(data, inside, power), data.share(inside)
        estimate, influence = estimate + share * pool.estimate, influence + share * pool.influence
        is_degenerate = is_degenerate and pool.is_degenerate
    labelled = int(data.labelled.sum())
    influence *= math.sqrt(labelled / (labelled - len(masks) + 1))  # each pool has a mean of its own
    return data.interval(estimate, influence, is_degenerate, data.labelled, level)


def corrected_curve(
    verdicts: ArrayLike,
    labels: ArrayLike,
    temperatures: ArrayLike,
    questions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    counts: ArrayLike | None = None,
) -> dict[float, Estimate]:
    """Return the corrected mean at each temperature, ascending; arguments as :func:`corrected_mean` has them.

    A temperature with fewer than 20 labels borrows those of its neighbours: labels are regressed on verdicts and on the
    temperature, because errors, and what verdicts mean, change with it. The estimate is what the regression says of the
    verdicts at this temperature. At each end its interval is the wider one of Student's and of Wilson's score interval
    with the effective number of questions: right answers are rare where a curve ends, wrong ones where it begins.

    References
    ----------
    MacKinnon & White, Journal of Econometrics 29 (1985): residuals over 1 − leverage. Wilson, JASA 22 (1927).
    """
    data = _JudgedAnswers.of(verdicts, labels, temperatures, questions, weights, counts, 0.95)
    levels = np.unique(data.strata).tolist()
    if not data.labelled.any():
        return dict.fromkeys(levels, UNDEFINED)
    means = {}
    for t in levels:
        neighbours = _around(t, data.strata, data.labelled)
        inside, at_level = np.isin(data.strata, neighbours), data.strata == t
        pool = _pool(data, inside, _power(data, [inside]))
        if len(neighbours) == 1:
            means[t] = data.interval(pool.estimate, pool.influence, pool.is_degenerate, data.labelled & inside)
        else:
            means[t] = _by_neighbours(data, inside, at_level, pool.is_degenerate)
    return means


def _by_neighbours(
    data: "_JudgedAnswers", inside: NDArray[np.bool_], at_level: NDArray[np.bool_], is_degenerate: bool
) -> Estimate:
    """Return the mean of the answers ``at_level`` by the labels ``inside`` the pool of temperatures."""
    labelled = data.labelled & inside
    place = np.unique(data.strata, return_inverse=True)[1].astype(float)
    design = np.column_stack([np.ones(len(data)), data.verdicts, place - place[at_level][0]])[labelled]
    at = np.array([1.0, data.mean(at_level), 0.0])
    weight, y = (data.weights * data.counts)[labelled], data.labels[labelled]
    inverse = np.linalg.pinv(design.T @ (weight[:, None] * design))
    coefficients = inverse @ (design.T @ (weight * y))
    pull = weight * (design @ (inverse @ at))
    leverage = weight * np.einsum("ij,jk,ik->i", design, inverse, design)
    influence = coefficients[1] * data.centred(at_level)
    influence[labelled] += pull * (y - design @ coefficients) / np.maximum(1 - leverage, _MIN_REMAINDER)
    return data.interval(float(at @ coefficients), influence, is_degenerate, labelled, parameters=3, score=at_level)


def corrected_rate(rate: ArrayLike, sensitivity: ArrayLike, specificity: ArrayLike) -> Any:
    """Return the corrected share of right answers behind a share of right verdicts, clipped to [0, 1].

    (rate + specificity − 1) / (sensitivity + specificity − 1); NaN where that divisor is below 0.2, because the
    verdicts are then too uninformative. Arrays broadcast; NaN in, NaN out. ValueError for a rate outside of [0, 1].

    References
    ----------
    Rogan & Gladen, American Journal of Epidemiology 107 (1978).

    Examples
    --------
    >>> round(corrected_rate(0.5, 0.9, 0.8), 4), corrected_rate(0.5, 0.6, 0.5)
    (0.4286, nan)
    """
    arguments = {"rate": rate, "sensitivity": sensitivity, "specificity": specificity}
    arrays = [np.asarray(value, dtype=float) for value in arguments.values()]
    for name, array in zip(arguments, arrays, strict=True):
        if np.any((array < -ROUNDING) | (array > 1 + ROUNDING)):
            raise ValueError(f"{name} must be in [0, 1]")
    p, se, sp = arrays
    youden = se + sp - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        corrected = np.clip((p + sp - 1) / youden, 0, 1)
    defined = np.where(youden < MIN_YOUDEN - ROUNDING, np.nan, corrected)
    return float(defined) if defined.ndim == 0 else defined


def labels_to_halve(labels: int, width: float, width_of_all: float) -> float:
    """Return the number of human labels that would halve an interval of ``width``.

    The variance is that of questions and verdicts, which the interval of all answers labelled would have
    (``width_of_all``), and a rest that falls with one over the labels. inf where half lies below what labels can do;
    NaN where there is no interval, or one without an end.

    >>> labels_to_halve(100, 0.2, 0.0), labels_to_halve(100, 0.2, 0.12)
    (400, inf)
    """
    if not math.isfinite(width) or math.isnan(width_of_all) or width <= 0:
        return math.nan
    fixed = min(width_of_all, width) ** 2
    rest, target = width**2 - fixed, (width / 2) ** 2 - fixed
    return math.inf if target <= 0 else math.ceil(labels * rest / target - ROUNDING)


class _JudgedAnswers(NamedTuple):
    """Answers with a verdict, of which some have a label, as arrays (N,)."""

    verdicts: Floats
    labels: Floats
    strata: Floats
    questions: NDArray[np.intp]
    weights: Floats
    counts: Floats

    @classmethod
    def of(
        cls,
        verdicts: ArrayLike,
        labels: ArrayLike,
        strata: ArrayLike | None,
        questions: ArrayLike | None,
        weights: ArrayLike | None,
        counts: ArrayLike | None,
        level: float,
    ) -> "_JudgedAnswers":
        """Check the arguments of a correction; ValueError names the one that is wrong."""
        check_level(level)
        g, y = np.asarray(verdicts, dtype=float), np.asarray(labels, dtype=float)
        n = len(g)
        arrays = {"labels": y, "strata": strata, "questions": questions, "weights": weights, "counts": counts}
        for name, array in arrays.items():
            if array is not None and np.shape(array) != (n,):
                raise ValueError(f"{name} must contain a value for each of {n} verdicts, not {np.shape(array)}")
        for name, values in (("verdicts", g), ("labels", y)):
            if not np.all(np.isnan(values) | (values == 0) | (values == 1)):
                raise ValueError(f"{name} must contain only 0, 1 and NaN")
        has_verdict = ~np.isnan(g)
        ones = np.ones(n)
        place = np.arange(n) if questions is None else np.unique(np.asarray(questions), return_inverse=True)[1]
        w, m = (ones if values is None else np.asarray(values, dtype=float) for values in (weights, counts))
        for name, values in (("weights", w), ("counts", m)):
            if not np.all(np.isfinite(values) & (values > 0)):
                raise ValueError(f"{name} must be finite and above 0")
        level_of = np.zeros(n) if strata is None else np.asarray(strata, dtype=float)
        level_of = np.where(np.isnan(level_of), np.inf, level_of)
        return cls(
            g[has_verdict], y[has_verdict], level_of[has_verdict], place[has_verdict], w[has_verdict], m[has_verdict]
        )

    def __len__(self) -> int:
        return len(self.verdicts)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.labels)

    def share(self, rows: NDArray[np.bool_]) -> float:
        """Return the share of these answers among all judged ones."""
        return float(self.counts[rows].sum() / self.counts.sum())

    def label_share(self, labelled: NDArray[np.bool_]) -> Floats:
        """Return (N,) the weight of each label in the mean of those of some answers; they sum to 1."""
        weights = np.where(labelled, self.weights * self.counts, 0)
        return np.asarray(weights / weights.sum())

    def mean(self, rows: NDArray[np.bool_]) -> float:
        """Return the mean verdict of these answers."""
        return float(np.average(self.verdicts[rows], weights=self.counts[rows]))

    def centred(self, rows: NDArray[np.bool_]) -> Floats:
        """Return (N,) the influence of each answer on the mean verdict of these."""
        weight = np.where(rows, self.counts, 0) / self.counts[rows].sum()
        return np.asarray(weight * (self.verdicts - self.mean(rows)))

    def interval(
        self,
        estimate: float,
        influence: Floats,
        is_degenerate: bool,
        labelled: NDArray[np.bool_],
        level: float = 0.95,
        parameters: int = 1,
        score: NDArray[np.bool_] | None = None,
    ) -> Estimate:
        """Return a corrected estimate with the interval that follows from the influence of each question.

        ``parameters`` is the number of fitted ones; ``score`` (N,) are the answers whose mean this is, if the interval
        is to hold Wilson's as well.
        """
        clusters = len(np.unique(self.questions[labelled]))
        inner = min(max(estimate, 0.0), 1.0)
        if clusters <= parameters:
            return Estimate(inner)
        by_question = np.bincount(self.questions, influence, minlength=int(self.questions.max()) + 1)
        number = len(np.unique(self.questions))
        error = math.sqrt(float((by_question**2).sum()) * number / (number - 1))
        quantile = student_quantile(level, clusters - parameters)
        low, high = estimate - quantile * error, estimate + quantile * error
        if score is not None:
            share = min(max(estimate, 0.5 / clusters), 1 - 0.5 / clusters)
            ends = share_bounds(share, len(np.unique(self.questions[score])), error, quantile)
            low, high = min(low, ends[0]), max(high, ends[1])
        if is_degenerate or error <= ROUNDING:
            lower, upper = degenerate_interval(inner, clusters, SHARE, level)
            low, high = low - (inner - lower), high + (upper - inner)
        return Estimate(inner, min(max(low, 0.0), inner), max(min(high, 1.0), inner))


def _power(data: _JudgedAnswers, pools: Sequence[NDArray[np.bool_]]) -> float:
    """Return the weight λ of the verdicts (:func:`corrected_mean`) for some pools, each a mask of the answers."""
    covariance = variance = 0.0
    for inside in pools:
        labelled = data.labelled & inside
        n, unlabelled = int(labelled.sum()), int(inside.sum() - labelled.sum())
        of_verdicts = float(np.cov(data.verdicts[inside], aweights=data.counts[inside])) if inside.sum() > 1 else 0.0
        if not unlabelled or of_verdicts <= ROUNDING:
            continue
        share, y = data.label_share(labelled), np.where(labelled, data.labels, 0)
        weight = data.share(inside) ** 2 / n
        covariance += weight * float(share @ ((y - share @ y) * (data.verdicts - share @ data.verdicts)))
        variance += weight * (1 + n / unlabelled) * of_verdicts
    return min(max(covariance / variance, 0.0), 1.0) if variance else 0.0


def _pool(data: _JudgedAnswers, inside: NDArray[np.bool_], power: float) -> _Pool:
    """Return the estimate from the answers ``inside`` a pool, which has a label, with λ the ``power``.

    The form with all N + n answers, mean_n(Y) + β (mean(G) − mean_n(G)) with β = λ (1 + n/N), is the same number, and
    holds where labels were drawn with unequal probabilities as well.
    """
    labelled = data.labelled & inside
    n, unlabelled = int(labelled.sum()), int(inside.sum() - labelled.sum())
    share, y = data.label_share(labelled), np.where(labelled, data.labels, 0)
    label, verdict = float(share @ y), float(share @ data.verdicts)
    slope = power * (1 + n / unlabelled) if unlabelled else 0.0
    estimate = label + slope * (data.mean(inside) - verdict)
    rest = np.where(labelled, y - label - slope * (data.verdicts - verdict), 0)
    influence = share * rest + slope * data.centred(inside)
    agree = bool(np.all(y[labelled] == data.verdicts[labelled]))
    return _Pool(estimate, influence, agree or bool(np.ptp(y[labelled]) == 0))


def _pools(strata: Floats, labelled: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (N,) the number of each answer's pool: a run of neighbouring strata with enough labels, or all strata."""
    levels, place = np.unique(strata, return_inverse=True)
    pools, pool, labels = np.zeros(len(levels), dtype=np.intp), 0, 0
    for stratum, number in enumerate(np.bincount(place[labelled], minlength=len(levels))):
        pools[stratum], labels = pool, labels + number
        if labels >= MIN_LABELS:
            pool, labels = pool + 1, 0
    return np.minimum(pools, max(pool - 1, 0))[place]  # the last strata join the pool before them


def _around(temperature: float, temperatures: Floats, labelled: NDArray[np.bool_]) -> list[float]:
    """Return a temperature with as many nearest neighbours, equally many on both sides, as give it enough labels."""
    levels = [float(level) for level in np.unique(temperatures)]
    place, reach = levels.index(temperature), 0
    while True:
        pool = levels[max(0, place - reach) : place + reach + 1]
        if int((labelled & np.isin(temperatures, pool)).sum()) >= MIN_LABELS or len(pool) == len(levels):
            return pool
        reach += 1
