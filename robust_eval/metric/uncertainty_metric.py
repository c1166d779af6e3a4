"""Uncertainty scores of the answers to each question, against right and wrong (docs/uncertainty.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import at_temperature, filtered, rows, temperatures_of
from robust_eval.metric.certainty_metric import INVALID_LABEL, labelled_replies
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.greedy import greedy_verdicts
from robust_eval.metric.metric_spec import RUN, MetricSpec, nearest_to_one
from robust_eval.metric.score import Measured, Metric, Score, grid, question_groups
from robust_eval.model.logprobs import is_whole
from robust_eval.question import Question
from robust_eval.runtime.text import enumerated, number
from robust_eval.stats.calibration import calibration_errors
from robust_eval.stats.entropy import answer_entropy
from robust_eval.stats.estimate import UNDEFINED, Estimate, columns_of, count_defined
from robust_eval.stats.frs import breaking_temperature
from robust_eval.stats.interval import SHARE, Floats, defined_mean, mean_bounds
from robust_eval.stats.uncertainty import LEAST_SURE, coverage_at_risk, error_ranking

RISKS = (5, 10)
"""Percentages of wrong answers at which the coverage is reported."""
ALL_RIGHT, ALL_WRONG, NONE_GRADED = "all answers are right", "all answers are wrong", "no answer is graded"
"""Reasons for metrics without a value."""
_DECIMALS = 9  # equal shares of answers give entropies that differ by rounding


class UncertaintyScore(NamedTuple):
    """Uncertainty score: its label, its meaning and, for a probability, the label of that and the function to it."""

    label: str
    description: str
    confidence: str = ""
    probability: Callable[[Floats], Floats] | None = None


SCORES = {
    "answer_entropy": UncertaintyScore("answer entropy", "entropy of the sampled answers, in nats"),
    "disagreement": UncertaintyScore(
        "disagreement", "share of the sampled answers outside the majority", "majority share", lambda u: 1 - u
    ),
    "greedy_surprisal": UncertaintyScore(
        "−ln P(greedy answer)",
        "−ln of the probability of the greedy answer at t = 1",
        "P(greedy answer)",
        lambda u: np.exp(-u),
    ),
    "initial_entropy": UncertaintyScore("initial entropy H", "initial entropy of the greedy answer, 0 to 1"),
    "early_break": UncertaintyScore("−t_b", "negative breaking temperature, which needs the accepted answers"),
}
"""Uncertainty scores by name; the first that a run has represents it."""
_LEADING = ("answer_entropy", "greedy_surprisal")
"""Scores that stand where there is room for few metrics."""
TARGETS = ("baseline", "majority")
LEAST = number(LEAST_SURE, ".0%")


_METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "prr": ("prediction rejection ratio", {"more_is_better": True}),
    "aurc": ("area under the risk-coverage curve", {"more_is_better": False}),
    "caught": (f"share of errors in the least certain {LEAST}", {"limits": SHARE, "more_is_better": True}),
    **{
        f"coverage_{risk}": (f"coverage at {risk} % risk", {"limits": SHARE, "more_is_better": True, "mean": False})
        for risk in RISKS
    },
    "brier": ("Brier score", {"limits": SHARE, "more_is_better": False}),
    "ece": ("calibration error", {"more_is_better": False, "mean": False}),
    "ece_corrected": ("calibration error, bias-corrected", {"more_is_better": False, "mean": False}),
}
"""Metrics of every score besides AUROC: the beginning of the label, and fields of the spec."""
_OF_PROBABILITIES = ("brier", "ece", "ece_corrected")


def specs_of(name: str) -> dict[str, MetricSpec]:
    """Return the specs of an uncertainty score's metrics, by the metric."""
    label, is_leading = SCORES[name].label, name in _LEADING
    auroc = MetricSpec(
        f"uncertainty.auroc.{name}",
        f"ranking of errors (AUROC), {label}",
        more_is_better=True,
        primary=is_leading,
        short=f"AUROC, {label}" if is_leading else "",
        explained="AUROC is the probability that a wrong answer is less certain than a right one (0.5: chance).",
    )
    return {"auroc": auroc} | {
        key: MetricSpec(f"uncertainty.{key}.{name}", f"{words}, {label}", shown=RUN, **fields)
        for key, (words, fields) in _METRICS.items()
        if key not in _OF_PROBABILITIES or SCORES[name].probability
    }


SPECS: tuple[MetricSpec, ...] = tuple(spec for name in SCORES for spec in specs_of(name).values())


