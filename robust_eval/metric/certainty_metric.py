"""Answer certainty metric: answer entropy under repetition.

Reganova & Steinbach, "Testing Uncertainty of Large Language Models for Physics Knowledge and Reasoning", §2.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import (
    ABSTENTION,
    NO_ANSWER,
    NO_REPLY,
    SCHEMA,
    at_temperature,
    filtered,
    has_outcome,
    rows,
    temperatures_of,
)
from robust_eval.error import UserError
from robust_eval.metric.label_correction import corrected_shares, corrected_spec
from robust_eval.metric.metric_spec import DETAIL, MetricSpec, count_spec, share_spec
from robust_eval.metric.score import Correction, Measured, Metric, Score, grid, question_groups, question_rows, verdicts
from robust_eval.question import Question
from robust_eval.runtime.text import enumerated
from robust_eval.stats.entropy import answer_entropy, miller_madow
from robust_eval.stats.estimate import Estimate, columns_of, mean_estimate
from robust_eval.stats.interval import SHARE, Floats, Limits

ENTROPY = MetricSpec(
    "certainty.entropy",
    "answer entropy",
    unit="nats",
    more_is_better=False,
    primary=True,
    of_question="answer entropy (nats)",
    tie_breaker="certainty.error_rate",
)
ERROR_RATE = share_spec(
    "certainty.error_rate",
    "error rate",
    more_is_better=False,
    of_question="error rate",
    tie_breaker="certainty.entropy",
)
CERTAIN_WRONG = count_spec(
    "certainty.count.certain_wrong", "questions with certain but wrong answers", more_is_better=False
)
SPECS: tuple[MetricSpec, ...] = (
    ENTROPY,
    MetricSpec("certainty.entropy_miller_madow", "answer entropy, Miller–Madow", unit="nats", more_is_better=False),
    ERROR_RATE,
    count_spec("certainty.count.certain_right", "questions with certain and right answers", more_is_better=True),
    CERTAIN_WRONG,
    count_spec(
        "certainty.count.undefined",
        "questions without answer entropy",
        shown=DETAIL,
        left_out="Questions without answer entropy, because none of their replies contains an answer",
    ),
    count_spec("certainty.count.invalid", "repeated replies without an answer"),
)


INVALID = ("drop", "as_label", "as_published")
CERTAIN = 0.1
"""Maximum entropy of a certain question, as a share of the largest: the first of ten bins."""
INVALID_LABEL = " "
"""Label of invalid answers, if these have a label of their own; no reply normalises to it."""


@dataclass
class AnswerCertainty(Metric):
    """Entropy of the answers to each question and its error rate, at each temperature (docs/methods.md, §3)."""

    invalid: str = "drop"
    """Treatment of replies without an answer (no letter, a refusal): drop leaves them out, and a question with only
    such replies has no entropy; as_label counts them as an additional wrong label; as_published is drop, but a question
    with only such replies counts as certain (entropy 0) and wrong."""

    axis = "trial"
    specs = curves = SPECS
    needs_clusters = True

    def __post_init__(self) -> None:
        if self.invalid not in INVALID:
            raise ValueError(f"invalid must be {enumerated(INVALID)}, not {self.invalid}")

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """Raise UserError unless each question is repeated: asked at least twice under the same condition."""
        if repetitions < 2:
            raise UserError(
                "metric=certainty needs repeated answers to the same question, but each has only one: set the "
                "sampler's trials to 2 or more, or record more answers"
            )

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return the mean answer entropy (nats) and error rate by temperature.

        Tables: ``certainty`` has a row for each question and temperature, with the largest entropy that was possible
        (``most``), ``certainty_by_category`` the means of each category of questions.
        """
        ids, groups = [question.id for question in questions], question_groups(questions)
        exact = measured.estimator == "exact"
        replies = labelled_replies(measured.graded)
        counted = (
            replies if self.invalid == "as_label" else filtered(replies, pc.not_equal(replies["label"], INVALID_LABEL))
        )
        temperatures = temperatures_of(measured.graded)
        weights = [label_weights(ids, counted, t) for t in temperatures]
        unanswered = np.column_stack([label_weights(ids, replies, t, only=INVALID_LABEL)[:, 0] for t in temperatures])
        max_entropy = np.column_stack(
            [_max_entropy(questions, counted, t, self.invalid == "as_label") for t in temperatures]
        )
        entropy = np.column_stack([answer_entropy(table) for table in weights])
        corrected = np.column_stack([miller_madow(table, max_entropy[:, place]) for place, table in enumerate(weights)])
        error = 1 - grid(ids, counted, temperatures).accuracy
        if self.invalid == "as_published":
            nothing = np.isnan(entropy) & (unanswered > 0)
            entropy[nothing] = corrected[nothing] = 0
            keyed = np.array([bool(question.answers) or question.correct is not None for question in questions])
            error[nothing & keyed[:, None]] = 1
        curves = {"certainty.entropy": entropy, "certainty.error_rate": error}
        if not exact:  # an enumerated distribution has no such bias
            curves["certainty.entropy_miller_madow"] = corrected
        result = Score(question_ids=ids, specs=self.specs)
        highest = float(np.fmax(max_entropy, entropy).max(initial=0))
        limits = dict.fromkeys(curves, (0.0, highest)) | {"certainty.error_rate": SHARE}
        for name, values in curves.items():
            result.add_curve(name, values, temperatures, groups, limits[name])
        certain = entropy < np.maximum(CERTAIN * max_entropy, np.finfo(float).tiny)
        for corner, wrong in (("certain_right", 0), ("certain_wrong", 1)):
            number = (certain & (error == wrong)).sum(axis=0)
            result.curves[f"certainty.count.{corner}"] = {
                t: Estimate(float(count)) for t, count in zip(temperatures, number, strict=True)
            }
        result.values["certainty.count.undefined"] = Estimate(float(np.isnan(entropy).any(axis=1).sum()))
        result.values["certainty.count.invalid"] = Estimate(float(unanswered.sum()))
        result.tables["certainty"] = pa.table(
            {
                "question_id": [name for name in ids for _ in temperatures],  # numpy would cut them off at a NUL
                "category": [question.category for question in questions for _ in temperatures],
                "temperature": np.tile(temperatures, len(ids)),
                "labels": np.column_stack([np.count_nonzero(table, axis=1) for table in weights]).ravel(),
                "invalid": unanswered.ravel(),
                "most": max_entropy.ravel(),
                **{name.removeprefix("certainty."): values.ravel() for name, values in curves.items()},
            }
        )
        if any(question.category for question in questions):
            result.tables["certainty_by_category"] = _by_category(questions, temperatures, curves, limits, seed)
        result.settings["trials"] = round(counted.num_rows / max(len(ids) * len(temperatures), 1)) if not exact else 0
        return result

    def corrected(self, questions: Sequence[Question], measured: Measured, seed: int) -> Correction:
        """Return the error rate corrected by human labels."""
        correction = Correction(specs=[corrected_spec(ERROR_RATE, "certainty.corrected.error_rate")])
        graded = measured.graded
        has_answer = ~has_outcome(graded, (*NO_ANSWER, *NO_REPLY))
        counted = np.ones_like(has_answer) if self.invalid == "as_label" else has_answer
        if self.invalid == "as_published":  # a question that has no answer counts as wrong
            place = list(rows(graded, "question_id", "temperature"))
            nonempty = {key for key, is_answer in zip(place, has_answer, strict=True) if is_answer}
            counted = has_answer | np.array([key not in nonempty for key in place])
        judged = np.where(counted, verdicts(graded), np.nan)
        error_rates = corrected_shares(questions, graded, errors=True, judged=judged)
        correction.add_curve("certainty.corrected.error_rate", ERROR_RATE.name, error_rates)
        return correction


