"""Reply grader: a reader and a grader combined; replies are read and graded by the question as it was shown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import GRADED_COLUMNS, rows, with_columns
from robust_eval.error import UserError
from robust_eval.grader.base import Grader
from robust_eval.model.base import LetterChoices, Matcher
from robust_eval.normalization import normalised_form
from robust_eval.prompt.arrangement import FORMS, Arrangement, read_arrangement
from robust_eval.question import LETTERS, Question
from robust_eval.reader.base import Reader, read

_MARKS = r"[(\[{*_`\"'\s]*"
_MARKS_IN_LINE = r"(?:[(\[{*_`\"']|[^\S\n])*"
_NUMBER = r"(?P<number>1[0-3]|[1-9])"
_NOUN = r"(?:\b(?i:answer|choice|option|number|antwort|lösung|réponse|respuesta|opción)\b|答案|选项)"
_IS = r"(?:(?i:is|ist|lautet|est|es)\b\s*:?|是|为|\s?[:：])?"
_SAYS = rf"{_NOUN}\s*(?i:number\s*)?{_IS}\s*(?i:(?:option|choice|number)\s+)*"
_CHOOSE = r"\b(?i:I(?:['’]d| would)? (?:choose|pick|go with))\b"
_FIELD = re.compile(rf'(?i:"(?:(?:final[_ ]?)?answer|choice)"\s*:\s*)"?{_NUMBER}"?(?=\s*[,}}\n])')
"""Field of a JSON object with a number, which the letter in its place must be quoted for."""
_AS_A_SIGN = [
    re.compile(pattern)
    for pattern in (
        rf"(?m)^{_MARKS_IN_LINE}{_NUMBER}(?=[)\].:*_`\"'\s]*$)",  # a line that is the number
        rf"(?m)^{_MARKS_IN_LINE}{_NUMBER}(?=[*_`]*[)\]:]|[*_`]*\.(?!\d))",  # a line that begins with it: "2) metre"
        rf"(?:{_SAYS}|{_CHOOSE})\s*{_MARKS}{_NUMBER}(?=[)\].:*_`\"',;。]*(?:\s*$|\s*\n|[)\].,;:](?!\d)))",
        rf"(?i:\b(?:option|choice))\s+{_NUMBER}(?=\s+(?i:is (?:the )?(?:correct|right|best)|because|since|fits)\b)",
        rf"(?i:<(?:final[_ ]?)?answer>)\s*{_NUMBER}(?=\s*</)",
        rf"(?m)^####[ \t]+{_NUMBER}(?=[ \t]*$)",
        rf"\\boxed\{{\s*(?:\\text\{{)?{_NUMBER}(?=\s*\}})",
    )
]
"""Patterns of numbers that label a choice, and are no quantity."""
_BLOCK = 10_000
"""Maximum number of distinct replies that are graded together: each takes a kilobyte until it is."""


@dataclass(frozen=True)
class ReplyGrader:
    """Reply grader: combination of a reader, which extracts answers from replies, and a grader of the answers."""

    reader: Reader
    grader: Grader
    first_line: bool
    """True if a model may stop after the first line."""
    served: bool = False
    """True if the model is behind a server, which refuses matchers itself."""

    def cached_only(self) -> "ReplyGrader":
        """Return a cache-only copy of the reply grader, which reads the verdicts of a judge from the store."""
        return replace(self, grader=self.grader.cached_only())

    def grade(self, questions: Sequence[Question], replies: pa.Table) -> pa.Table:
        """Read and grade replies: return their table with extracted answers and verdicts.

        Each reply is graded by the question as shown to the model; labels are letters of the original choices. Raises
        UserError if the table has an arrangement of other choices than the question.
        """
        arrangements = {form: read_arrangement(form) for form in replies["form"].unique().to_pylist()}
        if not any(arrangements.values()):
            return self._grade_distinct(questions, replies)
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
        shown = with_columns(replies, {"question_id": ids, "text": texts})
        graded = self._grade_distinct(list(graded_questions.values()), shown)
        labels = [
            arrangement.named(label)
            if (arrangement := arrangements[form]) is not None and label in {*LETTERS}
            else label
            for label, form in rows(graded, "label", "form")
        ]
        original = {name: replies[name].combine_chunks() for name in ("question_id", "text")}
        return with_columns(graded, {**original, "label": labels})

    def _grade_distinct(self, questions: Sequence[Question], replies: pa.Table) -> pa.Table:
        """Read and grade each distinct reply once."""
        different, place = _different(replies)
        size = max(different.num_rows, 1) if self.grader.uses_judge else _BLOCK  # a model takes all in one call
        blocks = [different.slice(start, size) for start in range(0, max(different.num_rows, 1), size)]
        graded = pa.concat_tables([self._graded(questions, block) for block in blocks])
        return with_columns(
            replies, {name: graded[name].combine_chunks().take(place) for name in ("outcome", *GRADED_COLUMNS)}
        )

    def _graded(self, questions: Sequence[Question], replies: pa.Table) -> pa.Table:
        ids = set(pc.unique(replies["question_id"]).to_pylist())
        answered = [question for question in questions if question.id in ids]
        return self.grader.grade(answered, read(self.reader, answered, replies))

    def matcher(self, question: Question) -> Matcher | None:
        """Return the grader's matcher of unfinished answers; None if a local model's reply is read as a whole."""
        return self.grader.matcher(question) if self.first_line or self.served else None

    def choices(self, question: Question) -> LetterChoices | None:
        """Return the grader's letters of a multiple-choice question, whatever the reader."""
        return self.grader.choices(question)


