"""Answers to five facts, few enough to work out every figure of the Factual Robustness Score by hand."""

import math
from fractions import Fraction

import pyarrow as pa
import pytest
from answer_rows import answer_row

from robust_eval.answer import EXACT_CURVES, answer_table
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.score import Measured
from robust_eval.question import Question

SURE, TORN = [0.0, -math.inf], [math.log(0.5), math.log(0.5)]  # entropy 0 and 1 with k = 2
# Question: log-probabilities of the greedy answer's tokens, how many carry the answer, and right replies of four at
# 0.5, 1.0 and 1.5. No request for e at 0.5 brought a reply.
FACTS = {
    "a": ([TORN, SURE, TORN], 2, [4, 4, 2]),  # H = 1/2, with the end token 2/3; never below one half
    "b": ([SURE, TORN], 1, [4, 2, 1]),  # H = 0, with the end token 1/2; breaks at 1.5
    "c": ([TORN], 1, [1, 0, 0]),  # H = 1, no end token; breaks at 0.5
    "d": ([SURE, SURE, TORN], 2, [3, 1, 4]),  # H = 0, with the end token 1/3; breaks at 1.0, the fit does not
    "e": ([SURE], 1, [None, 4, 0]),  # H = 0; nobody knows where it breaks
}
QUESTIONS = [Question(id=name, text=f"{name}?") for name in FACTS]
UNKNOWN = pytest.approx((math.nan, math.nan, math.nan), nan_ok=True)


def answer(question_id, temperature=0.0, correct=True, outcome="ok", **columns):
    same = {"temperature": temperature, "correct": correct, "outcome": outcome, "weight": 0.25}
    return answer_row(question_id, **(same | columns))


def trials(question_id, temperature, correct, of=4, **columns):
    """``of`` replies, the first ``correct`` of them right; requests without a reply where ``correct`` is None."""
    if correct is None:
        return [answer(question_id, temperature, None, "error", **columns)] * of
    return [answer(question_id, temperature, trial < correct, **columns) for trial in range(of)]


BASELINE = answer_table(
    answer(name, top_logprobs=top_logprobs, answer_tokens=length) for name, (top_logprobs, length, _) in FACTS.items()
)
ROWS = [
    row
    for name, (_, _, right) in FACTS.items()
    for temperature, correct in zip([0.5, 1.0, 1.5], right, strict=True)
    for row in trials(name, temperature, correct)
]
GRADED = answer_table(ROWS)


def score_facts(questions=QUESTIONS, baseline=BASELINE, graded=GRADED, seed=0, **options):
    return FactualRobustness(**{"k": 2, "d": [1, 2], **options}).score(questions, Measured(baseline, graded), seed)


def figures(score, *without):
    return {name: estimate.value for name, estimate in score.values.items() if not name.startswith(without)}


def score_one(rows, **options):
    """The score of question a, whose greedy answer is sure."""
    baseline = answer_table([answer("a", top_logprobs=[SURE], answer_tokens=1)])
    return score_facts(QUESTIONS[:1], baseline, answer_table(rows), **options)


def curves(*questions, below=1.0, above=1.0):
    """A table of curves: the id, temperatures, accuracies and standard errors of each question, with bounds around."""
    names = ("question_id", "rewrite", "temperature", "accuracy", "standard_error", "lower", "upper")
    rows = [
        (name, 0, t, accuracy, error, max(accuracy - below, 0.0), min(accuracy + above, 1.0))
        for name, *columns in questions
        for t, accuracy, error in zip(*columns, strict=True)
    ]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=EXACT_CURVES)


def exact_score(entropy, temperature, d):
    """Eq. 3 and 4 in rational arithmetic."""
    h, t = Fraction(entropy), Fraction(temperature)
    f = (1 - h) ** d * (t + 1) - h / (t + 1)
    return (f + 1) / (f + 2)
