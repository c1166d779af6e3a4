"""The Factual Robustness Score: how sure the model was, and at which temperature the fact breaks.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness". The functions at the top are the
definitions; :class:`FactualRobustness` applies them to a graded answer table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import isotonic_regression

from robust_eval.answer import rows as table_rows
from robust_eval.error import UserError
from robust_eval.metric.crossing import crossings
from robust_eval.metric.frs_tables import certainty_bins, type_shares
from robust_eval.metric.score import (
    Estimate,
    Floats,
    Grid,
    Measured,
    Score,
    estimate,
    grid,
    mean_estimate,
    question_groups,
)
from robust_eval.question import Question

SUM_TOLERANCE = 1e-3
"""Probabilities computed in half precision sum to 1 within this."""
TOLERANCE = 1e-9
"""An accuracy this close below the threshold is a tie and holds: sums of probabilities are not exact."""


def top_entropy(probabilities: ArrayLike, k: int = 10, renormalize: bool = True) -> Floats:
    """Entropy of the k most probable tokens, with logarithm to base k.

    Parameters
    ----------
    probabilities
        (..., V), the model's distribution over the next token at temperature 1. Fewer than k tokens count as k with
        probability 0 for the others.
    k
        At least 2.
    renormalize
        Divide the k probabilities by their sum. ``False`` is for comparison only: it calls a flat distribution over
        a large vocabulary certain.

    Returns
    -------
    (...,) in [0, 1]; NaN where a probability is NaN or the k largest are all 0.

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
        raise ValueError("probabilities: the last axis must hold at least one token")
    if np.any(p < 0) or np.any(p.sum(axis=-1) > 1 + SUM_TOLERANCE):
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
    """The lowest temperature of the grid at which a fact is answered right in less than ``threshold`` of the trials.

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
        nearest in least squares, which ten noisy trials need to be unbiased where the curve lies flat near one half.

    Returns
    -------
    (n,): inf for a fact that is *unbroken* at every temperature; NaN where a temperature without any reply precedes
    every break.

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
        raise ValueError("accuracy must lie in [0, 1]")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], not {threshold}")
    if estimator == "isotonic":
        curve = np.array([_non_increasing(row) for row in curve]).reshape(curve.shape)
    elif estimator != "first":
        raise ValueError(f"estimator must be 'first' or 'isotonic', not {estimator!r}")

    unknown = np.isnan(curve)
    stops = unknown | (curve < threshold - TOLERANCE)
    first = stops.argmax(axis=1)
    broken = levels[first]
    return np.where(~stops.any(axis=1), np.inf, np.where(unknown[np.arange(len(curve)), first], np.nan, broken))


def _non_increasing(accuracy: Floats) -> Floats:
    """Least-squares non-increasing fit through the defined points of one curve; undefined ones stay NaN."""
    fitted = accuracy.copy()
    defined = ~np.isnan(accuracy)
    if defined.any():
        fitted[defined] = isotonic_regression(accuracy[defined], increasing=False).x
    return fitted


def factual_robustness_score(
    entropy: ArrayLike, breaking_temperature: ArrayLike, d: float, unbroken: str = "one"
) -> Floats:
    """FRS = (f + 1) / (f + 2) with f(H, d, t_b) = (1 − H)^d (t_b + 1) − H / (t_b + 1).

    Parameters
    ----------
    entropy
        H, in [0, 1]: the uncertainty of the greedy answer (:func:`top_entropy`, averaged over its tokens).
    breaking_temperature
        t_b ≥ 0 (:func:`breaking_temperature`); inf for an unbroken fact. Broadcasts against ``entropy``.
    d
        Weight of the entropy, any number above 0; the paper uses 1, 2, 5, 10, 50.
    unbroken
        ``one``: an unbroken fact scores 1, as in the paper. ``bound``: inf is taken as the limit of the formula
        (1 for H < 1, 0.5 for H = 1); replace inf by the last grid temperature for a lower bound.

    Returns
    -------
    (n,) in [0, 1]; NaN where an argument is NaN.

    References
    ----------
    Fastowski et al., Eq. 3, 4 and 6; d below 1: appendix D.

    Examples
    --------
    >>> factual_robustness_score([0.0, 1.0, 0.2], [0.0, 0.0, np.inf], d=1).tolist()
    [0.6666666666666666, 0.0, 1.0]
    """
    h, t = np.broadcast_arrays(np.asarray(entropy, dtype=float), np.asarray(breaking_temperature, dtype=float))
    if np.any((h < 0) | (h > 1)):
        raise ValueError("entropy must lie in [0, 1]")
    if np.any(t < 0):
        raise ValueError("breaking_temperature must not be negative")
    if not d > 0 or math.isinf(d):
        raise ValueError(f"d must be a positive number, not {d}")
    if unbroken not in ("one", "bound"):
        raise ValueError(f"unbroken must be 'one' or 'bound', not {unbroken!r}")
    infinite = np.isinf(t)
    finite = np.where(infinite, 0.0, t)
    f = (1 - h) ** d * (finite + 1) - h / (finite + 1)
    limit = np.where((h < 1) | (unbroken == "one"), 1.0, 0.5)
    score = np.where(infinite, limit, (f + 1) / (f + 2))
    return np.where(np.isnan(h) | np.isnan(t), np.nan, score)


class Breaks(NamedTuple):
    """Where each of n facts breaks, by one way of telling how accurately it is answered.

    ``accuracy`` is (n, T) on the grid; ``breaking`` (n,), inf where a fact is unbroken up to the temperature ``last``;
    ``interval`` holds the ends of a 95 % interval of it, where there is one.
    """

    accuracy: Floats
    breaking: Floats
    last: float
    interval: dict[str, Floats]


@dataclass
class FactualRobustness:
    """FRS of every kept question and what the paper reports around it (METHODS §1)."""

    d: Any = field(default_factory=lambda: [1.0, 2.0, 5.0, 10.0, 50.0])
    """Weights of the entropy: a number or a list of numbers above 0."""
    k: int = 10
    """Most probable tokens that enter the entropy; also the base of its logarithm."""
    renormalize: bool = True
    """Divide those k probabilities by their sum."""
    include_eos: bool = False
    """Count the token that ends the answer among the answer's tokens."""
    threshold: float = 0.5
    """A fact breaks where its accuracy falls below this."""
    estimator: str = "first"
    """first | isotonic: how the breaking temperature is read off the accuracies."""
    unbroken: str = "one"
    """one | bound: what an unbroken fact scores."""

    def __post_init__(self) -> None:
        values = self.d if isinstance(self.d, Sequence) and not isinstance(self.d, str) else [self.d]
        numbers = [isinstance(d, int | float) and not isinstance(d, bool) and 0 < d < math.inf for d in values]
        if not values or not all(numbers):
            raise ValueError(f"d must be a number above 0 or a list of such numbers, not {self.d}")
        self.d = sorted({float(d) for d in values})
        if self.k < 2:
            raise ValueError(f"k must be at least 2, not {self.k}")
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must lie above 0 and at most at 1, not {self.threshold}")
        if self.estimator not in ("first", "isotonic"):
            raise ValueError(f"estimator must be first or isotonic, not {self.estimator}")
        if self.unbroken not in ("one", "bound"):
            raise ValueError(f"unbroken must be one or bound, not {self.unbroken}")

    @property
    def top_logprobs(self) -> int:
        """Log-probabilities that the entropy needs of each token of a greedy answer."""
        return self.k

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """UserError unless answers come at two temperatures or more."""
        if len(temperatures) < 2:
            raise UserError(
                "metric=frs needs answers at several temperatures to find where a fact breaks, and the sampler asks "
                f"at {len(temperatures)}: choose sampler=temperature_sweep with at least two temperatures above 0"
            )

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """FRS for each d, accuracy by temperature, unbroken facts, and how entropy goes with breaking."""
        ids = [question.id for question in questions]
        groups = question_groups(questions)
        answers = grid(ids, measured.graded)
        temperatures = answers.temperatures
        estimates = self._estimates(ids, measured, answers)
        headline, *others = estimates
        accuracy, breaking = estimates[headline].accuracy, estimates[headline].breaking
        entropy = self.initial_entropy(ids, measured.baseline)
        scores = self._scores(entropy, estimates[headline])

        result = Score(
            settings={"threshold": self.threshold, "k": self.k, "unbroken": self.unbroken, "estimator": headline}
        )
        for d, values in scores.items():
            result.values[f"frs.d{d:g}"] = mean_estimate(values, groups, seed)
        unbroken = np.where(np.isnan(breaking), np.nan, np.isinf(breaking).astype(float))
        result.values["frs.unbroken_share"] = mean_estimate(unbroken, groups, seed)
        result.values["frs.breaking_temperature.mean_broken"] = _mean_broken(breaking, groups, seed)
        result.values["frs.breaking_temperature.median"] = _median(breaking)
        result.values["frs.entropy.mean"] = mean_estimate(entropy, groups, seed)
        result.values["frs.count.broken"] = Estimate(float(np.isfinite(breaking).sum()))
        result.values["frs.count.unbroken"] = Estimate(float(np.isinf(breaking).sum()))
        result.values["frs.count.undefined"] = Estimate(float(np.isnan(breaking + 0 * entropy).sum()))
        result.values |= entropy_against_breaking(entropy, breaking, temperatures, groups, seed)

        survival = {t: np.where(np.isnan(breaking), np.nan, (breaking > t).astype(float)) for t in temperatures}
        result.curves["accuracy"] = _curve(accuracy, temperatures, groups, seed)
        result.curves["frs.survival"] = {float(t): mean_estimate(alive, groups, seed) for t, alive in survival.items()}

        by_question = {
            "question_id": ids,
            "question": [question.text for question in questions],
            "type": [question.type for question in questions],
            "category": [question.category for question in questions],
            "entropy": entropy,
            "breaking_temperature": breaking,
            **{f"frs_d{d:g}": values for d, values in scores.items()},
        }
        for name in others:
            other = estimates[name]
            for d, values in self._scores(entropy, other).items():
                result.values[f"frs.{name}.d{d:g}"] = mean_estimate(values, groups, seed)
            result.values[f"frs.{name}.breaking_temperature.mean_broken"] = _mean_broken(other.breaking, groups, seed)
            result.values[f"frs.{name}.breaking_temperature.median"] = _median(other.breaking)
            by_question[f"breaking_temperature_{name}"] = other.breaking
            if name == "offgrid":
                by_question |= {f"breaking_temperature_{name}_{end}": value for end, value in other.interval.items()}
                for end in ("lower", "upper"):
                    bound = curve_column(ids, measured.curves, temperatures, end)
                    result.curves[f"accuracy_certified_{end}"] = _curve(bound, temperatures, groups, seed)
            else:
                result.curves[f"accuracy_{name}"] = _curve(other.accuracy, temperatures, groups, seed)
        result.tables["frs"] = pa.table(by_question)
        result.tables["frs_accuracy"] = pa.table(
            {
                "question_id": np.repeat(ids, len(temperatures)),
                "temperature": np.tile(temperatures, len(ids)),
                "correct": answers.correct.ravel(),
                "replies": answers.replies.ravel(),
            }
        )
        result.tables["frs_certainty"] = certainty_bins(measured.graded)
        result.tables["frs_types"] = type_shares(scores[self.d[0]], [question.type for question in questions])
        return result

    def _estimates(self, ids: list[str], measured: Measured, answers: Grid) -> dict[str, Breaks]:
        """Where the facts break by every way of telling, the headline's first."""
        temperatures = answers.temperatures

        def on_grid(accuracy: Floats) -> Breaks:
            breaking = breaking_temperature(accuracy, temperatures, self.threshold, self.estimator)
            return Breaks(accuracy, breaking, float(temperatures[-1]), {})

        trials = on_grid(answers.accuracy)
        if measured.curves.num_rows == 0:
            return {"trials": trials}
        told = np.clip(curve_column(ids, measured.curves, temperatures, "accuracy"), 0, 1)
        if measured.estimator == "exact":
            crossed = crossings(ids, measured.curves, self.threshold)
            last = pc.max(measured.curves["temperature"]).as_py()
            interval = {end: crossed[end] for end in ("low", "high")}
            return {"exact": trials, "offgrid": Breaks(told, crossed["value"], last, interval)}
        if measured.estimator == "combined":
            return {"combined": on_grid(told), "trials": trials}
        return {"trials": trials, "combined": on_grid(told)}

    def _scores(self, entropy: Floats, estimated: Breaks) -> dict[float, Floats]:
        """FRS of every question for each d."""
        breaking = estimated.breaking
        if self.unbroken == "bound":
            breaking = np.where(np.isinf(breaking), estimated.last, breaking)
        return {d: factual_robustness_score(entropy, breaking, d, self.unbroken) for d in self.d}

    def initial_entropy(self, question_ids: Sequence[str], baseline: pa.Table) -> Floats:
        """H of each question: mean top-k entropy over the tokens of its greedy answer; NaN where there are none."""
        rows = {question_id: index for index, question_id in enumerate(question_ids)}
        entropy = np.full(len(rows), np.nan)
        columns = ["question_id", "top_logprobs", "answer_tokens"]
        for question_id, top_logprobs, answer_tokens in table_rows(baseline, *columns):
            if question_id not in rows or not top_logprobs:
                continue
            tokens = top_logprobs if self.include_eos else top_logprobs[:answer_tokens]
            if any(len(token) < self.k for token in tokens):
                raise UserError(
                    f"metric.frs.k={self.k} needs {self.k} log-probabilities a token, and the answer to question "
                    f"{question_id} brings {min(map(len, tokens))}: choose a smaller k"
                )
            if tokens:
                largest = [sorted(token, reverse=True)[: self.k] for token in tokens]  # some servers add the one drawn
                entropy[rows[question_id]] = top_entropy(np.exp(largest), self.k, self.renormalize).mean()
        return entropy


