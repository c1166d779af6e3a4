"""FRS over a graded answer table: metrics, curves and tables, with intervals over questions.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robust_eval.answer import rows as table_rows
from robust_eval.error import UserError
from robust_eval.metric.frs_specs import ACCURACY, FRS, MEAN_BROKEN, MEDIAN, SPECS, SURVIVAL, UNBROKEN
from robust_eval.metric.frs_tables import (
    accuracy_table,
    certainty_bins,
    crossings,
    score_column,
    share_estimates,
    type_shares,
)
from robust_eval.metric.greedy import greedy_verdicts
from robust_eval.metric.label_correction import corrected_shares, corrected_spec, units
from robust_eval.metric.metric_spec import MetricSpec, point
from robust_eval.metric.score import (
    HUMAN_LABEL,
    HUMAN_LABEL_WEIGHT,
    Correction,
    Grid,
    Measured,
    Metric,
    Score,
    grid,
    question_groups,
    question_rows,
    trial_grid,
    verdicts,
)
from robust_eval.model.logprobs import is_whole
from robust_eval.question import QUESTION_TYPES, Question
from robust_eval.sampler.base import Sampler
from robust_eval.stats.corrected_breaks import (
    LabelCounts,
    LabelledGrid,
    break_intervals,
    corrected_breaks,
    label_counts,
)
from robust_eval.stats.correction import MIN_LABELS
from robust_eval.stats.correlation import kendall, pearson
from robust_eval.stats.estimate import Estimate, count_defined, estimate, masked, mean_estimate, median_estimate
from robust_eval.stats.frs import MAX_TOTAL, breaking_temperature, factual_robustness_score, top_entropy
from robust_eval.stats.interval import SHARE, Floats, defined_mean, drop_degenerate
from robust_eval.stats.survival import holds_beyond, kaplan_meier

CORRECTED = tuple(
    corrected_spec(spec, name)
    for name, spec in (
        ("accuracy_corrected", ACCURACY),
        ("frs.corrected.d{}", FRS),
        ("frs.corrected.unbroken_share", UNBROKEN),
        ("frs.corrected.breaking_temperature.mean_broken", MEAN_BROKEN),
        ("frs.corrected.breaking_temperature.median", MEDIAN),
    )
)
"""Specs of the FRS metrics, corrected by labels."""
NO_LOGPROBS = "the greedy answers have no log-probabilities"
INSUFFICIENT_LABELS = (
    f"this needs at least {MIN_LABELS} labels, of both right and wrong answers, and verdicts that distinguish them"
)


@dataclass
class FactualRobustness(Metric):
    """FRS of each known fact, with the other metrics of the paper (docs/methods.md, §1).

    A question whose greedy answer is wrong is no known fact, even if it was asked on: it keeps its curve. One without a
    verdict on its greedy answer is scored.
    """

    d: Any = field(default_factory=lambda: [1, 2, 5, 10, 50])
    """Weights of the entropy: a number or a list of numbers above 0."""
    k: int = 10
    """Number of most probable tokens in the entropy; also the base of its logarithm."""
    renormalize: bool = True
    """Divide the k probabilities by their sum."""
    include_eos: bool = False
    """Include the token that ends the answer."""
    threshold: float = 0.5
    """A fact breaks at the lowest temperature with an accuracy below this."""
    estimator: str = "first"
    """Estimator of the breaking temperature from the accuracies: first | isotonic."""
    unbroken: str = "one"
    """Score of an unbroken fact: one | bound; bound is the score of a fact that breaks at the last temperature."""

    axis = "temperature"
    specs = SPECS
    curves = (ACCURACY, SURVIVAL)

    def __post_init__(self) -> None:
        values = self.d if isinstance(self.d, Sequence) and not isinstance(self.d, str) else [self.d]
        numbers = [isinstance(d, int | float) and not isinstance(d, bool) and 0 < d < math.inf for d in values]
        if not values or not all(numbers):
            raise ValueError(f"d must be a finite number above 0 or a list of such numbers, not {self.d!r}")
        self.d = sorted({float(d) for d in values})
        if self.k < 2:
            raise ValueError(f"k must be at least 2, not {self.k}")
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be above 0 and at most 1, not {self.threshold}")
        if self.estimator not in ("first", "isotonic"):
            raise ValueError(f"estimator must be first or isotonic, not {self.estimator}")
        if self.unbroken not in ("one", "bound"):
            raise ValueError(f"unbroken must be one or bound, not {self.unbroken}")

    @property
    def top_logprobs(self) -> int:
        """Number of log-probabilities of each token of a greedy answer that FRS needs for the entropy."""
        return self.k

    @property
    def early_stop_threshold(self) -> float | None:
        """Accuracy threshold for early stopping; None if a curve is fitted to all accuracies."""
        return self.threshold if self.estimator == "first" else None

    def specs_under(self, sampler: Sampler) -> Sequence[MetricSpec]:
        """Return the specs of FRS: interpolated for enumerated answers alone, no accuracy with early stopping."""
        left_out = {ACCURACY.name} if sampler.early_stop else set()
        if sampler.estimator != "exact":
            left_out |= {spec.name for spec in self.specs if spec.name.startswith("frs.offgrid.")}
        return [spec for spec in self.specs if spec.name not in left_out]

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """Raise UserError unless FRS has answers at two temperatures or more, all of them known."""
        has_unknown = any(map(math.isnan, temperatures))
        if len(temperatures) < 2 or has_unknown:
            actual = "none" if not temperatures else f"only one, t = {temperatures[0]:g}"
            actual = "the model's own temperature" if has_unknown else actual
            raise UserError(
                "metric=frs needs answers at several temperatures to find where a fact breaks, but the sampler has "
                f"{actual}: choose sampler=temperature_sweep with at least two temperatures above 0"
            )

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return FRS for each d, accuracy by temperature, unbroken facts, and the correlation of entropy and breaks."""
        ids = [question.id for question in questions]
        groups = question_groups(questions)
        early_stopping = measured.early_stopping
        answers = grid(ids, measured.graded, early_stopping and early_stopping.temperatures)
        temperatures = answers.temperatures
        knowledge = greedy_verdicts(ids, measured.baseline)
        is_scored = knowledge != 0
        breaking = masked(
            is_scored, breaking_temperature(answers.accuracy, temperatures, self.threshold, self.estimator)
        )
        entropy = masked(is_scored, self.initial_entropy(ids, measured.baseline))
        scores = self._scores(entropy, breaking, float(temperatures[-1]))

        curves = measured.exact_curves
        settings = {"threshold": self.threshold, "k": self.k, "unbroken": self.unbroken}
        result = Score(question_ids=ids, settings=settings, specs=self.specs)
        # One name for all runs of a sweep over d; trackers that show one metric show the first.
        result.values["frs"] = mean_estimate(scores[self.d[0]], groups, SHARE)
        result.of_questions["frs"] = count_defined(scores[self.d[0]])
        for d, values in scores.items():
            result.add_share(f"frs.d{d:g}", values, groups)
        _add_breaks(result, is_scored, entropy, breaking, temperatures, groups, seed)
        if is_scored.any() and measured.baseline["top_logprobs"].null_count == measured.baseline.num_rows:
            undefined = [name for name in result.values if name == "frs" or name.startswith(("frs.d", "frs.entropy"))]
            result.reasons = dict.fromkeys(undefined, NO_LOGPROBS)
        if early_stopping is None:  # trials that stopped early are biased, and those above the break were not asked
            result.add_curve(ACCURACY.name, answers.accuracy, temperatures, groups)
        holds = holds_beyond(breaking, answers.accuracy, temperatures)
        holds[~is_scored] = np.nan
        result.add_values(SURVIVAL.name, holds, temperatures, SHARE)
        result.curves[SURVIVAL.name] = dict(zip(temperatures.tolist(), kaplan_meier(holds, groups), strict=True))
        result.of_questions |= {point(SURVIVAL.name, t): count_defined(holds[:, 0]) for t in temperatures.tolist()}

        columns = {
            "question_id": ids,
            "question": [question.text for question in questions],
            "type": [question.type for question in questions],
            "category": [question.category for question in questions],
            "known": pa.array(knowledge == 1, mask=np.isnan(knowledge)),
            "entropy": entropy,
            "breaking_temperature": breaking,
            **{score_column(d): values for d, values in scores.items()},
        }
        if curves.num_rows:
            columns |= self._add_offgrid(result, curves, is_scored, entropy, groups)
            for end in ("lower", "upper"):
                bound = curve_column(ids, curves, temperatures, end)
                result.add_curve(f"accuracy_certified_{end}", bound, temperatures, groups, SHARE)
        result.tables["frs"] = pa.table(columns)
        if early_stopping is None:
            result.tables["frs_accuracy"] = accuracy_table(ids, answers)
            result.tables["frs_certainty"] = certainty_bins(measured.graded)
        types = [question.type for question in questions]
        shares = result.tables["frs_types"] = type_shares(scores[self.d[0]], types, groups=groups, seed=seed)
        result.values |= {
            f"frs.most_robust_share.{name}": share
            for name, share in share_estimates(shares).items()
            if name in QUESTION_TYPES  # a data set may have others, of which not every one is a name for MLflow
        }
        return result

    def _add_offgrid(
        self,
        result: Score,
        curves: pa.Table,
        is_scored: NDArray[np.bool_],
        entropy: Floats,
        groups: Sequence[str] | None,
    ) -> dict[str, Floats]:
        """Add the metrics of interpolated breaking temperatures, where ``curves`` cross the threshold; return their
        columns of the table of questions.
        """
        crossed = crossings(result.question_ids, curves, self.threshold)
        breaking, low, high = (masked(is_scored, crossed[name]) for name in ("value", "low", "high"))
        last = pc.max(curves["temperature"]).as_py()
        for d, values in self._scores(entropy, breaking, last).items():
            result.add_share(f"frs.offgrid.d{d:g}", values, groups)
        mean, median = (f"frs.offgrid.breaking_temperature.{statistic}" for statistic in ("mean_broken", "median"))
        result.add_mean(mean, masked(np.isfinite(breaking), breaking), groups, (0.0, last))
        result.values[median] = median_estimate(breaking)
        result.of_questions[median] = count_defined(breaking)
        column = "breaking_temperature_offgrid"
        return {column: breaking, f"{column}_low": low, f"{column}_high": high}

    def corrected(self, questions: Sequence[Question], measured: Measured, seed: int) -> Correction:
        """Return the corrected accuracies, FRS and metrics of breaking temperatures, by the trials; none where trials
        stopped early.
        """
        correction = Correction(specs=CORRECTED)
        names = [*(f"frs.d{d:g}" for d in self.d), UNBROKEN.name, MEAN_BROKEN.name]
        if measured.early_stopping is not None:
            correction.uncorrected = dict.fromkeys(
                names, "trials stopped as soon as a break was settled (sampler.early_stop)"
            )
            return correction
        ids = [question.id for question in questions]
        graded = measured.graded
        correction.add_curve("accuracy_corrected", ACCURACY.name, corrected_shares(questions, graded))
        entropy = self.initial_entropy(ids, measured.baseline)
        labels = int(np.count_nonzero(~np.isnan(graded[HUMAN_LABEL].to_numpy())))
        estimates = self._corrected_breaks(questions, measured, entropy, seed) if labels >= MIN_LABELS else {}
        correction.values = {f"frs.corrected.{name}": corrected for name, corrected in estimates.items()}
        correction.of |= {f"frs.corrected.{name}": f"frs.{name}" for name in estimates}
        correction.labels |= dict.fromkeys(correction.values, labels)
        correction.uncorrected |= {} if estimates else dict.fromkeys(names, INSUFFICIENT_LABELS)
        return correction

    def _corrected_breaks(
        self, questions: Sequence[Question], measured: Measured, entropy: Floats, seed: int
    ) -> dict[str, Estimate]:
        """Return the corrected mean FRS for each weight d (``d1``), ``breaking_temperature.mean_broken`` and
        ``.median``, and ``unbroken_share`` of the known facts (docs/methods.md, §5); nothing if labels do not determine
        the error rates.
        """
        ids, graded = [question.id for question in questions], measured.graded
        answers, is_scored = grid(ids, graded), greedy_verdicts(ids, measured.baseline) != 0
        temperatures = answers.temperatures
        labelled = LabelledGrid(
            answers.correct,
            answers.replies,
            temperatures,
            _label_counts(answers, graded),
            self.threshold,
            self.estimator,
        )
        if np.isnan(corrected_breaks(labelled)[is_scored]).all():
            return {}

        def statistics(breaking: Floats, chosen: NDArray[np.intp]) -> list[float]:
            breaking = np.where(is_scored[chosen], breaking, np.nan)
            scores = self._scores(entropy[chosen], breaking, float(temperatures[-1])).values()
            broken = breaking[np.isfinite(breaking)]
            defined = breaking[~np.isnan(breaking)]
            return [
                *map(defined_mean, scores),
                defined_mean(broken),
                float(np.median(defined)) if len(defined) else np.nan,
                defined_mean(np.isinf(defined).astype(float)),
            ]

        names = [f"d{d:g}" for d in self.d]
        names += ["breaking_temperature.mean_broken", "breaking_temperature.median", "unbroken_share"]
        estimates = break_intervals(
            statistics,
            labelled,
            groups=[str(unit) for unit in units(questions)],
            trials=trial_grid(ids, graded, temperatures) if measured.estimator == "trials" else None,
            seed=seed,
        )
        limits = {"breaking_temperature.mean_broken": (0.0, float(temperatures[-1]))}
        return {
            name: _within(estimate, *limits.get(name, (0.0, np.inf if name.endswith("median") else 1.0)))
            for name, estimate in zip(names, estimates, strict=True)
        }

    def _scores(self, entropy: Floats, breaking: Floats, last: float) -> dict[float, Floats]:
        """Return the FRS of each question for each weight d; unbroken facts hold up to the temperature ``last``."""
        if self.unbroken == "bound":
            breaking = np.where(np.isinf(breaking), last, breaking)
        return {d: factual_robustness_score(entropy, breaking, d) for d in self.d}

    def initial_entropy(self, question_ids: Sequence[str], baseline: pa.Table) -> Floats:
        """Return the initial entropy H of each question: mean top-k entropy over the tokens of its greedy answer, or
        NaN.
        """
        rows = {question_id: index for index, question_id in enumerate(question_ids)}
        entropy = np.full(len(rows), np.nan)
        columns = ["question_id", "top_logprobs", "answer_tokens"]
        for question_id, top_logprobs, answer_tokens in table_rows(baseline, *columns):
            if question_id not in rows or not top_logprobs:
                continue
            tokens = top_logprobs if self.include_eos else top_logprobs[:answer_tokens]
            if any(len(token) < self.k and not is_whole(token) for token in tokens):
                raise UserError(
                    f"metric.frs.k={self.k} needs {self.k} log-probabilities per token, but the answer to question "
                    f"{question_id} has {min(map(len, tokens))}: choose a smaller k"
                )
            if tokens:
                padded = [[*sorted(token, reverse=True), *[-np.inf] * self.k][: self.k] for token in tokens]
                largest = np.exp(padded)  # servers may add the drawn one
                if (total := largest.sum(axis=1).max()) > MAX_TOTAL:
                    raise UserError(
                        f"the answer to question {question_id} has top_logprobs of a token whose probabilities sum to "
                        f"{total:.3f}, more than 1: they must belong to different tokens, at temperature 1"
                    )
                entropy[rows[question_id]] = top_entropy(largest, self.k, self.renormalize).mean()
        return entropy


