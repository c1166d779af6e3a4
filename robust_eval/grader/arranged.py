"""Grading of replies to choices in another order or form, with labels for the original order."""

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from robust_eval.answer import SCHEMA, rows
from robust_eval.error import UserError
from robust_eval.normalization import normal_form
from robust_eval.prompt.arrangement import FORMS, Arrangement, arrangement_told
from robust_eval.question import LETTERS, Question

_MARKS = r"[(\[{*_`\"'\s]*"
_NUMBER = r"(?P<number>1[0-3]|[1-9])"
_AS_A_SIGN = [
    re.compile(pattern)
    for pattern in (
        rf"(?m)^{_MARKS}{_NUMBER}(?=[)\].:*_`\"'\s]*$)",  # a line that is the number
        rf"(?m)^{_MARKS}{_NUMBER}(?=[*_`]*[)\]:]|[*_`]*\.(?!\d))",  # a line that begins with it: "2) metre"
        rf"(?i:\b(?:answer|choice|option|number)\b\s*(?:number\s*)?(?:is\s*:?|:)?)\s*{_MARKS}{_NUMBER}(?=[)\].:*_`\"',;]*(?:\s*$|\s*\n|[)\].,;:](?!\d)))",
        rf"\\boxed\{{\s*(?:\\text\{{)?{_NUMBER}(?=\s*\}})",
    )
]
"""Patterns of numbers that label a choice, and are no quantity."""


def graded_as_shown(
    grade: Callable[[Sequence[Question], pa.Table], pa.Table], questions: Sequence[Question], replies: pa.Table
) -> pa.Table:
    """Grade each reply by the question as shown to the model, and return labels for the original choices.

    Raises UserError if the table has an arrangement of other choices than the question.
    """
    tags = replies["form"].to_pylist()
    arrangements = {form: arrangement_told(form) for form in set(tags)}
    if not any(arrangements.values()):
        return grade(questions, replies)
    by_id = {question.id: question for question in questions}
    graded_questions = dict(by_id)
    ids, texts = [], []
    for question_id, text, form in rows(replies, "question_id", "text", "form"):
        arrangement = arrangements[form]
        if arrangement is not None:
            question, question_id = by_id[question_id], f"{question_id}\0{form}"
            if question_id not in graded_questions:
                graded_questions[question_id] = _as_shown(question, question_id, arrangement)
            if arrangement.form in FORMS and FORMS[arrangement.form].numbered:
                text = with_letters(text, graded_questions[question_id].choices)
        ids.append(question_id)
        texts.append(text)
    graded = grade(list(graded_questions.values()), _with(replies, {"question_id": ids, "text": texts}))
    labels = [
        arrangement.named(label) if (arrangement := arrangements[form]) is not None and label is not None else label
        for label, form in zip(graded["label"].to_pylist(), tags, strict=True)
    ]
    original = {name: replies[name].to_pylist() for name in ("question_id", "text")}
    return _with(graded, {**original, "label": labels})


def with_letters(reply: str, choices: Sequence[str]) -> str:
    """Return a reply to numbered choices with letters in place of the numbers that label choices.

    >>> with_letters("The answer is 2.", ["3 m/s", "4 m/s"]), with_letters("4 m/s", ["3 m/s", "4 m/s"])
    ('The answer is B.', '4 m/s')
    """
    if normal_form(reply) in {normal_form(choice) for choice in choices if not choice.strip().isdecimal()}:
        return reply
    for pattern in _AS_A_SIGN:
        reply = pattern.sub(lambda match: _lettered(match, len(choices)), reply)
    return reply


def _lettered(match: re.Match[str], choices: int) -> str:
    number, whole = int(match["number"]), match.group()
    if number > choices:
        return whole
    begin = match.start("number") - match.start()
    return whole[:begin] + LETTERS[number - 1] + whole[begin + len(match["number"]) :]


def _as_shown(question: Question, name: str, arrangement: Arrangement) -> Question:
    if len(arrangement.order) != len(question.choices):
        raise UserError(
            f"question {question.id} has {len(question.choices)} choices, and an answer to it was given to "
            f"{len(arrangement.order)} ({arrangement.told})"
        )
    arranged = arrangement.of(question)
    return Question(name, question.text, choices=arranged.choices, correct=arranged.correct, context=question.context)


def _with(table: pa.Table, columns: dict[str, list[str | None]]) -> pa.Table:
    for name, values in columns.items():
        field = SCHEMA.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
    return table