def curve_column(question_ids: Sequence[str], curves: pa.Table, temperatures: Floats, column: str) -> Floats:
    """(n, T) a column of the curves; NaN for questions that have none."""
    place = {question_id: index for index, question_id in enumerate(question_ids)}
    level = {float(temperature): index for index, temperature in enumerate(temperatures)}
    found = np.full((len(place), len(level)), np.nan)
    for question_id, temperature, value in table_rows(curves, "question_id", "temperature", column):
        if temperature in level:
            found[place[question_id], level[temperature]] = value
    return found


def _curve(accuracy: Floats, temperatures: Floats, groups: Sequence[str] | None, seed: int) -> dict[float, Estimate]:
    return {float(t): mean_estimate(accuracy[:, column], groups, seed) for column, t in enumerate(temperatures)}


def _mean_broken(breaking: Floats, groups: Sequence[str] | None, seed: int) -> Estimate:
    """Of the breaking temperatures of the facts that break."""
    return mean_estimate(np.where(np.isinf(breaking), np.nan, breaking), groups, seed)


def _median(breaking: Floats) -> Estimate:
    """Of the breaking temperatures; inf where half or more are unbroken."""
    defined = breaking[~np.isnan(breaking)]
    return Estimate(float(np.median(defined)) if len(defined) else float("nan"))


