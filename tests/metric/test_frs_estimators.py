import math

import numpy as np
import pyarrow as pa
import pytest

from robust_eval.answer import CURVES, answer_table
from robust_eval.metric.crossing import NORMAL_95
from robust_eval.metric.frs import FactualRobustness, certainty_bins
from robust_eval.metric.score import Measured, grid, reply_weights
from robust_eval.question import Question

GRID = [0.5, 1.0, 1.5]
QUESTIONS = [Question(id=name, text=f"{name}?") for name in "abc"]
SURE, TORN = [0.0, -math.inf], [math.log(0.5), math.log(0.5)]  # entropy 0 and 1 with k = 2
NAN, INF = math.nan, math.inf


def answer(question_id, temperature=0.0, correct=True, weight=0.25, **columns):
    return {
        "question_id": question_id,
        "rewrite": 0,
        "temperature": temperature,
        "trial": 0,
        "text": "",
        "correct": correct,
        "outcome": "ok",
        "weight": weight,
        **columns,
    }


# H is 1/2, 0 and 1. Of four trials at 0.5, 1.0 and 1.5 are right:
BASELINE = answer_table(
    answer(name, top_logprobs=top, answer_tokens=len(top))
    for name, top in (("a", [TORN, SURE]), ("b", [SURE]), ("c", [TORN]))
)
TRIALS = {"a": [4, 4, 2], "b": [4, 2, 1], "c": [1, 0, 0]}  # never broken, breaks at 1.5, breaks at 0.5
GRADED = answer_table(
    answer(name, temperature, trial < right)
    for name, counts in TRIALS.items()
    for temperature, right in zip(GRID, counts, strict=True)
    for trial in range(4)
)


def curve_table(accuracy, temperatures=GRID, error=0.0, lower=0.0, upper=1.0):
    return pa.table(
        {
            "question_id": [name for name in accuracy for _ in temperatures],
            "rewrite": [0] * (len(accuracy) * len(temperatures)),
            "temperature": [t for _ in accuracy for t in temperatures],
            "accuracy": [float(p) for curve in accuracy.values() for p in curve],
            "standard_error": [float(error)] * (len(accuracy) * len(temperatures)),
            "lower": [float(p - lower) if lower else 0.0 for curve in accuracy.values() for p in curve],
            "upper": [float(p + upper) if upper < 1 else 1.0 for curve in accuracy.values() for p in curve],
        },
        schema=CURVES,
    )


COMBINED = {"a": [1.0, 0.75, 0.25], "b": [1.05, 0.75, 0.5], "c": [0.6, 0.3, -0.02]}  # 1.5, never, 1.0


def score(estimator="trials", curves=None, graded=GRADED, **options):
    told = curve_table(COMBINED) if curves is None else curves
    metric = FactualRobustness(**{"k": 2, "d": [1], **options})
    return metric.score(QUESTIONS, Measured(BASELINE, graded, told, estimator), seed=0)


def frs(entropy, breaking, d=1):
    """By Eq. 3 of the paper."""
    if math.isinf(breaking):
        return 1.0
    f = entropy / d - breaking * (1 - entropy) if False else None
    return f


def values_of(curve):
    return {temperature: estimate.value for temperature, estimate in curve.items()}


def by_question(found, column):
    return found.tables["frs"][column].to_pylist()
