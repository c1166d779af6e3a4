"""How inspect_ai asks a sample at its temperature, and what its reply is worth."""

import math
from collections.abc import Mapping
from typing import Any

from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, mean, scorer, stderr, value_to_float
from inspect_ai.solver import Generate, Solver, TaskState, solver

from robust_eval.answer import NO_ANSWER, NO_REPLY, OWN, answer_table, temperature_name
from robust_eval.error import UserError
from robust_eval.grader.judge import Judge
from robust_eval.grader.matching import Matching
from robust_eval.harness.inspect_logs import output_columns
from robust_eval.harness.own_mark import MARK, marked_question
from robust_eval.normalization import normal_form
from robust_eval.reader.reply import ReplyReader

_GRADED = ("label", "correct", "exact", "outcome", "answer", "rule", "reason")


def mark_in(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the mark of a sample; UserError where a task of ours did not make it."""
    mark = (metadata or {}).get(MARK)
    if not isinstance(mark, Mapping):
        raise UserError(
            "a sample does not say which question it asks under which condition: make the task with frs, certainty or "
            "multiqa of robust_eval.inspect_tasks.tasks, which take samples and a scorer of your own"
        )
    return mark


def temperature_in(mark: Mapping[str, Any]) -> float:
    """Return the temperature of a mark; NaN: the model's own."""
    return OWN if mark["temperature"] == temperature_name(OWN) else float(mark["temperature"])


@solver
def asked(top_logprobs: int = 0) -> Solver:
    """Ask each sample at its own temperature; of greedy answers with so many log-probabilities of each token."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        t = temperature_in(mark_in(state.metadata))
        settings: dict[str, Any] = {} if t != t else {"temperature": t}
        if t == 0 and top_logprobs:
            settings |= {"logprobs": True, "top_logprobs": top_logprobs}
        return await generate(state, **settings)

    return solve


@scorer(metrics=[mean(), stderr()])
def graded(by: Scorer | None = None) -> Scorer:
    """Score a reply as robust_eval grades it (``grader=matching``), or as another scorer does.

    The score keeps what the metrics need: its metadata hold the columns of the answer. It is *unscored* where no reply
    came (an error, a filter).
    """
    judge = Judge(ReplyReader(), Matching(), first_line=False)

    async def score(state: TaskState, target: Target) -> Score:
        mark = mark_in(state.metadata)
        question = marked_question(mark["question"], f"sample {state.sample_id}")
        row = _row(state, question.id, mark)
        theirs = None
        if by is None:
            row |= {
                name: value
                for name, value in judge.grade([question], answer_table([row])).to_pylist()[0].items()
                if name in _GRADED
            }
        elif row["outcome"] not in NO_REPLY:
            theirs = await by(state, target)
            row |= _as_they_say(theirs, row["text"])
        return _score(row, theirs)

    return score


def _row(state: TaskState, question_id: str, mark: Mapping[str, Any]) -> dict[str, Any]:
    choice = next(iter(state.output.choices), None)
    text = state.output.completion if choice is not None else ""
    if choice is None or (state.output.error and not text):
        outcome = "error"
    elif choice.stop_reason == "content_filter":
        outcome = "filtered_reply"
    else:
        outcome = "ok" if text else "empty"
    place = {"question_id": question_id, "rewrite": mark["rewrite"], "temperature": temperature_in(mark)}
    said = {"trial": state.epoch - 1, "text": text, "outcome": outcome, "weight": 1.0}
    return {**place, **said, **output_columns(state.output)}


def _as_they_say(score: Score | None, text: str) -> dict[str, Any]:
    """Return the columns that another scorer's verdict fills; a share of one half or more counts as right."""
    value = math.nan if score is None else value_to_float()(score.value)
    right = None if value != value else value >= 0.5
    answer = text if score is None or score.answer is None else score.answer
    label = normal_form(answer) or None
    return {"correct": right, "exact": right, "answer": answer, "label": label}


def _score(row: dict[str, Any], theirs: Score | None) -> Score:
    kept = {name: value for name, value in row.items() if value is not None and name != "reasoning"}
    if kept["temperature"] != kept["temperature"]:
        kept["temperature"] = temperature_name(OWN)
    right = False if row.get("correct") is None and row["outcome"] in NO_ANSWER else row.get("correct")
    unscored = right is None or row["outcome"] in NO_REPLY
    return Score(
        value=math.nan if unscored else CORRECT if right else INCORRECT,
        answer=row.get("answer"),
        explanation=theirs.explanation if theirs is not None else row.get("reason") or row.get("rule"),
        reason=row["outcome"] if unscored else None,
        metadata={MARK: kept},
    )
