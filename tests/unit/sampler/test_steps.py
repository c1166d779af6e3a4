from collections.abc import Sequence
from typing import Any

import pytest
from answer_rows import answer_row

from robust_eval.answer import Answers, answer_table
from robust_eval.model.base import Request
from robust_eval.prompt.prompt import Prompt
from robust_eval.sampler.steps import Step, Steps, plan_steps, run_steps, single_step
from robust_eval.store.stored_model import StoredModel


class Stored(StoredModel):
    """A model whose store has an answer to every request."""

    def __init__(self) -> None: ...

    def missing(self, requests: Sequence[Request]) -> list[Request]:
        return []

    def answers(self, requests: Sequence[Request], stage: str) -> Answers:
        return Answers(answer_table([answer_row(each.question_id) for each in requests]))


def request(name: str) -> Request:
    return Request(name, 0, Prompt("", (), name), (1.0,), 1, 5, 0)


def idle() -> Steps:
    """Steps of a sampler that has nothing to ask, but an answer."""
    return Answers(answer_table([answer_row("known")]))
    yield


def adaptive() -> Steps:
    yield Step([request("b")], adaptive=request("b"))
    return Answers(answer_table([]))


def verdicts(table: Any) -> list[bool | None]:
    return [True] * table.num_rows


def test_steps_that_need_no_request_end_with_their_answers():
    for steps, ids in (([idle()], ["known"]), ([single_step([request("a")]), idle()], ["a", "known"])):
        table = run_steps(Stored(), steps, "test", verdicts).table
        assert sorted(table["question_id"].to_pylist()) == ids
    missing, answers = plan_steps(Stored(), [idle(), single_step([request("a")])], verdicts)
    assert (missing, answers is not None and answers.table.num_rows) == ([], 2)


def test_adaptive_steps_beside_others_are_refused_which_would_be_forgotten():
    with pytest.raises(ValueError, match="either only adaptive steps or only steps that are not"):
        run_steps(Stored(), [single_step([request("a")]), adaptive()], "test", verdicts)
