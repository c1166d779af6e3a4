from collections.abc import Sequence

from answer_rows import answer_row

from robust_eval.answer import Answers, answer_table
from robust_eval.model.base import Request
from robust_eval.prompt.prompt import Prompt
from robust_eval.sampler.steps import Steps, plan_steps, run_steps, single_step
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


def test_steps_that_need_no_request_end_with_their_answers():
    for steps, name in ((idle, "known"), (lambda: single_step([request("a")]), "a")):
        assert run_steps(Stored(), steps(), "test").table["question_id"].to_pylist() == [name]
        missing, answers = plan_steps(Stored(), steps())
        assert (missing, answers is not None and answers.table.num_rows) == ([], 1)
