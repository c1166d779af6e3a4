"""Arrangement of the choices of a question: their order and form (docs/multiqa.md)."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from robust_eval.question import LETTERS, Question, seeded_rank

GIVEN = "given"
"""Form of the prompt's template."""


class Form(NamedTuple):
    """Form of arranged choices: the mark before a choice, with its sign, and the separator."""

    mark: str
    between: str
    numbered: bool = False

    def signs(self) -> Sequence[str]:
        """Return the signs of choices in this form: that of the first, of the second, …"""
        return [str(place) for place in range(1, len(LETTERS) + 1)] if self.numbered else LETTERS

    def shown(self, choices: Sequence[str]) -> str:
        """Return the choices as this form shows them in a prompt.

        >>> Form("({})", ", ").shown(["tin", "lead"])
        '(A) tin, (B) lead'
        """
        signed = zip(self.signs(), choices, strict=False)
        return self.between.join(f"{self.mark.format(sign)} {choice}" for sign, choice in signed)


LINES, OPTIONS = Form("{})", "\n"), Form("{}.", ", ")
"""Forms of {choices} and of {options} in a template."""
FORMS = {
    "brackets": Form("({})", "\n"),
    "dots": Form("{}.", "\n"),
    "numbers": Form("{})", "\n", numbered=True),
    "commas": Form("{})", ", "),
    "bars": Form("{})", " | "),
}
"""Other forms, in the order of their raters."""
_TAG = re.compile(rf"choices ([{LETTERS}]+)(?: as (\w+))?")


@dataclass(frozen=True)
class Arrangement:
    """Arrangement of choices in another order or form; ``order`` has the choice at each position."""

    order: tuple[int, ...]
    form: str = GIVEN

    @property
    def tag(self) -> str:
        """Tag of the arrangement in the answer table.

        >>> Arrangement((2, 0, 1)).tag, Arrangement((0, 1, 2), "numbers").tag
        ('choices CAB', 'choices ABC as numbers')
        """
        letters = "".join(LETTERS[choice] for choice in self.order)
        return f"choices {letters}" + ("" if self.form == GIVEN else f" as {self.form}")

    def of(self, question: Question) -> Question:
        """Return the question with its choices in this arrangement's order."""
        choices = tuple(question.choices[choice] for choice in self.order)
        correct = None if question.correct is None else self.order.index(question.correct)
        return replace(question, choices=choices, correct=correct)

    def named(self, letter: str) -> str:
        """Return the letter that a choice has in its question, from its letter in this arrangement.

        >>> Arrangement((2, 0, 1)).named("A")
        'C'
        """
        return LETTERS[self.order[LETTERS.index(letter)]]


def shown_signs(choices: int, arrangement: Arrangement | None = None) -> tuple[str, ...]:
    """Return the signs of so many choices, in the form in which a prompt shows them.

    >>> shown_signs(2), shown_signs(2, Arrangement((0, 1), "numbers"))
    (('A', 'B'), ('1', '2'))
    """
    form = None if arrangement is None else FORMS.get(arrangement.form)
    return tuple((form or LINES).signs()[:choices])


def read_arrangement(tag: str | None) -> Arrangement | None:
    """Return the arrangement of a tag of the answer table; None for any other tag.

    >>> read_arrangement("choices CAB"), read_arrangement(None)
    (Arrangement(order=(2, 0, 1), form='given'), None)
    """
    match = _TAG.fullmatch(tag or "")
    if match is None:
        return None
    order, form = tuple(LETTERS.index(letter) for letter in match[1]), match[2] or GIVEN
    is_order = sorted(order) == list(range(len(order)))
    return Arrangement(order, form) if is_order and form in {GIVEN, *FORMS} else None


def rotations(choices: int) -> list[Arrangement]:
    """Return the rotations of a number of choices, without the identity: each choice has each position once.

    >>> [arrangement.order for arrangement in rotations(3)]
    [(1, 2, 0), (2, 0, 1)]
    """
    return [Arrangement(tuple((index + by) % choices for index in range(choices))) for by in range(1, choices)]


def permutations(question: Question, number: int, seed: int) -> list[Arrangement]:
    """Return at most ``number`` random orders to arrange a question's choices, all different and none the identity. The
    first ones are the same for any number.
    """
    identity = tuple(range(len(question.choices)))
    rank = int.from_bytes(seeded_rank(seed, "order of choices", question.id))
    random, orders = np.random.default_rng(rank), {identity: None}
    while len(orders) < min(number + 1, math.factorial(len(identity))):
        orders.setdefault(tuple(random.permutation(len(identity)).tolist()))
    return [Arrangement(order) for order in list(orders)[1:]]
