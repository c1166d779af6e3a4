from dataclasses import replace

from answer_rows import changed

from robust_eval.runs.question_status import question_statuses
from robust_eval.tracking.result import Result


def graded(result: Result) -> Result:
    """The first eight questions with these verdicts and outcomes of their greedy answers, and none to the last."""
    exact = [number % 2 == 0 for number in range(7)]
    columns = {"correct": CORRECT, "exact": exact, "outcome": OUTCOMES}
    table = changed(
        result.graded_baseline.slice(0, 7), **{name: dict(enumerate(each)) for name, each in columns.items()}
    )
    return replace(result, questions=result.questions[:8], graded_baseline=table)


CORRECT = [True, True, False, None, None, False, True]
OUTCOMES = ["ok", "ok", "ok", "ok", "error", "refused", "ok"]


def test_it_is_said_why_questions_were_not_kept(result: Result):
    assert question_statuses(replace(graded(result), kept=[])) == [
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
    assert question_statuses(replace(graded(result), kept=result.questions)) == [
        "kept, right",
        "kept, right",
        "kept, wrong",
        "kept, not judged",
        "kept, no reply",
        "kept, wrong",
        "kept, right",
        "kept",
    ]
