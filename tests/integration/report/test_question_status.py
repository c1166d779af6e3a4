from dataclasses import replace

import pyarrow as pa
import pytest
from experiments import without_figures
from recorded_run import recorded_run

from robust_eval.runs.question_status import question_statuses, verdict
from robust_eval.tracking.result import Result


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    with without_figures():
        return recorded_run(tmp_path_factory.mktemp("run") / "run", 8)


def changed(result: Result, correct: list[bool | None], outcomes: list[str]) -> Result:
    """With these verdicts and outcomes of the first greedy answers, and none to the last question."""
    table = result.graded_baseline.slice(0, 7)
    exact = [number % 2 == 0 for number in range(7)]
    for name, values in (("correct", correct), ("exact", exact), ("outcome", outcomes)):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    return replace(result, graded_baseline=table)


CORRECT = [True, True, False, None, None, False, True]
OUTCOMES = ["ok", "ok", "ok", "ok", "error", "refused", "ok"]


def test_it_is_said_why_questions_were_not_kept(result: Result):
    assert question_statuses(replace(changed(result, CORRECT, OUTCOMES), kept=[])) == [
        "not kept, right",
        "not kept, no exact match",
        "not kept, wrong",
        "not kept, not judged",
        "not kept, no reply",
        "not kept, wrong",
        "not kept, right",
        "not kept, not asked",
    ]


def test_of_those_that_were_kept_it_is_said_whether_the_greedy_answer_is_right(result: Result):
    assert question_statuses(replace(changed(result, CORRECT, OUTCOMES), kept=result.questions)) == [
        "kept, right",
        "kept, right",
        "kept, wrong",
        "kept, not judged",
        "kept, no reply",
        "kept, wrong",
        "kept, right",
        "kept",
    ]


@pytest.mark.parametrize(
    ("correct", "outcome", "said"),
    [
        (True, "ok", "right"),
        (False, "empty", "wrong"),
        (None, "ok", "not judged"),
        (None, "filtered_reply", "no reply"),
    ],
)
def test_what_brought_no_reply_has_no_verdict(correct: bool | None, outcome: str, said: str):
    assert verdict(correct, outcome) == said
