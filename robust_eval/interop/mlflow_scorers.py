"""Our metrics as scorers of ``mlflow.genai.evaluate``: a row is a question, its outputs are the replies to it.

mlflow.genai.evaluate(data, predict_fn=ask_twenty_times, scorers=[accuracy, answer_entropy])

Outputs are a reply, a list of replies at one temperature, or lists by temperature: ``{0.2: [...], 1.0: [...]}``. The
accepted answers are ``expectations["answers"]``, a text or a list. Each scorer has the mean of the questions, and as
``low`` and ``high`` the ends of its 95 % interval.
"""

import math
from collections.abc import Callable, Mapping, Sequence
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


def _mean_and_ends(limits: tuple[float, float]) -> list[Any]:
    """Return the aggregations of values within limits: their mean, and ``low`` and ``high``, as MLflow names them."""
    return ["mean", *(_end(place, name, limits) for place, name in enumerate(("low", "high")))]


def _end(place: int, name: str, limits: tuple[float, float]) -> Callable[[list[float]], float]:
    def end(values: list[float]) -> float:
        return mean_bounds(np.array(values), limits)[place]

    end.__name__ = name
    return end


_MEAN, _SHARE = _mean_and_ends((0.0, math.inf)), _mean_and_ends(SHARE)


@scorer(aggregations=_SHARE)
def accuracy(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """Share of the replies that are right, as ``grader=matching`` grades them."""
    _, graded = _graded(inputs, outputs, expectations)
    counts = grid([_ID], graded)
    return Feedback(value=float(counts.correct.sum() / counts.replies.sum()), rationale=_label_counts(graded))


@scorer(aggregations=_MEAN)
def answer_entropy(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """Entropy (nats) of the answers to a question, the mean of its temperatures; none where no reply answers."""
    question, graded = _graded(inputs, outputs, expectations)
    scored = AnswerCertainty().score([question], Measured(graded.slice(0, 0), graded), seed=0)
    entropies = np.array(scored.tables["certainty"]["entropy"].to_pylist(), dtype=float)
    value = None if np.isnan(entropies).all() else float(np.nanmean(entropies))
    return Feedback(value=value, rationale=_label_counts(graded))


@scorer(aggregations=_MEAN)
def breaking_temperature(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """Lowest temperature at which less than half of the replies are right; none for a fact that holds at all."""
    at, graded = _breaking(inputs, outputs, expectations)
    return Feedback(value=None if math.isinf(at) else at, rationale=_label_counts(graded))


@scorer(aggregations=_SHARE)
def firmness(inputs: Any, outputs: Any, expectations: Any) -> Feedback:
    """True if at least half of the replies are right at every temperature."""
    at, graded = _breaking(inputs, outputs, expectations)
    return Feedback(value=math.isinf(at), rationale=_label_counts(graded))


def _breaking(inputs: Any, outputs: Any, expectations: Any) -> tuple[float, pa.Table]:
    if not isinstance(outputs, Mapping):
        raise UserError("a breaking temperature needs outputs by temperature, such as {0.2: [...], 1.0: [...]}")
    _, graded = _graded(inputs, outputs, expectations)
    grid_of_replies = grid([_ID], graded)
    return float(breaks(grid_of_replies.accuracy, grid_of_replies.temperatures)[0]), graded


def _graded(inputs: Any, outputs: Any, expectations: Any) -> tuple[Question, pa.Table]:
    """Return the question and its replies, graded; UserError where outputs or expectations are none."""
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
    """Return one text or several; UserError where there is none, or something else."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        expected = (
            'the accepted answers, {"answers": [...]}' if where == "expectations" else "replies: a text or a list"
        )
        raise UserError(f"{where} must hold {expected} of texts, not {value!r:.80}")
    return tuple(texts)


def _number(temperature: Any) -> float:
    """Return a temperature that may be a text, as JSON has it for a key."""
    try:
        number = float(temperature)
    except (TypeError, ValueError) as problem:
        raise UserError(f"outputs must be by temperature, a number, not {temperature!r:.40}") from problem
    if number < 0 or math.isinf(number):
        raise UserError(f"outputs must be by temperature, 0 or more, not {number:g}")
    return number


def _label_counts(graded: pa.Table) -> str:
    """Return the number of replies with each label, the most frequent first."""
    counts = graded["label"].value_counts().to_pylist()
    ordered = sorted(counts, key=lambda each: (-each["counts"], str(each["values"])))
    return ", ".join(f"{each['values'] or 'no answer'}: {each['counts']}" for each in ordered)