def curve_column(question_ids: Sequence[str], curves: pa.Table, temperatures: Floats, column: str) -> Floats:
    """Return (n, T) a column of the enumerated answers' accuracy curves; NaN for questions without one."""
    on_grid = curves.filter(pc.is_in(curves["temperature"], pa.array(temperatures)))
    table = np.full((len(question_ids), len(temperatures)), np.nan)
    at = np.searchsorted(temperatures, on_grid["temperature"].to_numpy())
    table[question_rows(question_ids, on_grid), at] = on_grid[column].to_numpy()
    return table


def _add_breaks(
    result: Score,
    is_scored: NDArray[np.bool_],
    entropy: Floats,
    breaking: Floats,
    temperatures: Floats,
    groups: Sequence[str] | None,
    seed: int,
) -> None:
    """Add the breaking temperatures and the number of breaks of scored facts, and their correlation with the initial
    entropy.
    """
    result.add_share(UNBROKEN.name, masked(~np.isnan(breaking), np.isinf(breaking)), groups)
    broken = masked(np.isfinite(breaking), breaking)
    result.add_mean(MEAN_BROKEN.name, broken, groups, (0.0, float(temperatures[-1])))
    result.values[MEDIAN.name] = median_estimate(breaking)
    result.of_questions[MEDIAN.name] = count_defined(breaking)
    result.add_share("frs.entropy.mean", entropy, groups)
    result.values["frs.count.broken"] = Estimate(float(np.isfinite(breaking).sum()))
    result.values["frs.count.unbroken"] = Estimate(float(np.isinf(breaking).sum()))
    result.values["frs.count.unknown"] = Estimate(float((~is_scored).sum()))
    result.values["frs.count.undefined"] = Estimate(float(np.isnan(breaking + 0 * entropy)[is_scored].sum()))
    result.values |= entropy_against_breaking(entropy, breaking, temperatures, groups, seed)
    name, defined = "frs.entropy_vs_breaking", count_defined(entropy + breaking)
    result.of_questions |= {f"{name}.pearson_all": defined, f"{name}.kendall": defined}
    result.of_questions[f"{name}.pearson_broken"] = count_defined(entropy + broken)


