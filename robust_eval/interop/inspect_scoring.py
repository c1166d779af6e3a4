"""Solver, scorer and reducers of inspect_ai: replies sampled at their temperatures, graded, and reduced over epochs."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    Score,
    Scorer,
    ScoreReducer,
    Target,
    mean,
    score_reducer,
    scorer,
    stderr,
    value_to_float,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver

from robust_eval.answer import DEFAULT_TEMPERATURE, NO_ANSWER, NO_REPLY, answer_table, temperature_name
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.interop.export_mark import MARK, marked_question
from robust_eval.interop.inspect_log import failure, output_columns
from robust_eval.normalization import normalised_form
from robust_eval.reader.reply import ReplyReader
from robust_eval.stats.entropy import answer_entropy as entropy_of

PLANNED = "temperatures"
"""Key of a mark: the temperatures above 0 at which the task samples its question."""
_GRADED = ("label", "correct", "exact", "outcome", "answer", "rule", "reason")


def mark_in(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the mark of an inspect_ai sample; UserError if a task of ours did not make it."""
    mark = (metadata or {}).get(MARK)
    if not isinstance(mark, Mapping):
        raise UserError(
            "a sample does not name its question and condition: create the task with frs, certainty or multiqa from "
            "robust_eval.interop.inspect_tasks, which take your samples and your scorer"
        )
    return mark


def temperature_in(mark: Mapping[str, Any]) -> float:
    """Return the temperature of an inspect_ai sample's mark; NaN: the model's own."""
    t = mark["temperature"]
    return DEFAULT_TEMPERATURE if t == temperature_name(DEFAULT_TEMPERATURE) else float(t)


@solver
def asked(top_logprobs: int = 0) -> Solver:
    """Sample each reply at the temperature of its mark; greedy answers with ``top_logprobs`` for each token."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        t = temperature_in(mark_in(state.metadata))
        settings: dict[str, Any] = {} if t != t else {"temperature": t}
        if t == 0 and top_logprobs:
            settings |= {"logprobs": True, "top_logprobs": top_logprobs}
        return await generate(state, **settings)

    return solve


@scorer(metrics=[mean(), stderr()])
def graded(by: Scorer | None = None) -> Scorer:
    """Score a reply in inspect_ai with the grader of robust_eval (``grader=matching``), or with another scorer.

    The metadata of the score hold the columns of the answer, which the metrics need. Without a reply (an error, a
    filter), the score is *unscored*.
    """
    grader = ReplyGrader(ReplyReader(), Matching(), first_line=False)

    async def score(state: TaskState, target: Target) -> Score:
        mark = mark_in(state.metadata)
        question = marked_question(mark["question"], f"sample {state.sample_id}")
        row = _row(state, question.id, mark)
        explanation = None
        if by is None:
            graded = grader.grade([question], answer_table([row])).to_pylist()[0]
            row |= {name: graded[name] for name in _GRADED}
        elif row["outcome"] not in NO_REPLY:
            their_score = await by(state, target)
            row |= _columns_of_score(their_score, row["text"])
            explanation = their_score and their_score.explanation
        right = False if row.get("correct") is None and row["outcome"] in NO_ANSWER else row.get("correct")
        unscored = right is None or row["outcome"] in NO_REPLY
        columns = {name: value for name, value in row.items() if value is not None and name != "reasoning"}
        return Score(
            value=math.nan if unscored else CORRECT if right else INCORRECT,
            answer=row.get("answer"),
            explanation=explanation or row.get("reason") or row.get("rule"),
            reason=row["outcome"] if unscored else None,
            metadata={MARK: columns | {"temperature": mark["temperature"]}},
        )

    return score


def _row(state: TaskState, question_id: str, mark: Mapping[str, Any]) -> dict[str, Any]:
    text = state.output.completion if state.output.choices else ""
    outcome = failure(state.output) or ("ok" if text else "empty")
    condition = {"question_id": question_id, "rewrite": mark["rewrite"], "temperature": temperature_in(mark)}
    reply = {"trial": state.epoch - 1, "text": text, "outcome": outcome, "weight": 1.0}
    return condition | reply | output_columns(state.output)


def _columns_of_score(score: Score | None, text: str) -> dict[str, Any]:
    """Return the columns for the verdict of another inspect_ai scorer; a score of one half or more counts as right."""
    value = math.nan if score is None else value_to_float()(score.value)
    right = None if value != value else value >= 0.5
    answer = text if score is None or score.answer is None else score.answer
    return {"correct": right, "exact": right, "answer": answer, "label": normalised_form(answer) or None}


@score_reducer
def answer_entropy() -> ScoreReducer:
    """Reducer for inspect_ai: entropy (nats) of the answers of the epochs. Answers with the same normalised form are
    equal, and an empty one does not count.
    """

    def reduce(scores: list[Score]) -> Score:
        forms = Counter(form for score in scores if score.answer and (form := normalised_form(score.answer)))
        return Score(value=float(entropy_of([list(forms.values())])[0]) if forms else math.nan)

    return reduce
