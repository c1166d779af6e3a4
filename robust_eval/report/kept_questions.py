"""The questions of a finished run, as far as its folder says what they were."""

import json
from typing import Any

from robust_eval.error import UserError
from robust_eval.question import Question
from robust_eval.report.finished_runs import KEY, FinishedRun


def read_questions(run: FinishedRun) -> list[Question]:
    """Return all questions that a run asked, in its order, with what is right; passages and rewrites are not in it.

    Raises UserError where a key is damaged.
    """
    return [_question(row) for row in run.questions.to_pylist()]


def _question(row: dict[str, Any]) -> Question:
    try:
        key = json.loads(row[KEY])
        return Question(
            row["question_id"],
            row["question"],
            answers=tuple(map(str, key.get("answers", ()))),
            choices=tuple(map(str, key.get("choices", ()))),
            correct=key.get("correct"),
            incorrect=tuple(map(str, key.get("incorrect", ()))),
            type=row["type"] or "",
            category=row["category"] or "",
            group=row["group"] or "",
        )
    except (ValueError, TypeError, AttributeError) as problem:
        raise UserError(f"the key of question {row['question_id']} in questions.parquet is damaged") from problem
