"""Solver, scorer and reducers of inspect_ai: a reply asked for at its temperature, graded, and reduced over epochs."""

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
from robust_eval.interop.inspect_log import failure, output_columns
from robust_eval.interop.own_mark import MARK, marked_question
from robust_eval.normalization import normal_form
from robust_eval.reader.reply import ReplyReader
from robust_eval.stats.entropy import answer_entropy as entropy_of
from robust_eval.stats.frs import settled

PLANNED = "temperatures"
"""The key of a mark that lists the temperatures above 0 at which its question is asked."""
_GRADED = ("label", "correct", "exact", "outcome", "answer", "rule", "reason")


def mark_in(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the mark of a sample; UserError if a task of ours did not make it."""
    mark = (metadata or {}).get(MARK)
    if not isinstance(mark, Mapping):
        raise UserError(
            "a sample does not say which question it asks under which condition: make the task with frs, certainty or "
            "multiqa of robust_eval.interop.inspect_tasks, which take samples and a scorer of your own"
        )
    return mark


def temperature_in(mark: Mapping[str, Any]) -> float:
    """Return the temperature of a mark; NaN: the model's own."""
    t = mark["temperature"]
    return DEFAULT_TEMPERATURE if t == temperature_name(DEFAULT_TEMPERATURE) else float(t)


@solver
def asked(top_logprobs: int = 0) -> Solver:
    """Ask each sample at its own temperature; greedy answers with ``top_logprobs`` of each token."""

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
    judge = ReplyGrader(ReplyReader(), Matching(), first_line=False)

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
    text = state.output.completion if state.output.choices else ""
    outcome = failure(state.output) or ("ok" if text else "empty")
    place = {"question_id": question_id, "rewrite": mark["rewrite"], "temperature": temperature_in(mark)}
    reply = {"trial": state.epoch - 1, "text": text, "outcome": outcome, "weight": 1.0}
    return {**place, **reply, **output_columns(state.output)}


def _as_they_say(score: Score | None, text: str) -> dict[str, Any]:
    """Return the columns that another scorer's verdict fills; a share of one half or more counts as right."""
    value = math.nan if score is None else value_to_float()(score.value)
    right = None if value != value else value >= 0.5
    answer = text if score is None or score.answer is None else score.answer
    label = normal_form(answer) or None
    return {"correct": right, "exact": right, "answer": answer, "label": label}


def _score(row: dict[str, Any], theirs: Score | None) -> Score:
    columns = {name: value for name, value in row.items() if value is not None and name != "reasoning"}
    if columns["temperature"] != columns["temperature"]:
        columns["temperature"] = temperature_name(DEFAULT_TEMPERATURE)
    right = False if row.get("correct") is None and row["outcome"] in NO_ANSWER else row.get("correct")
    unscored = right is None or row["outcome"] in NO_REPLY
    return Score(
        value=math.nan if unscored else CORRECT if right else INCORRECT,
        answer=row.get("answer"),
        explanation=theirs.explanation if theirs is not None else row.get("reason") or row.get("rule"),
        reason=row["outcome"] if unscored else None,
        metadata={MARK: columns},
    )


@score_reducer
def answer_entropy() -> ScoreReducer:
    """Entropy (nats) of the answers of the epochs that said something; answers with the same normal form are one."""

    def reduce(scores: list[Score]) -> Score:
        forms = Counter(form for score in scores if score.answer and (form := normal_form(score.answer)))
        return Score(value=float(entropy_of([list(forms.values())])[0]) if forms else math.nan)

    return reduce


@score_reducer
def firmness(threshold: float = 0.5) -> ScoreReducer:
    """1 where at least this share of the epochs is right, 0 where it is not; epochs without a score do not count."""
    number = value_to_float()

    def reduce(scores: list[Score]) -> Score:
        values = [value for score in scores if not math.isnan(value := number(score.value))]
        right = sum(value >= 0.5 for value in values)
        holds = settled(right, len(values) - right, 0, threshold)
        return Score(value={"holds": 1.0, "breaks": 0.0}.get(holds or "", math.nan))

    return reduce
