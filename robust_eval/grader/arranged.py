"""Replies to choices in another order or form, graded so that a letter means the same choice for all raters."""

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
"""Where a number is the sign of a choice, and no quantity."""


def graded_as_shown(
    grade: Callable[[Sequence[Question], pa.Table], pa.Table], questions: Sequence[Question], replies: pa.Table
) -> pa.Table:
    """Return what ``grade`` says of replies, each graded by the question as it was shown, with labels that are the
    letters of the question as it stands.

    Raises UserError where a table tells of choices that a question has not.
    """
    told = replies["form"].to_pylist()
    shown = {form: arrangement_told(form) for form in set(told)}
    if not any(shown.values()):
        return grade(questions, replies)
    by_id = {question.id: question for question in questions}
    asked = dict(by_id)
    ids, texts = [], []
    for question_id, text, form in rows(replies, "question_id", "text", "form"):
        arrangement = shown[form]
        if arrangement is not None:
            question, question_id = by_id[question_id], f"{question_id}\0{form}"
            if question_id not in asked:
                asked[question_id] = _shown(question, question_id, arrangement)
            if arrangement.form in FORMS and FORMS[arrangement.form].numbered:
                text = with_letters(text, asked[question_id].choices)
        ids.append(question_id)
        texts.append(text)
    graded = grade(list(asked.values()), _with(replies, {"question_id": ids, "text": texts}))
    labels = [
        arrangement.named(label) if (arrangement := shown[form]) is not None and label is not None else label
        for label, form in zip(graded["label"].to_pylist(), told, strict=True)
    ]
    own = {name: replies[name].to_pylist() for name in ("question_id", "text")}
    return _with(graded, {**own, "label": labels})


def with_letters(reply: str, choices: Sequence[str]) -> str:
    """Return a reply to numbered choices with the letters of their places, where numbers stand for choices.

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


def _shown(question: Question, name: str, arrangement: Arrangement) -> Question:
    if len(arrangement.order) != len(question.choices):
        raise UserError(
            f"question {question.id} has {len(question.choices)} choices, and an answer to it was given to "
            f"{len(arrangement.order)} ({arrangement.told})"
        )
    shown = arrangement.of(question)
    return Question(name, question.text, choices=shown.choices, correct=shown.correct, context=question.context)


def _with(table: pa.Table, columns: dict[str, list[str | None]]) -> pa.Table:
    for name, values in columns.items():
        field = SCHEMA.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
    return table
