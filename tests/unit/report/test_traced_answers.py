import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unseen import HOSTILE, unseen

from robust_eval.answer import answer_table
from robust_eval.question import Question
from robust_eval.report.traced_answers import sampled_rows, traced_answers
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.process import Stopwatch
from robust_eval.tracking.result import Result

CONDITIONS = [("greedy", 0.0, 0, None), ("a", 0.5, 0, None), ("a", 1.0, 1, None), ("b", 1.0, 7, "choices CAB")]


@pytest.fixture(scope="module")
def answers():
    """Three answers to each of twelve questions under each condition."""
    places = [
        (f"q{number}", *condition, trial) for number in range(12) for condition in CONDITIONS for trial in range(3)
    ]
    names = ("question_id", "sampler", "temperature", "rewrite", "form", "trial")
    return pa.table(
        dict(zip(names, map(list, zip(*places, strict=True)), strict=True)) | {"weight": [1 / 3] * len(places)}
    )


def test_each_question_is_taken_once_under_each_condition_before_one_repeats(answers):
    assert {*answers.take(sampled_rows(answers, 48))["trial"].to_pylist()} == {0}


def test_the_same_questions_are_taken_of_another_run(answers):
    def questions(table):
        return {*table.take(sampled_rows(table, 4))["question_id"].to_pylist()}

    backwards = answers.take(pa.array(range(answers.num_rows - 1, -1, -1)))
    assert questions(backwards) == questions(answers)


def test_all_answers_are_taken_where_there_are_fewer_than_the_limit(answers):
    assert sampled_rows(answers, 1000) == [*range(answers.num_rows)]


def test_the_likelier_of_enumerated_answers_is_taken(answers):
    weights = pa.array([0.2, 0.7, 0.1] * (answers.num_rows // 3))
    likely = answers.set_column(answers.schema.get_field_index("weight"), "weight", weights)
    assert {*likely.take(sampled_rows(likely, 48))["trial"].to_pylist()} == {1}


def test_an_answer_has_bounded_text_and_the_verdict_of_code_or_of_a_judge(tmp_path):
    questions = [
        Question("long", "\x1b" * 3000, ("a", "b"), rewrites=("Else?",)),
        Question("letter", "Which?", choices=("red", "blue"), correct=1, context="The sea."),
    ]
    row = {"rewrite": 0, "temperature": 0.0, "trial": 0, "outcome": "ok", "weight": 1.0}
    baseline = [
        {**row, "question_id": "long", "text": f"{HOSTILE} c", "answer": "c", "correct": True},
        {**row, "question_id": "letter", "text": "A", "correct": False},
    ]
    sampled = [
        {**row, "question_id": "long", "rewrite": 1, "temperature": 1.0, "text": "c", "correct": True},
        {
            **row,
            "question_id": "letter",
            "form": "choices BA",
            "text": "?",
            "outcome": "invalid",
            "reason": "no letter",
        },
    ]
    tables = [answer_table(each) for each in (baseline, sampled)]
    result = Result(
        *("run", {"grader.model.name": "gpt"}, questions, questions, Rewritten(questions)),
        *(tables[0], {"sweep": tables[1]}, {}, {}, {}, None, 0, 0, Stopwatch()),
    )
    verdicts = {
        "form": ["equivalence", "abstention"],
        "question_id": ["long"] * 2,
        "reply": ["c"] * 2,
        "vote": [0] * 2,
        "right": [True, False],
        "why": ["as good as b", "an answer"],
    }
    pq.write_table(pa.table(verdicts), tmp_path / "verdicts.parquet")
    traced = traced_answers(result, 4, tmp_path / "verdicts.parquet")
    assert [(each.correct, each.reason, each.judge) for each in traced] == [
        (True, "as good as b", "gpt"),
        (False, "answer: A; accepted: B) blue", None),
        (True, "as good as b", "gpt"),
        (None, "no letter; accepted: B) blue", None),
    ]
    assert traced[0].question == {"question": r"\x1b" * 500 + "… (12,000 characters)"}
    assert traced[1].question == {"question": "Which?", "context": "The sea.", "choices": "A) red\nB) blue"}
    assert traced[2].question == {"question": "Else?"}
    assert unseen(traced[0].reply) == set()
    assert [each.condition for each in traced[2:]] == [
        {"question_id": "long", "sampler": "sweep", "temperature": "1", "trial": "0", "outcome": "ok", "rewrite": "1"},
        {
            "question_id": "letter",
            "sampler": "sweep",
            "temperature": "0",
            "trial": "0",
            "outcome": "invalid",
            "form": "choices BA",
        },
    ]
    assert traced_answers(result, 0, tmp_path / "none") == []
