"""Metrics as MLflow scorers for ``mlflow.genai.evaluate``: a row is a question, its outputs are the replies to it.

mlflow.genai.evaluate(data, predict_fn=ask_twenty_times, scorers=[accuracy, answer_entropy])

Outputs are a reply, a list of replies at one temperature, or lists by temperature: ``{0.2: [...], 1.0: [...]}``. The
accepted answers are ``expectations["answers"]``, a text or a list. Each scorer has the mean over questions, and the
bounds ``low`` and ``high`` of its 95 % interval.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from mlflow.entities import Feedback
from mlflow.genai.scorers import scorer

from robust_eval.aggregator.base import EqualText
from robust_eval.answer import DEFAULT_TEMPERATURE, answer_table
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.score import Measured, grid
from robust_eval.question import Question
from robust_eval.reader.reply import ReplyReader
from robust_eval.stats.frs import breaking_temperature as breaks
from robust_eval.stats.interval import SHARE, mean_bounds

_ID = "question"


def _mean_and_bounds(limits: tuple[float, float]) -> list[Any]:
    """Return MLflow's aggregations of values within limits: the mean, and the bounds of its interval."""

    def low(values: list[float]) -> float:
        return mean_bounds(np.array(values), limits)[0]

    def high(values: list[float]) -> float:
        return mean_bounds(np.array(values), limits)[1]

    return ["mean", low, high]


_MEAN, _SHARE = _mean_and_bounds((0.0, math.inf)), _mean_and_bounds(SHARE)


@scorer(aggregations=_SHARE)
def accuracy(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """MLflow scorer: share of right replies, graded by ``grader=matching``."""
    _, graded = _graded(inputs, outputs, expectations)
    counts = grid([_ID], graded)
    return Feedback(value=float(counts.correct.sum() / counts.replies.sum()), rationale=_label_counts(graded))


@scorer(aggregations=_MEAN)
def answer_entropy(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """MLflow scorer: entropy (nats) of a question's answers, averaged over temperatures; undefined without any."""
    question, graded = _graded(inputs, outputs, expectations)
    scored = AnswerCertainty().score([question], Measured(graded.slice(0, 0), graded), seed=0)
    entropies = np.array(scored.tables["certainty"]["entropy"].to_pylist(), dtype=float)
    value = None if np.isnan(entropies).all() else float(np.nanmean(entropies))
    return Feedback(value=value, rationale=_label_counts(graded))


@scorer(aggregations=_MEAN)
def breaking_temperature(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """MLflow scorer: lowest temperature with less than half of the replies right; undefined for an unbroken fact."""
    t_b, graded = _breaking(inputs, outputs, expectations)
    return Feedback(value=None if math.isinf(t_b) else t_b, rationale=_label_counts(graded))


@scorer(aggregations=_SHARE)
def unbroken(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """MLflow scorer: true if at least half of the replies are right at every temperature."""
    t_b, graded = _breaking(inputs, outputs, expectations)
    return Feedback(value=math.isinf(t_b), rationale=_label_counts(graded))


def _breaking(inputs: Any, outputs: Any, expectations: Any) -> tuple[float, pa.Table]:
    if not isinstance(outputs, Mapping):
        raise UserError("a breaking temperature needs outputs by temperature, such as {0.2: [...], 1.0: [...]}")
    _, graded = _graded(inputs, outputs, expectations)
    grid_of_replies = grid([_ID], graded)
    return float(breaks(grid_of_replies.accuracy, grid_of_replies.temperatures)[0]), graded


def _graded(inputs: Any, outputs: Any, expectations: Any) -> tuple[Question, pa.Table]:
    """Return an MLflow row's question and its graded replies; UserError for invalid outputs or expectations."""
    question_text = inputs.get("question", inputs) if isinstance(inputs, Mapping) else inputs
    question = Question(
        id=_ID, text=str(question_text), answers=_texts((expectations or {}).get("answers"), "expectations")
    )
    by_temperature = outputs if isinstance(outputs, Mapping) else {DEFAULT_TEMPERATURE: outputs}
    rows = [
        {"question_id": _ID, "rewrite": 0, "temperature": _number(t), "trial": trial, "text": text}
        | {"outcome": "ok" if text.strip() else "empty", "weight": 1.0}
        for t, replies in by_temperature.items()
        for trial, text in enumerate(_texts(replies, "outputs"))
    ]
    graded = ReplyGrader(ReplyReader(), Matching(), first_line=False).grade([question], answer_table(rows))
    return question, EqualText().aggregate([question], graded)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    """Return an MLflow value, a text or a list of texts, as a tuple; UserError for an empty list or any other value."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        expected = 'the accepted answers, {"answers": [...]},' if where == "expectations" else "replies,"
        raise UserError(f"{where} must contain {expected} a string or a list of strings, not {value!r:.80}")
    return tuple(texts)


def _number(temperature: Any) -> float:
    """Return an MLflow row's temperature, which may be a text, such as a key in JSON."""
    try:
        number = float(temperature)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or math.isinf(number):
        raise UserError(f"keys of outputs must be finite temperatures of 0 or more, not {temperature!r:.40}")
    return number


def _label_counts(graded: pa.Table) -> str:
    """Return the number of replies with each label in an MLflow row, the most frequent first."""
    counts = graded["label"].value_counts().to_pylist()
    ordered = sorted(counts, key=lambda each: (-each["counts"], str(each["values"])))
    return ", ".join(f"{each['values'] or 'no answer'}: {each['counts']}" for each in ordered)
