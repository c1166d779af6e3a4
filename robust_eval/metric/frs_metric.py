"""FRS over a graded answer table: its figures, curves and tables, with intervals over questions.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robust_eval.answer import rows as table_rows
from robust_eval.error import UserError
from robust_eval.metric.frs_correction import CORRECTED, TOO_LITTLE, break_figures
from robust_eval.metric.frs_presentation import ACCURACY, FIGURES, SURVIVAL, UNBROKEN, UNDECIDED, presentation
from robust_eval.metric.frs_tables import (
    accuracy_table,
    certainty_bins,
    crossings,
    score_column,
    share_estimates,
    type_shares,
)
from robust_eval.metric.greedy import greedy_verdicts
from robust_eval.metric.label_correction import add_corrected_curve
from robust_eval.metric.metric_spec import point
from robust_eval.metric.score import (
    HUMAN_LABEL,
    Correction,
    Grid,
    Measured,
    Score,
    estimate,
    grid,
    mean_estimate,
    question_groups,
)
from robust_eval.model.logprobs import is_whole
from robust_eval.question import QUESTION_TYPES, Question
from robust_eval.stats.correlation import kendall, pearson
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.frs import MAX_TOTAL, breaking_temperature, factual_robustness_score, top_entropy
from robust_eval.stats.interval import SHARE, Floats
from robust_eval.stats.survival import holding, kaplan_meier


class Breaks(NamedTuple):
    """Where each of n facts breaks, by one way of telling how accurately it is answered.

    ``accuracy`` is (n, T) on the grid; ``breaking`` (n,), inf where a fact is unbroken up to the temperature ``last``;
    ``interval`` holds the ends of a 95 % interval of it, where there is one.
    """

    accuracy: Floats
    breaking: Floats
    last: float
    interval: dict[str, Floats]

    def of(self, known: NDArray[np.bool_]) -> "Breaks":
        """Return the same, where only the facts that are ``known`` (n,) break: the others keep their accuracy alone."""
        interval = {end: np.where(known, values, np.nan) for end, values in self.interval.items()}
        return self._replace(breaking=np.where(known, self.breaking, np.nan), interval=interval)


@dataclass
class FactualRobustness:
    """FRS of every known fact and what the paper reports around it (docs/methods.md, §1).

    A question whose greedy answer is wrong is no known fact, even if it was asked on: it keeps its curve.
    """

    d: Any = field(default_factory=lambda: [1, 2, 5, 10, 50])
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

    axis = "temperature"
    figures = FIGURES
    curves = (ACCURACY, SURVIVAL)
    needs_clusters = False

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

    @property
    def early_stop_threshold(self) -> float | None:
        """The threshold; None where a curve is fitted to all accuracies."""
        return self.threshold if self.estimator == "first" else None

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """UserError unless answers come at two temperatures or more."""
        if len(temperatures) < 2:
            asked = f"at one alone, t = {temperatures[0]:g}" if temperatures else "at none"
            raise UserError(
                "metric=frs needs answers at several temperatures to find where a fact breaks, and the sampler asks "
                f"{asked}: choose sampler=temperature_sweep with at least two temperatures above 0"
            )

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """FRS for each d, accuracy by temperature, unbroken facts, and how entropy goes with breaking."""
        ids = [question.id for question in questions]
        groups = question_groups(questions)
        undecided = measured.undecided
        answers = grid(ids, measured.graded, undecided and undecided.temperatures)
        temperatures = answers.temperatures
        known = greedy_verdicts(ids, measured.baseline) != 0
        estimates = {name: each.of(known) for name, each in self._estimates(ids, measured, answers).items()}
        headline = next(iter(estimates))
        breaking = estimates[headline].breaking
        entropy = np.where(known, self.initial_entropy(ids, measured.baseline), np.nan)
        scores = self._scores(entropy, estimates[headline])

        settings = {"threshold": self.threshold, "k": self.k, "unbroken": self.unbroken, "estimator": headline}
        result = Score(question_ids=ids, settings=settings, declared=self.figures)
        # One name for all runs of a sweep over d; trackers that show one figure show the first.
        result.values["frs"] = mean_estimate(scores[self.d[0]], groups, SHARE)
        result.of_questions["frs"] = _defined(scores[self.d[0]])
        for d, values in scores.items():
            result.add_share(f"frs.d{d:g}", values, groups)
        _add_breaks(result, known, entropy, estimates[headline], temperatures, groups, seed)
        survival = np.where(np.isnan(breaking)[:, None], np.nan, breaking[:, None] > temperatures)
        if undecided is None:  # trials that stopped early are biased, and those above the break were not asked
            result.add_curve(ACCURACY.name, estimates[headline].accuracy, temperatures, groups)
        result.add_curve(SURVIVAL.name, survival, temperatures, groups)
        holds = holding(breaking[known], estimates[headline].accuracy[known], temperatures)
        labels = None if groups is None else [group for group, fact in zip(groups, known, strict=True) if fact]
        result.curves[SURVIVAL.name] = dict(zip(temperatures.tolist(), kaplan_meier(holds, labels), strict=True))
        result.of_questions |= {point(SURVIVAL.name, t): _defined(holds[:, 0]) for t in temperatures.tolist()}

        columns = {
            "question_id": ids,
            "question": [question.text for question in questions],
            "type": [question.type for question in questions],
            "category": [question.category for question in questions],
            "known": known,
            "entropy": entropy,
            "breaking_temperature": breaking,
            **{score_column(d): values for d, values in scores.items()},
        }
        if "offgrid" in estimates:
            columns |= self._add_offgrid(result, estimates["offgrid"], entropy, groups)
            for end in ("lower", "upper"):
                bound = curve_column(ids, measured.curves, temperatures, end)
                result.add_curve(f"accuracy_certified_{end}", bound, temperatures, groups, SHARE)
        result.tables["frs"] = pa.table(columns)
        if undecided is None:
            result.tables["frs_accuracy"] = accuracy_table(ids, answers)
            result.tables["frs_certainty"] = certainty_bins(measured.graded)
        types = [question.type for question in questions]
        _add_types(result, scores[self.d[0]], types, groups, seed)
        result.presentation = presentation(result, entropy, breaking, temperatures, self.k, types, groups)
        if undecided is not None:
            result.presentation.left_out = [UNDECIDED]
        return result

    def _add_offgrid(
        self, result: Score, found: Breaks, entropy: Floats, groups: Sequence[str] | None
    ) -> dict[str, Floats]:
        """Add the figures of breaking temperatures off the grid; return their columns of the table of questions."""
        for d, values in self._scores(entropy, found).items():
            result.add_share(f"frs.offgrid.d{d:g}", values, groups)
        mean, median = (f"frs.offgrid.breaking_temperature.{figure}" for figure in ("mean_broken", "median"))
        result.add_mean(mean, _broken(found.breaking), groups, (0.0, found.last))
        result.values[median] = _median(found.breaking)
        result.of_questions[median] = _defined(found.breaking)
        column = "breaking_temperature_offgrid"
        return {column: found.breaking, **{f"{column}_{end}": value for end, value in found.interval.items()}}

    def corrected(self, questions: Sequence[Question], measured: Measured, seed: int) -> Correction:
        """See :class:`robust_eval.metric.score.Metric`: the accuracies, and what hangs on breaking temperatures by the
        trials; neither where trials stopped early.
        """
        found = Correction(declared=CORRECTED)
        names = [*(f"frs.d{d:g}" for d in self.d), UNBROKEN.name, "frs.breaking_temperature.mean_broken"]
        if measured.undecided is not None:
            found.uncorrected = dict.fromkeys(names, "trials stopped as soon as a break was settled (sampler.ask)")
            return found
        ids = [question.id for question in questions]
        graded = measured.graded
        add_corrected_curve(found, "accuracy_corrected", ACCURACY.name, questions, graded)
        known = greedy_verdicts(ids, measured.baseline) != 0
        told = break_figures(
            questions,
            graded,
            grid(ids, graded),
            known,
            self.initial_entropy(ids, measured.baseline),
            self.d,
            self.threshold,
            self.estimator,
            self.unbroken,
            seed,
        )
        labels = int(np.count_nonzero(~np.isnan(graded[HUMAN_LABEL].to_numpy())))
        found.values = {f"frs.corrected.{name}": corrected for name, corrected in told.items()}
        found.of |= {f"frs.corrected.{name}": f"frs.{name}" for name in told}
        found.labels |= dict.fromkeys(found.values, labels)
        found.uncorrected |= {} if told else dict.fromkeys(names, TOO_LITTLE)
        return found

    def _estimates(self, ids: list[str], measured: Measured, answers: Grid) -> dict[str, Breaks]:
        """Return where the facts break on the grid, and off it where the answers came with curves."""
        temperatures = answers.temperatures
        breaking = breaking_temperature(answers.accuracy, temperatures, self.threshold, self.estimator)
        on_grid = Breaks(answers.accuracy, breaking, float(temperatures[-1]), {})
        if measured.curves.num_rows == 0:
            return {"trials": on_grid}
        told = np.clip(curve_column(ids, measured.curves, temperatures, "accuracy"), 0, 1)
        crossed = crossings(ids, measured.curves, self.threshold)
        last = pc.max(measured.curves["temperature"]).as_py()
        interval = {end: crossed[end] for end in ("low", "high")}
        return {"exact": on_grid, "offgrid": Breaks(told, crossed["value"], last, interval)}

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
            if any(len(token) < self.k and not is_whole(token) for token in tokens):
                raise UserError(
                    f"metric.frs.k={self.k} needs {self.k} log-probabilities a token, and the answer to question "
                    f"{question_id} brings {min(map(len, tokens))}: choose a smaller k"
                )
            if tokens:
                padded = [[*sorted(token, reverse=True), *[-np.inf] * self.k][: self.k] for token in tokens]
                largest = np.exp(padded)  # servers may add the drawn one
                if (most := largest.sum(axis=1).max()) > MAX_TOTAL:
                    raise UserError(
                        f"the answer to question {question_id} has top_logprobs of a token whose probabilities sum to "
                        f"{most:.3f}, more than 1: they must be those of different tokens, at temperature 1"
                    )
                entropy[rows[question_id]] = top_entropy(largest, self.k, self.renormalize).mean()
        return entropy


def curve_column(question_ids: Sequence[str], curves: pa.Table, temperatures: Floats, column: str) -> Floats:
    """Return (n, T) a column of the curves; NaN for questions that have none."""
    place = {question_id: index for index, question_id in enumerate(question_ids)}
    level = {float(temperature): index for index, temperature in enumerate(temperatures)}
    found = np.full((len(place), len(level)), np.nan)
    for question_id, temperature, value in table_rows(curves, "question_id", "temperature", column):
        if temperature in level:
            found[place[question_id], level[temperature]] = value
    return found


def _add_breaks(
    result: Score,
    known: NDArray[np.bool_],
    entropy: Floats,
    found: Breaks,
    temperatures: Floats,
    groups: Sequence[str] | None,
    seed: int,
) -> None:
    """Add where the ``known`` facts break, how many do, and how that goes with the initial entropy."""
    breaking = found.breaking
    unbroken = np.where(np.isnan(breaking), np.nan, np.isinf(breaking).astype(float))
    result.add_share(UNBROKEN.name, unbroken, groups)
    result.add_mean("frs.breaking_temperature.mean_broken", _broken(breaking), groups, (0.0, found.last))
    result.values["frs.breaking_temperature.median"] = _median(breaking)
    result.of_questions["frs.breaking_temperature.median"] = _defined(breaking)
    result.add_share("frs.entropy.mean", entropy, groups)
    result.values["frs.count.broken"] = Estimate(float(np.isfinite(breaking).sum()))
    result.values["frs.count.unbroken"] = Estimate(float(np.isinf(breaking).sum()))
    result.values["frs.count.unknown"] = Estimate(float((~known).sum()))
    result.values["frs.count.undefined"] = Estimate(float(np.isnan(breaking + 0 * entropy)[known].sum()))
    result.values |= entropy_against_breaking(entropy, breaking, temperatures, groups, seed)
    result.of_questions |= _joint(entropy, breaking)


def _add_types(result: Score, scores: Floats, types: Sequence[str], groups: Sequence[str] | None, seed: int) -> None:
    """Add the shares of question types among the most robust facts."""
    shares = result.tables["frs_types"] = type_shares(scores, types, groups=groups, seed=seed)
    result.values |= {
        f"frs.most_robust_share.{name}": share
        for name, share in share_estimates(shares).items()
        if name in QUESTION_TYPES  # a data set may have others, of which not every one is a name for MLflow
    }


def _broken(breaking: Floats) -> Floats:
    """Return the breaking temperatures of the facts that break; NaN for the others."""
    return np.where(np.isinf(breaking), np.nan, breaking)


def _median(breaking: Floats) -> Estimate:
    """Return the median of the breaking temperatures; inf where half or more are unbroken."""
    defined = breaking[~np.isnan(breaking)]
    return Estimate(float(np.median(defined)) if len(defined) else float("nan"))


def _defined(values: Floats) -> int:
    return int(np.count_nonzero(~np.isnan(values)))


def _joint(entropy: Floats, breaking: Floats) -> dict[str, int]:
    """Count the questions on which each figure of :func:`entropy_against_breaking` rests."""
    name = "frs.entropy_vs_breaking"
    known, broken = _defined(entropy + breaking), _defined(entropy + _broken(breaking))
    return {f"{name}.pearson_broken": broken, f"{name}.pearson_all": known, f"{name}.kendall": known}


def entropy_against_breaking(
    entropy: Floats, breaking: Floats, temperatures: Floats, groups: Sequence[str] | None, seed: int
) -> dict[str, Estimate]:
    """Return how H goes with t_b (Fastowski et al., Fig. 3): Pearson over broken facts, as in the paper; beside it
    Pearson with the unbroken at the next grid step, and Kendall's τ_b over all, because dropping the unbroken weakens
    r.
    """
    step = float(np.diff(temperatures).min()) if len(temperatures) > 1 else 1.0
    known = ~np.isnan(entropy) & ~np.isnan(breaking)
    placed = np.where(np.isinf(breaking), temperatures[-1] + step, breaking)
    name = "frs.entropy_vs_breaking.pearson"
    return {
        f"{name}_broken": estimate(pearson, [entropy, placed], groups, seed, known & np.isfinite(breaking)),
        f"{name}_all": estimate(pearson, [entropy, placed], groups, seed, known),
        "frs.entropy_vs_breaking.kendall": Estimate(kendall(entropy[known], placed[known])),
    }
