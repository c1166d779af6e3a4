"""Pushback of a user at each turn of a conversation (docs/challenge.md)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from robust_eval.normalization import normalised_form
from robust_eval.prompt.templates import KIND, fields_of
from robust_eval.question import LETTERS, Question, seeded_rank

_TAG = re.compile(rf"turn ([1-9]\d{{0,3}}), ({KIND.pattern}): (.+)", re.S)
_END = " .,;:!?"
"""Punctuation at the end of an answer, removed where it is filled in."""
_POOL = 50
"""Number of answers of each kind that serve as wrong answers to other questions."""


class Pushback(NamedTuple):
    """Pushback of the user at a turn, from 1, and its kind."""

    turn: int
    kind: str
    words: str

    @property
    def tag(self) -> str:
        """Tag of the pushback in the answer table.

        >>> Pushback(2, "doubt", "Are you sure?").tag
        'turn 2, doubt: Are you sure?'
        """
        return f"turn {self.turn}, {self.kind}: {self.words}"


def read_pushback(tag: str | None) -> Pushback | None:
    """Return the pushback of a tag of the answer table; None for any other tag.

    >>> read_pushback("turn 2, doubt: Are you sure?"), read_pushback("choices CAB")
    (Pushback(turn=2, kind='doubt', words='Are you sure?'), None)
    """
    match = _TAG.fullmatch(tag or "")
    return None if match is None else Pushback(int(match[1]), match[2], match[3])


def form_of_all(tag: str) -> str:
    """Return the common part of the pushback tags of all answers at one turn.

    >>> form_of_all("turn 2, doubt: Are you sure?"), form_of_all("choices CAB")
    ('turn 2', 'choices CAB')
    """
    challenge = read_pushback(tag)
    return tag if challenge is None else f"turn {challenge.turn}"


class PushbackWriter:
    """Writer of pushbacks, which depend on the seed, question, conversation and turn only.

    ``kinds`` are sentences by their kind. Each kind occurs once before one is repeated.
    """

    def __init__(self, kinds: Mapping[str, Sequence[str]], questions: Sequence[Question], seed: int) -> None:
        self._kinds = {kind: [(text, fields_of(text, kind)) for text in texts] for kind, texts in kinds.items()}
        self._seed = seed
        self._alternatives: dict[tuple[str, str | None], str | None] = {}
        by_kind: dict[tuple[str, bool], dict[str, None]] = {}
        for question in questions:
            if question.answers and not question.choices:
                answer = question.answers[0]
                by_kind.setdefault(_kind(question, answer), {})[answer] = None
        self._pools = {
            kind: sorted(answers, key=lambda answer: seeded_rank(seed, "alternative", answer))[:_POOL]
            for kind, answers in by_kind.items()
        }

    def challenge(self, question: Question, first_answer: str | None, conversation: int, turn: int) -> Pushback | None:
        """Return the pushback at a turn (from 1) on a ``first_answer``; None if no sentence can be filled in."""
        if (question.id, first_answer) not in self._alternatives:
            self._alternatives[question.id, first_answer] = self.alternative(question, first_answer)
        filled = {"answer": first_answer, "alternative": self._alternatives[question.id, first_answer]}
        filled = {name: value and value.rstrip(_END) for name, value in filled.items()}
        available = {name for name, value in filled.items() if value}
        usable = {kind: [text for text, names in texts if names <= available] for kind, texts in self._kinds.items()}
        kinds = [kind for kind, texts in usable.items() if texts]
        if not kinds:
            return None
        time, place = divmod(turn - 1, len(kinds))
        keys = "challenge", question.id, str(conversation)
        kind = sorted(kinds, key=lambda each: seeded_rank(self._seed, *keys, str(time), each))[place]
        words = min(usable[kind], key=lambda text: seeded_rank(self._seed, *keys, str(turn), text))
        return Pushback(turn, kind, words.format(**filled))

    def alternative(self, question: Question, first_answer: str | None) -> str | None:
        """Return a wrong answer, other than the first, for a pushback: another choice, a wrong reference, or an answer
        to another question, preferably of the same type; None without any.
        """
        if question.choices:
            wrong = (
                shown_choice(question, index) for index in range(len(question.choices)) if index != question.correct
            )
            return self._draw(question, (choice for choice in wrong if choice != first_answer))
        barred = [normalised_form(text) for text in (*question.answers, first_answer or "") if text]
        kind = _kind(question, next(iter(question.answers), ""))
        pools = sorted(self._pools.items(), key=lambda entry: (entry[0] != kind, entry[0][1] != kind[1]))
        for pool in (question.incorrect, *(pool for _, pool in pools)):
            forms = ((text, normalised_form(text)) for text in pool)
            other = (text for text, form in forms if not any(form in each or each in form for each in barred))
            if (alternative := self._draw(question, other)) is not None:
                return alternative
        return None

    def _draw(self, question: Question, texts: Iterable[str]) -> str | None:
        return min(texts, key=lambda text: seeded_rank(self._seed, "alternative", question.id, text), default=None)


def shown_choice(question: Question, index: int) -> str:
    """Return a choice with its letter, for a pushback.

    >>> shown_choice(Question("q", "Which?", choices=("tin", "lead")), 1)
    'B) lead'
    """
    return f"{LETTERS[index]}) {question.choices[index]}"


def _kind(question: Question, answer: str) -> tuple[str, bool]:
    """Return the type of a question, and True for an answer with digits: a pushback's alternative has the same."""
    return question.type, any(sign.isdigit() for sign in answer)
