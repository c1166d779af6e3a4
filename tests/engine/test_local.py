import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from robust_eval.answer import CURVES, SCHEMA, AnswerLog, read_log
from robust_eval.engine.local import Local
from robust_eval.model.base import Completion, Curve, Reply, Request
from robust_eval.prompt.prompt import Prompt

NAMES = ["b", "a", "c"]


def request(name: str, rewrite: int = 0, temperatures: tuple[float, ...] = (0.5, 1.0), trials: int = 2) -> Request:
    return Request(name, rewrite, Prompt("", (), name), temperatures, trials, 5, seed=0)


def completion(asked: Request, temperature: float, trial: int) -> Completion:
    text = f"{asked.question_id}{asked.rewrite}" if trial == 0 else ""
    return Completion(
        temperature=temperature,
        trial=trial,
        text=text,
        weight=1 / asked.trials,
        token_ids=[7, 2],
        token_logprobs=[-0.5, -0.25],
        sampling_logprobs=[-1.0, -0.75],
        top_logprobs=[[-0.5, -2.0], [-0.25, -3.0]] if asked.top_logprobs else None,
        answer_tokens=1,
        finish_reason="stop",
        prompt_tokens=11,
    )


def curve(asked: Request) -> Curve:
    at = np.array([*asked.temperatures, 3.0])
    return Curve(at, at / 4, at / 10, at / 8, np.minimum(at / 2, 1))


class Scripted:
    """Answers in an order that is given, with curves to some questions only."""

    def __init__(self, order: Sequence[int], with_curve: str = "") -> None:
        self._order = order
        self._with_curve = with_curve

    def complete(self, requests: Sequence[Request]) -> Iterator[Reply]:
        for index in self._order:
            asked = requests[index]
            answers = [completion(asked, t, k) for t in asked.temperatures for k in range(asked.trials)]
            yield Reply(asked, answers, curve(asked) if asked.question_id in self._with_curve else None)

    def description(self) -> dict[str, Any]:
        return {}


def run(tmp_path: Path, model: Scripted, requests: Sequence[Request]) -> tuple[pa.Table, pa.Table, pa.Table]:
    with AnswerLog(tmp_path / "log") as log:
        table, curves = Local().run(model, requests, log, "test")
    return table, curves, read_log(tmp_path / "log")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_answers_and_curves_come_in_the_order_of_the_requests(tmp_path: Path, order: tuple[int, ...]):
    requests = [request(name) for name in NAMES]
    table, curves, log = run(tmp_path, Scripted(order, "abc"), requests)
    assert table.schema == SCHEMA
    assert curves.schema == CURVES
    conditions = [(name, t, k) for name in NAMES for t in (0.5, 1.0) for k in range(2)]
    columns = (table[name].to_pylist() for name in ("question_id", "temperature", "trial"))
    assert list(zip(*columns, strict=True)) == conditions
    assert curves.to_pylist() == [
        {
            "question_id": name,
            "rewrite": 0,
            "temperature": t,
            "accuracy": t / 4,
            "standard_error": t / 10,
            "lower": t / 8,
            "upper": min(t / 2, 1),
        }
        for name in NAMES
        for t in (0.5, 1.0, 3.0)
    ]
    arrived = [NAMES[index] for index in order for _ in range(4)]
    assert log["question_id"].to_pylist() == arrived
    assert log.sort_by([("question_id", "ascending")]) == table.sort_by([("question_id", "ascending")])


def test_a_completion_is_a_row_of_the_answer_table(tmp_path: Path):
    asked = Request("q", 3, Prompt("", (), "q"), (0.5,), 2, 5, seed=0, top_logprobs=2)
    table, curves, _ = run(tmp_path, Scripted([0]), [asked])
    row = {
        "question_id": "q",
        "rewrite": 3,
        "temperature": 0.5,
        "trial": 0,
        "text": "q3",
        "label": None,
        "correct": None,
        "exact": None,
        "outcome": "ok",
        "weight": 0.5,
        "token_ids": [7, 2],
        "token_logprobs": [-0.5, -0.25],
        "sampling_logprobs": [-1.0, -0.75],
        "top_logprobs": [[-0.5, -2.0], [-0.25, -3.0]],
        "answer_tokens": 1,
        "finish_reason": "stop",
        "prompt_tokens": 11,
        "completion_tokens": 2,
    }
    assert table.to_pylist() == [row, row | {"trial": 1, "text": "", "outcome": "empty"}]
    assert curves == CURVES.empty_table()


def test_rewrites_of_a_question_are_told_apart(tmp_path: Path):
    requests = [request("a", 1), request("a", 0), request("b", 1)]
    table, curves, _ = run(tmp_path, Scripted([2, 1, 0], "a"), requests)
    assert table["text"].to_pylist()[::2] == ["a1", "a1", "a0", "a0", "b1", "b1"]
    assert curves["rewrite"].to_pylist() == [1, 1, 1, 0, 0, 0]


def test_nothing_asked_is_nothing_answered(tmp_path: Path):
    table, curves, log = run(tmp_path, Scripted([]), [])
    assert (table, curves, log) == (SCHEMA.empty_table(), CURVES.empty_table(), SCHEMA.empty_table())


def test_answers_that_came_before_a_failure_are_in_the_log(tmp_path: Path):
    class Fails(Scripted):
        def complete(self, requests: Sequence[Request]) -> Iterator[Reply]:
            yield from super().complete(requests)
            raise RuntimeError("no more")

    with AnswerLog(tmp_path / "log") as log, pytest.raises(RuntimeError, match="no more"):
        Local().run(Fails([1]), [request(name) for name in NAMES], log, "test")
    assert read_log(tmp_path / "log")["question_id"].to_pylist() == ["a"] * 4


def test_threads_below_one_are_refused():
    with pytest.raises(ValueError, match=r"^threads must be at least 1, not 0$"):
        Local(threads=0)
