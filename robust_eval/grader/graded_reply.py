"""Grading of one reply: verdict, extracted answer and extraction rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.accepted_forms import accepted_answers
from robust_eval.grader.base import Grader
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.grader.matching import Matching
from robust_eval.question import LETTERS, Question
from robust_eval.reader.base import Reader, read
from robust_eval.reader.reply import FirstLineReader, ReplyReader

READERS: Mapping[str, Callable[[], Reader]] = {"reply": ReplyReader, "first_line": FirstLineReader}
GRADERS: Mapping[str, Callable[..., Grader]] = {"matching": Matching, "levenshtein": Levenshtein}
"""Readers and graders by name; the other graders need a model."""
_Part = TypeVar("_Part", Reader, Grader)


@dataclass(frozen=True)
class GradedReply:
    """Graded reply: the verdict on one reply.

    ``correct`` is True or False, or None without an accepted answer. ``label`` is the letter of the chosen option, the
    normalised answer, or ``(abstained)`` for "I don't know"; None where there is no answer. ``answer`` is the text that
    was extracted and ``rule`` the rule that extracted it, both empty where there is none; ``reason`` then says why.
    ``uncertain`` is True where the extracted answer and the whole reply disagree on right or wrong (docs/methods.md,
    §6).

    >>> grade_reply("The answer is Paris", answers=["Paris"])
    GradedReply(correct=True, label='paris', answer='Paris', rule='explicit answer', reason='', uncertain=False)
    """

    correct: bool | None
    label: str | None
    answer: str
    rule: str
    reason: str
    uncertain: bool


def grade_reply(
    reply: str,
    answers: str | Sequence[str] = (),
    choices: Sequence[str] = (),
    reader: str | Reader = "reply",
    grader: str | Grader = "matching",
) -> GradedReply:
    """Grade one reply: return the verdict, with the extracted answer and its extraction rule.

    It is the verdict of a run with the same reader and grader. No model is loaded or queried, unless the grader is an
    object that does so.

    Parameters
    ----------
    reply
        The unchanged text of the model.
    answers
        Accepted answers: one text, or several. With ``choices`` they name the right choice, by its letter or its text.
        Without them nothing is right or wrong, and ``correct`` is None.
    choices
        The texts of the choices in their order, 2 to 13; empty: the reply is free text.
    reader
        The extraction: ``"reply"`` (of chat models), ``"first_line"`` (of base models), or a reader.
    grader
        The comparison: ``"matching"``, ``"levenshtein"``, or a grader, such as ``Matching(letter="strict")`` of
        ``robust_eval.grader.matching``. Graders that need a model are passed as objects.

    Raises
    ------
    ValueError
        If an argument is invalid; the message names it.

    Examples
    --------
    >>> found = grade_reply("The answer is Paris", answers=["Paris", "City of Light"])
    >>> found.correct, found.label, found.answer, found.uncertain
    (True, 'paris', 'Paris', False)
    >>> found = grade_reply("The answer is B.", answers=["4 m/s"], choices=["3 m/s", "4 m/s"])
    >>> found.correct, found.label
    (True, 'B')
    >>> grade_reply("No idea.", choices=["3 m/s", "4 m/s"]).label
    '(abstained)'
    """
    if not isinstance(reply, str):
        raise UserError(f"reply must be a str, not {type(reply).__name__}")
    if any("\ud800" <= sign <= "\udfff" for sign in reply):
        raise UserError("reply must be Unicode text, without unpaired surrogates")
    question = question_of((answers,) if isinstance(answers, str) else answers, choices)
    extraction = _resolved("reader", reader, READERS, Reader)
    comparison = _resolved("grader", grader, GRADERS, Grader)
    graded = comparison.grade([question], read(extraction, [question], _row(reply)))
    names = ("correct", "label", "answer", "rule", "reason", "uncertain")
    correct, label, answer, rule, reason, uncertain = (graded[name][0].as_py() for name in names)
    return GradedReply(correct, label, answer or "", rule or "", reason or "", bool(uncertain))


def question_of(answers: Sequence[str], choices: Sequence[str]) -> Question:
    """Return the question of a reply to grade, with these answers and choices; UserError names a wrong argument."""
    accepted, options = _texts("answers", answers), _texts("choices", choices)
    if not options:
        question = Question("", "", answers=accepted)
        if accepted and not accepted_answers(question)[0]:
            raise UserError("answers must contain an accepted answer that is not blank")
        return question
    if not 2 <= len(options) <= len(LETTERS):
        raise UserError(f"choices must contain 2 to {len(LETTERS)} strings, not {len(options)}")
    return Question("", "", choices=options, correct=_right_choice(accepted, options) if accepted else None)


def _texts(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise UserError(f"{name} must be a list of strings, not {type(texts).__name__}")
    for text in texts:
        if not isinstance(text, str):
            raise UserError(f"{name} must contain strings, not {type(text).__name__}")
    return tuple(texts)


def _right_choice(answers: Sequence[str], choices: Sequence[str]) -> int:
    """Return the index of the right choice, the only one that is in the answers by its letter or its text."""
    names = {answer.strip() for answer in answers}
    letters = {name.upper() for name in names if len(name) == 1}
    places = [
        place
        for place, (letter, choice) in enumerate(zip(LETTERS, choices, strict=False))
        if choice.strip() in names or letter in letters
    ]
    if len(places) != 1:
        letters_named = ", ".join(LETTERS[place] for place in places) or "none"
        raise UserError(f"answers must name one of the choices, by its letter or its text; they name {letters_named}")
    return places[0]


def _resolved(
    argument: str, value: str | _Part, registry: Mapping[str, Callable[..., _Part]], kind: type[Any]
) -> _Part:
    """Return a reader or grader by its name; an object as it is."""
    if isinstance(value, str) and value in registry:
        return registry[value]()
    if isinstance(value, kind):
        return value  # type: ignore[no-any-return]
    received = value if isinstance(value, str) else type(value).__name__
    raise UserError(f"{argument} must be {' or '.join(registry)}, or a {kind.__name__} object, not {received}")


def _row(reply: str) -> pa.Table:
    """Return an answer table with one reply."""
    place = {"question_id": "", "rewrite": 0, "temperature": 0.0, "trial": 0, "weight": 1.0}
    return answer_table([{**place, "text": reply, "outcome": "ok" if reply.strip() else "empty"}])