def entropy_against_breaking(
    entropy: Floats, breaking: Floats, temperatures: Floats, groups: Sequence[str] | None, seed: int
) -> dict[str, Estimate]:
    """How H goes with t_b (Fastowski et al., Fig. 3): Pearson over broken facts, as in the paper; beside it Pearson
    with the unbroken at the next grid step, and Kendall's τ_b over all, because dropping the unbroken weakens r.
    """
    step = float(np.diff(temperatures).min()) if len(temperatures) > 1 else 1.0
    known = ~np.isnan(entropy) & ~np.isnan(breaking)
    placed = np.where(np.isinf(breaking), temperatures[-1] + step, breaking)
    pearson = "frs.entropy_vs_breaking.pearson"
    return {
        f"{pearson}_broken": estimate(_pearson, [entropy, placed], groups, seed, known & np.isfinite(breaking)),
        f"{pearson}_all": estimate(_pearson, [entropy, placed], groups, seed, known),
        "frs.entropy_vs_breaking.kendall": Estimate(_kendall(entropy[known], placed[known])),
    }


def _pearson(x: Floats, y: Floats, axis: int = 0) -> Any:
    """Pearson's r along an axis; NaN where one side does not vary."""
    x = x - x.mean(axis=axis, keepdims=True)
    y = y - y.mean(axis=axis, keepdims=True)
    norm = np.sqrt((x * x).sum(axis=axis) * (y * y).sum(axis=axis))
    product = (x * y).sum(axis=axis)
    return np.clip(np.divide(product, norm, out=np.full_like(product, np.nan), where=norm > 1e-12), -1, 1)


def _kendall(x: Floats, y: Floats) -> float:
    varied = len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    return float(stats.kendalltau(x, y).statistic) if varied else float("nan")
