"""Grading by comparison with the accepted answers: equal, or contained as whole words; letters for multiple choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from robust_eval.answer import NO_ANSWER, NO_REPLY, SCHEMA, rows
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.letter import LetterChoices, chosen_letter
from robust_eval.normalization import normalize
from robust_eval.question import LETTERS, Question


@dataclass(frozen=True)
class Verdict:
    """What a grader says of one reply: its label, whether it is right, and whether it equals an accepted answer."""

    label: str | None
    correct: bool | None
    exact: bool | None


@dataclass
class Matching:
    """Free text is right if it contains an accepted answer; a multiple-choice reply if it chooses the right letter.

    The label of a free-text answer is its normal form, that of a multiple-choice answer its letter.
    """

    contains: str = "word"
    """word: an accepted answer must stand in the reply as whole words. substring: anywhere ("He" is in "The")."""

    def __post_init__(self) -> None:
        if self.contains not in ("word", "substring"):
            raise ValueError(f"contains must be word or substring, not {self.contains}")

    def grade(self, questions: Sequence[Question], answers: pa.Table) -> pa.Table:
        """The answer table with ``label``, ``correct`` and ``exact`` filled; ``invalid`` where no letter was chosen."""
        by_id = {question.id: question for question in questions}
        accepted = {question.id: accepted_answers(question)[0] for question in questions}
        verdicts: dict[tuple[str, str], Verdict] = {}
        columns: dict[str, list[object]] = {"label": [], "correct": [], "exact": [], "outcome": []}
        for question_id, text, outcome in rows(answers, "question_id", "text", "outcome"):
            key = (question_id, text)
            if key not in verdicts:
                verdicts[key] = self._verdict(by_id[question_id], accepted[question_id], text)
            verdict = verdicts[key]
            if outcome in NO_REPLY:
                verdict = Verdict(None, None, None)
            elif outcome in NO_ANSWER and verdict.correct is not None:
                verdict = Verdict(None, False, False)
            invalid = outcome == "ok" and verdict.label is None and bool(by_id[question_id].choices)
            columns["outcome"].append("invalid" if invalid else outcome)
            for name in ("label", "correct", "exact"):
                columns[name].append(getattr(verdict, name))
        graded = answers
        for name, values in columns.items():
            field = SCHEMA.field(name)
            graded = graded.set_column(graded.schema.get_field_index(name), field, pa.array(values, field.type))
        return graded

    def _verdict(self, question: Question, accepted: Sequence[str], text: str) -> Verdict:
        if question.choices:
            letter = chosen_letter(text, len(question.choices))
            right = None if question.correct is None else letter == LETTERS[question.correct]
            return Verdict(letter, right, right)
        reply = normalize(text)
        label = reply or None
        if not accepted:
            return Verdict(label, None, None)
        return Verdict(label, any(self._contains(reply, alias) for alias in accepted), reply in accepted)

    def _contains(self, reply: str, alias: str) -> bool:
        if self.contains == "word":  # in a normal form, words are separated by single spaces
            reply, alias = f" {reply} ", f" {alias} "
        return alias in reply

    def matcher(self, question: Question) -> AnswerMatcher | None:
        """The rule as it applies to a free-text answer that is being written; None where whole words do not count."""
        accepted, _ = accepted_answers(question)
        if question.choices or not accepted or self.contains != "word":
            return None
        return AnswerMatcher(accepted)

    def choices(self, question: Question) -> LetterChoices | None:
        """The letters of a multiple-choice question."""
        return LetterChoices(len(question.choices), question.correct) if question.choices else None

    def unusable_aliases(self, questions: Sequence[Question]) -> Mapping[str, int]:
        """How many accepted answers of each question normalise to nothing, and so are left out; only those with any."""
        counts = {question.id: accepted_answers(question)[1] for question in questions}
        return {question_id: count for question_id, count in counts.items() if count}


def accepted_answers(question: Question) -> tuple[list[str], int]:
    """The distinct normal forms of a question's accepted answers, and how many aliases normalise to nothing.

    Such an alias (",", "A", ".") would be contained in every reply (METHODS §0).
    """
    forms = [normalize(alias) for alias in question.answers]
    return list(dict.fromkeys(form for form in forms if form)), forms.count("")
