"""The Factual Robustness Score: how sure the model was, and at which temperature the fact breaks.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness". The functions at the top are the
definitions; :class:`FactualRobustness` applies them to a graded answer table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import isotonic_regression

from robust_eval.answer import NO_REPLY
from robust_eval.answer import rows as table_rows
from robust_eval.error import UserError
from robust_eval.metric.crossing import crossings
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
    reply_weights,
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
        told = curve_accuracy(ids, measured.curves, temperatures)
        accuracy = told if measured.estimator == "combined" and told is not None else answers.accuracy
        entropy = self.initial_entropy(ids, measured.baseline)
        breaking = breaking_temperature(accuracy, temperatures, self.threshold, self.estimator)
        scores = self._scores(entropy, breaking, temperatures[-1])

        result = Score(
            settings={
                "threshold": self.threshold,
                "k": self.k,
                "unbroken": self.unbroken,
                "estimator": measured.estimator if told is not None else "trials",
            }
        )
        for d, values in scores.items():
            result.values[f"frs.d{d:g}"] = mean_estimate(values, groups, seed)
        unbroken = np.where(np.isnan(breaking), np.nan, np.isinf(breaking).astype(float))
        broken = np.where(np.isinf(breaking), np.nan, breaking)
        result.values["frs.unbroken_share"] = mean_estimate(unbroken, groups, seed)
        result.values["frs.breaking_temperature.mean_broken"] = mean_estimate(broken, groups, seed)
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
        if told is not None:
            for name, breaks in self._other_breaks(ids, measured, answers, told).items():
                if name in ("combined", "trials", "offgrid"):
                    last = pc.max(measured.curves["temperature"]).as_py() if name == "offgrid" else temperatures[-1]
                    result.values |= self._beside(name, entropy, breaks, last, groups, seed)
                by_question[f"breaking_temperature_{name}"] = breaks
            if measured.estimator == "exact":
                for end in ("lower", "upper"):
                    bound = curve_column(ids, measured.curves, temperatures, end)
                    result.curves[f"accuracy_certified_{end}"] = _curve(bound, temperatures, groups, seed)
            else:
                name, other = ("combined", told) if measured.estimator == "trials" else ("trials", answers.accuracy)
                result.curves[f"accuracy_{name}"] = _curve(other, temperatures, groups, seed)
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

    def _scores(self, entropy: Floats, breaking: Floats, last: float) -> dict[float, Floats]:
        """FRS of every question for each d; ``last`` is the highest temperature at which a fact was seen to break."""
        bound = np.where(np.isinf(breaking), last, breaking)
        scored = bound if self.unbroken == "bound" else breaking
        return {d: factual_robustness_score(entropy, scored, d, self.unbroken) for d in self.d}

    def _other_breaks(self, ids: list[str], measured: Measured, answers: Grid, told: Floats) -> dict[str, Floats]:
        """The breaking temperatures that are not the headline's, by the name of their estimate."""
        if measured.estimator == "exact":
            crossed = crossings(ids, measured.curves, self.threshold)
            return {"offgrid": crossed["value"], "offgrid_low": crossed["low"], "offgrid_high": crossed["high"]}
        name, other = ("combined", told) if measured.estimator == "trials" else ("trials", answers.accuracy)
        return {name: breaking_temperature(other, answers.temperatures, self.threshold, self.estimator)}

    def _beside(
        self,
        name: str,
        entropy: Floats,
        breaking: Floats,
        last: float,
        groups: Sequence[str] | None,
        seed: int,
    ) -> dict[str, Estimate]:
        """The figures that another estimate of the breaking temperatures gives, to stand beside the headline's."""
        scores = self._scores(entropy, breaking, last)
        broken = np.where(np.isinf(breaking), np.nan, breaking)
        return {
            **{f"frs.{name}.d{d:g}": mean_estimate(values, groups, seed) for d, values in scores.items()},
            f"frs.{name}.breaking_temperature.mean_broken": mean_estimate(broken, groups, seed),
            f"frs.{name}.breaking_temperature.median": _median(breaking),
        }

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


def curve_accuracy(question_ids: Sequence[str], curves: pa.Table, temperatures: Floats) -> Floats | None:
    """(n, T) accuracies of the curves at the temperatures, limited to [0, 1]; None where there are no curves."""
    if curves.num_rows == 0:
        return None
    return np.clip(curve_column(question_ids, curves, temperatures, "accuracy"), 0, 1)


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


def certainty_bins(graded: pa.Table) -> pa.Table:
    """Right and wrong replies by temperature and certainty bin [0, 0.1), …, [0.9, 1] (Fastowski et al., Fig. 2).

    Certainty is the mean probability of the answer's tokens at the sampling temperature; replies without tokens or
    log-probabilities are left out. Enumerated answers count by their probability.
    """
    counts: dict[tuple[float, int], list[float]] = {}
    columns = ["temperature", "sampling_logprobs", "answer_tokens", "correct", "outcome"]
    weights = reply_weights(graded)
    for weight, (temperature, logprobs, answer_tokens, correct, outcome) in zip(
        weights.tolist(), table_rows(graded, *columns), strict=True
    ):
        if not logprobs or not answer_tokens or correct is None or outcome in NO_REPLY:
            continue
        certainty = float(np.exp(logprobs[:answer_tokens]).mean())
        bin_index = min(int(certainty * 10), 9)
        counts.setdefault((temperature, bin_index), [0.0, 0.0])[int(correct)] += weight
    keys = sorted(counts)
    return pa.table(
        {
            "temperature": pa.array([t for t, _ in keys], pa.float64()),
            "certainty_from": pa.array([index / 10 for _, index in keys], pa.float64()),
            "right": pa.array([counts[key][1] for key in keys], pa.float64()),
            "wrong": pa.array([counts[key][0] for key in keys], pa.float64()),
        }
    )


def type_shares(scores: Floats, types: Sequence[str], n: int = 1000) -> pa.Table:
    """For each question type, the share of its questions among the n most robust, out of the n most and n least.

    n is at most half of the questions; questions tied at a cut (unbroken facts all score 1) count in part, so that
    their order does not matter (Fastowski et al., Fig. 5; METHODS §1).
    """
    known = ~np.isnan(scores)
    values, kinds = scores[known], np.asarray(types, dtype=object)[known]
    n = min(n, len(values) // 2)
    most, least = _membership(-values, n), _membership(values, n)
    names = sorted(set(kinds))
    top = np.array([most[kinds == name].sum() for name in names])
    bottom = np.array([least[kinds == name].sum() for name in names])
    share = np.divide(top, top + bottom, out=np.full(len(names), np.nan), where=top + bottom > 0)
    return pa.table(
        {
            "type": pa.array(names, pa.string()),
            "most_robust": pa.array(top, pa.float64()),
            "least_robust": pa.array(bottom, pa.float64()),
            "share_most_robust": pa.array(share, pa.float64()),
        }
    )


def _membership(values: Floats, n: int) -> NDArray[np.float64]:
    """Weight of each value among the n smallest: 1 below the cut, and ties at the cut share what is left."""
    if n == 0:
        return np.zeros(len(values))
    cut = np.partition(values, n - 1)[n - 1]
    below, tied = values < cut, values == cut
    weights: Floats = below + tied * (n - below.sum()) / tied.sum()
    return weights
