"""Replies as a run reads and grades them."""

from collections.abc import Sequence
from typing import NamedTuple

from answer_rows import answer_row

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
        answer_row(str(place), text=reply, outcome="ok" if reply.strip() else "empty")
        for place, (reply, _) in enumerate(cases)
    )
    table = (grader or Matching()).grade(questions, read(reader or ReplyReader(), questions, answers))
    return [Graded(bool(correct), bool(uncertain)) for correct, uncertain in rows(table, "correct", "uncertain")]


def verdicts(grader: Grader, *replies: tuple[Question, str, str]) -> list[tuple[object, ...]]:
    """Return label, correct, exact and outcome of each reply: its question, its text and its outcome."""
    table = answer_table(answer_row(question.id, text=text, outcome=outcome) for question, text, outcome in replies)
    graded = grader.grade(list({question.id: question for question, _, _ in replies}.values()), table)
    return list(rows(graded, "label", "correct", "exact", "outcome"))