def _different(replies: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return the distinct replies to read and grade, and for each reply the row of the identical one."""
    has_reasoning_text = pc.fill_null(pc.not_equal(replies["reasoning"], ""), False)
    has_reasoning = pc.or_(has_reasoning_text, pc.fill_null(pc.greater(replies["reasoning_tokens"], 0), False))
    columns = [replies[name] for name in ("question_id", "text", "outcome", "finish_reason")] + [has_reasoning]
    codes = np.zeros(replies.num_rows, dtype=np.int64)
    for column in columns:
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * max(len(coded.dictionary), 1) + coded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return replies.take(pa.array(first[order])), pa.array(np.argsort(order)[place])


def with_letters(reply: str, choices: Sequence[str]) -> str:
    """Return a reply with letters in place of the numbers that label the choices in the question as shown.

    >>> with_letters("The answer is 2.", ["3 m/s", "4 m/s"]), with_letters("4 m/s", ["3 m/s", "4 m/s"])
    ('The answer is B.', '4 m/s')
    """
    if normalised_form(reply) in {normalised_form(choice) for choice in choices if not choice.strip().isdecimal()}:
        return reply
    for pattern in _AS_A_SIGN:
        reply = pattern.sub(lambda match: _lettered(match, len(choices)), reply)
    return _FIELD.sub(lambda match: _lettered(match, len(choices), '"'), reply)


def _lettered(match: re.Match[str], choices: int, quote: str = "") -> str:
    number, whole = int(match["number"]), match.group()
    if number > choices:
        return whole
    before, _, after = whole.rpartition(match["number"])
    if quote:
        before, after = before.removesuffix(quote), after.removeprefix(quote)
    before = re.sub(r"(?i:\bnumber)\s*\Z", "", before)  # "number B" would name a thing
    return f"{before}{quote}{LETTERS[number - 1]}{quote}{after}"


def _as_shown(question: Question, name: str, arrangement: Arrangement) -> Question:
    if len(arrangement.order) != len(question.choices):
        raise UserError(
            f"question {question.id} has {len(question.choices)} choices, but the prompt of an answer had "
            f"{len(arrangement.order)} ({arrangement.tag})"
        )
    arranged = arrangement.of(question)
    return Question(name, question.text, choices=arranged.choices, correct=arranged.correct, context=question.context)
