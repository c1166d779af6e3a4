"""Status of each question: kept or not and why, and whether its greedy answer is right."""

from robust_eval.answer import NO_REPLY, rows
from robust_eval.tracking.result import Result

VERDICTS = ("right", "wrong", "not judged", "no reply")
"""Verdicts on an answer, in the order of counts of answers."""
WHY_NOT = {
    "not kept, not asked": "no greedy answer was requested or recorded",
    "not kept, no reply": "no greedy answer was received",
    "not kept, not judged": "the greedy answer has no verdict",
    "not kept, wrong": "the greedy answer is wrong",
    "not kept, no exact match": "the greedy answer is right, but not an exact match of an accepted answer",
    "not kept, right": "other questions were selected, or the answer was not certain enough",
}
"""Meaning of each status of a question that was not kept."""


def verdict(correct: bool | None, outcome: str) -> str:
    """Return the verdict on an answer, one of :data:`VERDICTS`."""
    if outcome in NO_REPLY:
        return "no reply"
    return "not judged" if correct is None else "right" if correct else "wrong"


def question_statuses(result: Result) -> list[str]:
    """Return the status of each question: "kept" with the verdict on its greedy answer, if any, or one of
    :data:`WHY_NOT`.
    """
    kept_ids = {question.id for question in result.kept}
    statuses = {each.id: "kept" if each.id in kept_ids else "not kept, not asked" for each in result.questions}
    for name, correct, exact, outcome in rows(result.graded_baseline, "question_id", "correct", "exact", "outcome"):
        is_kept = name in kept_ids
        answer = "no exact match" if not is_kept and correct and not exact else verdict(correct, outcome)
        statuses[name] = f"{'kept' if is_kept else 'not kept'}, {answer}"
    return [statuses[question.id] for question in result.questions]