@dataclass
class ErrorDetection(Metric):
    """Uncertainty metric: scores of answers against their errors (docs/uncertainty.md).

    Of the scores that the answers allow, those of sampled answers are at the temperature nearest to 1.
    """

    target: str = "baseline"
    """Answer that is judged right or wrong: baseline (the greedy answer), or majority (of the sampled answers; always
    used without greedy answers)."""

    axis = "trial"
    specs = SPECS
    needs_clusters = True

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise ValueError(f"target must be {enumerated(TARGETS)}, not {self.target}")

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return the metrics of each uncertainty score.

        Tables: ``uncertainty`` has a row for each question with all scores and ``correct``, ``uncertainty_scores`` a
        row for each score with its metrics, ``uncertainty_differences`` the difference in AUROC of each two scores on
        the questions that have both.
        """
        ids, groups = [question.id for question in questions], question_groups(questions)
        temperature = nearest_to_one(temperatures_of(measured.graded))
        sampled_entropy, majority_share, majority_correct = _sampled(ids, measured, temperature)
        correct, target = greedy_verdicts(ids, measured.baseline), self.target
        if target == "majority" or np.isnan(correct).all():
            correct, target = majority_correct, "majority"
        scores = {
            "answer_entropy": sampled_entropy,
            "disagreement": 1 - majority_share,
            "greedy_surprisal": _greedy_surprisal(ids, measured.baseline),
            "initial_entropy": _initial_entropy(ids, measured.baseline),
            "early_break": _early_break(ids, measured),
        }
        scores = {name: np.round(u, _DECIMALS) for name, u in scores.items() if not np.isnan(u).all()}
        settings: dict[str, Any] = {"target": target, "temperature": temperature}
        result = Score(question_ids=ids, settings=settings, specs=self.specs)
        for name, uncertainty in scores.items():
            self._add(result, name, uncertainty, correct, groups)
        result.tables["uncertainty"] = pa.table(
            {
                "question_id": ids,
                "question": [question.text for question in questions],
                "correct": correct,
                **scores,
            }
        )
        result.tables["uncertainty_scores"] = _table_of_scores(result, scores, correct)
        result.tables["uncertainty_differences"] = _differences(scores, correct, groups)
        return result

    def _add(
        self, result: Score, name: str, uncertainty: Floats, correct: Floats, groups: Sequence[str] | None
    ) -> None:
        """Add the metrics of an uncertainty score, or the reason why there are none: all answers are right, as in a
        sweep of known facts, or all are wrong.
        """
        specs = {key: spec.name for key, spec in specs_of(name).items()}
        n = count_defined(np.where(np.isnan(correct), np.nan, uncertainty))
        if reason := _reason(correct[~np.isnan(uncertainty)]):
            result.reasons |= dict.fromkeys((specs["auroc"], specs["prr"]), reason)
            return
        for key, joint in error_ranking(uncertainty, correct, groups)._asdict().items():
            result.values[specs[key]] = joint.estimate
            result.by_question[specs[key]] = joint.by_question
        coverages = coverage_at_risk(uncertainty, correct, [risk / 100 for risk in RISKS], groups)
        for risk, coverage in zip(RISKS, coverages, strict=True):
            result.values[specs[f"coverage_{risk}"]] = coverage
            result.of_questions[specs[f"coverage_{risk}"]] = n
        to_probability = SCORES[name].probability
        if to_probability is None:
            return
        probability = np.clip(to_probability(uncertainty), 0, 1)
        result.add_share(specs["brier"], (probability - correct) ** 2, groups)
        errors = calibration_errors(probability, correct, groups)
        result.values |= {specs["ece"]: Estimate(errors.plug_in), specs["ece_corrected"]: errors.corrected}
        result.of_questions |= dict.fromkeys((specs["ece"], specs["ece_corrected"]), n)


def _sampled(question_ids: Sequence[str], measured: Measured, temperature: float) -> Floats:
    """Return (3, n) the entropy of the sampled answers to each question at a temperature, the share of the majority,
    and the verdict on it; NaN with fewer than two answers. Enumerated answers count by their probability.
    """
    exact = measured.estimator == "exact"
    replies = labelled_replies(at_temperature(measured.graded, temperature))
    answers = filtered(replies, pc.not_equal(replies["label"], INVALID_LABEL))
    by_question: dict[str, dict[str, Floats]] = {question_id: {} for question_id in question_ids}
    for question_id, label, weight, correct in rows(answers, "question_id", "label", "weight", "correct"):
        sums = by_question[question_id].setdefault(label, np.zeros(3))
        sums += weight * np.array([1, correct is True, correct is not None])
    table = np.full((3, len(question_ids)), np.nan)
    for row, labels in enumerate(by_question.values()):
        if not labels:
            continue
        weights = np.array([sums[0] for sums in labels.values()])
        share, right, judged = max(labels.values(), key=lambda sums: float(sums[0]))
        if judged > 0:
            table[2, row] = right * 2 > judged
        if exact or weights.sum() > 1:
            table[:2, row] = answer_entropy([weights])[0], share / (1 if exact else weights.sum())
    return table


def _greedy_surprisal(question_ids: Sequence[str], baseline: pa.Table) -> Floats:
    """Return (n,) −ln of the probability of the greedy answer, the product over its tokens; NaN without any."""
    by_question = {
        question_id: -sum(logprobs[:length])
        for question_id, logprobs, length in rows(baseline, "question_id", "token_logprobs", "answer_tokens")
        if logprobs and length != 0  # logs of other harnesses do not say it
    }
    return np.maximum([by_question.get(question_id, np.nan) for question_id in question_ids], 0.0)


def _initial_entropy(question_ids: Sequence[str], baseline: pa.Table) -> Floats:
    """Return (n,) the initial entropy of FRS, of as many log-probabilities as all greedy answers have."""
    default = FactualRobustness()
    columns = rows(baseline, "top_logprobs", "answer_tokens")
    numbers = [
        len(token)
        for tokens, length in columns
        for token in (tokens or [])[:length]
        if len(token) < default.k and not is_whole(token)
    ]
    k = min([default.k, *numbers])
    return (
        FactualRobustness(k=k).initial_entropy(question_ids, baseline) if k > 1 else np.full(len(question_ids), np.nan)
    )


def _early_break(question_ids: Sequence[str], measured: Measured) -> Floats:
    """Return (n,) the negative breaking temperature, −inf of an unbroken fact; NaN without several temperatures."""
    answers = grid(question_ids, measured.graded)
    if len(answers.temperatures) < 2 or np.isnan(answers.temperatures).any():
        return np.full(len(question_ids), np.nan)
    return -breaking_temperature(answers.accuracy, answers.temperatures)


def _reason(correct: Floats) -> str:
    """Return the reason why no uncertainty score can rank the errors; empty if there are right and wrong answers."""
    share = defined_mean(correct)
    return NONE_GRADED if np.isnan(share) else {0.0: ALL_WRONG, 1.0: ALL_RIGHT}.get(share, "")


def _table_of_scores(result: Score, scores: Mapping[str, Floats], correct: Floats) -> pa.Table:
    records: list[dict[str, Any]] = []
    for name, uncertainty in scores.items():
        judged = correct[~np.isnan(uncertainty)]
        record: dict[str, Any] = {
            "score": name,
            "questions": count_defined(judged),
            "wrong": int(np.count_nonzero(judged == 0)),
        }
        for key, spec in specs_of(name).items():
            record |= columns_of(key, result.values.get(spec.name, UNDEFINED))
        records.append(record)
    names = dict.fromkeys(key for record in records for key in record)
    return pa.Table.from_pylist([{key: record.get(key, np.nan) for key in names} for record in records])


def _differences(scores: Mapping[str, Floats], correct: Floats, groups: Sequence[str] | None) -> pa.Table:
    """Return the AUROC of each uncertainty score minus that of each later one, on the questions that have both."""
    records = []
    for one, other in combinations(scores, 2):
        both = ~np.isnan(scores[one]) & ~np.isnan(scores[other]) & ~np.isnan(correct)
        labels = None if groups is None else np.asarray(groups)[both]
        first, second = (error_ranking(scores[name][both], correct[both]).auroc.by_question for name in (one, other))
        difference = first - second
        estimate = Estimate(defined_mean(difference))
        if not np.isnan(estimate.value):
            estimate = Estimate(estimate.value, *mean_bounds(difference, (-np.inf, np.inf), labels))
        records.append(
            {"first": one, "second": other, **columns_of("difference", estimate), "questions": int(both.sum())}
        )
    schema = pa.schema(
        [("first", pa.string()), ("second", pa.string())]
        + [(name, pa.float64()) for name in ("difference", "difference_low", "difference_high")]
        + [("questions", pa.int64())]
    )
    return pa.Table.from_pylist(records, schema)
