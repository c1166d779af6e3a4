"""Replies as a run reads and grades them."""

from collections.abc import Sequence
from typing import NamedTuple

from robust_eval.answer import answer_table, rows
from robust_eval.grader.base import Grader
from robust_eval.grader.matching import Matching
from robust_eval.question import Question
from robust_eval.reader.base import Reader, read
from robust_eval.reader.reply import ReplyReader


class Graded(NamedTuple):
    """Verdict on a reply."""

    correct: bool
    uncertain: bool


def graded_replies(
    cases: Sequence[tuple[str, Sequence[str]]], reader: Reader | None = None, grader: Grader | None = None
) -> list[Graded]:
    """Return the verdict on each reply, with the accepted answers of its question."""
    questions = [Question(str(place), "?", tuple(answers)) for place, (_, answers) in enumerate(cases)]
    answers = answer_table(
        {
            "question_id": str(place),
            "rewrite": 0,
            "temperature": 0.0,
            "trial": 0,
            "text": reply,
            "outcome": "ok" if reply.strip() else "empty",
            "weight": 1.0,
        }
        for place, (reply, _) in enumerate(cases)
    )
    table = (grader or Matching()).grade(questions, read(reader or ReplyReader(), questions, answers))
    return [Graded(bool(correct), bool(uncertain)) for correct, uncertain in rows(table, "correct", "uncertain")]