def entropy_against_breaking(
    entropy: Floats, breaking: Floats, temperatures: Floats, groups: Sequence[str] | None, seed: int
) -> dict[str, Estimate]:
    """Return the correlation of initial entropy H and breaking temperature t_b (Fastowski et al., Fig. 3): Pearson over
    broken facts, as in the paper; Pearson with the unbroken at the next grid step; and Kendall's τ_b over all, because
    dropping the unbroken weakens r.
    """
    step = float(np.diff(temperatures).min()) if len(temperatures) > 1 else 1.0
    is_defined = ~np.isnan(entropy) & ~np.isnan(breaking)
    placed = np.where(np.isinf(breaking), temperatures[-1] + step, breaking)
    name = "frs.entropy_vs_breaking.pearson"
    return {
        f"{name}_broken": estimate(pearson, [entropy, placed], groups, seed, is_defined & np.isfinite(breaking)),
        f"{name}_all": estimate(pearson, [entropy, placed], groups, seed, is_defined),
        "frs.entropy_vs_breaking.kendall": Estimate(kendall(entropy[is_defined], placed[is_defined])),
    }


def _label_counts(answers: Grid, graded: pa.Table) -> LabelCounts:
    """Return the counts of human labels, weighted to the number of equally informative simple draws."""
    people, judged = graded[HUMAN_LABEL].to_numpy(), verdicts(graded)
    row = question_rows(answers.question_ids, graded)
    column = np.searchsorted(answers.temperatures, graded["temperature"].to_numpy())
    weights = graded[HUMAN_LABEL_WEIGHT].to_numpy() * graded["weight"].to_numpy()
    used = weights[~np.isnan(people) & ~np.isnan(judged)]
    scale = used.sum() / (used**2).sum() if len(used) else 1.0
    return label_counts(judged, people, row, column, weights * scale, answers.correct.shape)


def _within(estimate: Estimate, low: float, high: float) -> Estimate:
    """Return an estimate with its bounds clipped to the possible range, which a reflected interval may exceed; without
    bounds if nothing is left of the interval.
    """
    return Estimate(estimate.value, *drop_degenerate(*(float(np.clip(bound, low, high)) for bound in estimate[1:])))