def labelled_replies(graded: pa.Table) -> pa.Table:
    """Return the answers that are replies; invalid ones have a label of their own.

    The table has the columns that are counted.
    """
    graded = graded.select(["question_id", "temperature", "weight", "outcome", "label", "correct"])
    graded = filtered(graded, ~has_outcome(graded, NO_REPLY))
    invalid = pc.or_(pa.array(has_outcome(graded, NO_ANSWER)), graded["label"].is_null())
    column = graded.schema.get_field_index("label")
    labels = pc.if_else(invalid, INVALID_LABEL, graded["label"])
    return graded.set_column(column, SCHEMA.field("label"), labels)


def _max_entropy(
    questions: Sequence[Question], answers: pa.Table, temperature: float, invalid_is_label: bool
) -> Floats:
    """Return (n,) the largest possible entropy of a question's answers: ln of its number of choices, one more where an
    answer abstains, or of answers.
    """
    choices = np.array([len(question.choices) for question in questions], dtype=float)
    answers = at_temperature(answers, temperature)
    row = question_rows([question.id for question in questions], answers)
    free = np.bincount(row, minlength=len(questions))
    choices[choices > 0] += invalid_is_label
    choices[np.unique(row[pc.equal(answers["label"], ABSTENTION).to_numpy()])] += 1
    maximum: Floats = np.log(np.maximum(np.where([bool(q.choices) for q in questions], choices, free), 1))
    return maximum


def _by_category(
    questions: Sequence[Question],
    temperatures: Sequence[float],
    curves: Mapping[str, Floats],
    limits: Mapping[str, Limits],
    seed: int,
) -> pa.Table:
    """Return the mean entropy and error rate over the questions of a category, with its interval, by temperature."""
    records = []
    for category in sorted({question.category for question in questions}):
        in_category = np.array([question.category == category for question in questions])
        groups = question_groups([question for question in questions if question.category == category])
        for place, t in enumerate(temperatures):
            row: dict[str, Any] = {"category": category, "temperature": t, "questions": int(in_category.sum())}
            for name, values in curves.items():
                mean = mean_estimate(values[in_category, place], groups, limits[name])
                row |= columns_of(name.removeprefix("certainty."), mean)
            records.append(row)
    return pa.Table.from_pylist(records)


def label_weights(
    question_ids: Sequence[str], answers: pa.Table, temperature: float, only: str | None = None
) -> Floats:
    """Return (n, K) the summed weight of the answers with each label at one temperature; each question has its own
    labels. ``only``: (n, 1) of this label.
    """
    weights: dict[str, dict[str, float]] = {question_id: {} for question_id in question_ids}
    for question_id, label, weight in rows(at_temperature(answers, temperature), "question_id", "label", "weight"):
        if only in (None, label):
            weights[question_id][label] = weights[question_id].get(label, 0.0) + weight
    table = np.zeros((len(question_ids), max([1, *map(len, weights.values())])))
    for row, labels in enumerate(weights.values()):
        table[row, : len(labels)] = list(labels.values())
    return table
