"""Question of a data set, with its accepted answers and metadata."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from numbers import Integral

from robust_eval.error import UserError

LETTERS = "ABCDEFGHIJKLM"
"""Letters of choices, in their order: TruthfulQA has the most, up to 13."""
UNANSWERABLE = "I don't know"
"""The accepted answer of a question without an answer."""
QUESTION_TYPES = {
    "ABBR": "Abbreviation",
    "DESC": "Description",
    "ENTY": "Entity",
    "HUM": "Human",
    "LOC": "Location",
    "NUM": "Numerical",
}
"""Coarse classes of TREC, and their display names (Li & Roth, "Learning Question Classifiers", 2002)."""
PHYSICS_CATEGORIES = {"D": "definitions", "F": "facts", "C": "concepts", "S": "one step", "M": "several steps"}
"""Categories of physics questions, from knowledge to reasoning, and their display names (Reganova & Steinbach)."""


class Scenario(StrEnum):
    """Scenario of a question: its content besides the text (Cho & Watson, §3)."""

    EXTRACTIVE = "extractive"
    """A context is given; the answer stands in it."""
    MULTIPLE_CHOICE = "multiple_choice"
    """Choices are given; the answer is a letter."""
    ABSTRACTIVE = "abstractive"
    """The question alone (closed-book question answering)."""


@dataclass(frozen=True)
class Question:
    """Question of a data set. Without ``text``, recorded answers to it can be graded, but no model can be asked.

    ``answers`` are aliases: a reply that matches any of them is right, and if the only one is :data:`UNANSWERABLE`, a
    reply that abstains. A multiple-choice question has ``choices`` and the index ``correct`` of the right one (from 0)
    instead. ``type`` is the TREC coarse class (:data:`QUESTION_TYPES`), ``category`` the data set's own subject,
    ``level`` how common the knowledge is (1: a child knows it), ``group`` the name of what dependent questions share,
    such as a paragraph: intervals resample whole groups. ``rewrites`` are its recorded paraphrases, ``incorrect`` wrong
    references (TruthfulQA). UserError for a field of another type, such as a string in place of a tuple.

    >>> question = Question("1", "What is the capital of Italy?", ("Rome", "Roma"), type="LOC")
    >>> question.scenario.value, QUESTION_TYPES[question.type]
    ('abstractive', 'Location')
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    correct: int | None = None
    context: str = ""
    type: str = ""
    category: str = ""
    group: str = ""
    level: int | None = None
    rewrites: tuple[str, ...] = ()
    incorrect: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "text", "context", "type", "category", "group"):
            if not isinstance(value := getattr(self, name), str):
                raise UserError(f"question {self.id!r}: {name} must be a string, not {value!r:.60}")
        for name in ("answers", "choices", "rewrites", "incorrect"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list) or not all(isinstance(each, str) for each in value):
                raise UserError(f"question {self.id!r}: {name} must be a tuple of strings, not {value!r:.60}")
            object.__setattr__(self, name, tuple(value))
        if isinstance(self.correct, Integral) and not isinstance(self.correct, bool):  # numpy's, too
            object.__setattr__(self, "correct", int(self.correct))
        if self.correct is not None and (type(self.correct) is not int or not 0 <= self.correct < len(self.choices)):
            raise UserError(
                f"question {self.id!r}: correct must be the index of one of the {len(self.choices)} choices, from 0, "
                f"not {self.correct!r:.60}"
            )
        if self.level is not None and (not isinstance(self.level, Integral) or isinstance(self.level, bool)):
            raise UserError(f"question {self.id!r}: level must be a whole number, not {self.level!r:.60}")

    @property
    def is_unanswerable(self) -> bool:
        """True if the right answer to the question is to abstain: its only accepted answer is :data:`UNANSWERABLE`."""
        return self.answers == (UNANSWERABLE,)

    @property
    def title(self) -> str:
        """Display name of the question: the text, or the id without a text."""
        return self.text or self.id

    @property
    def key(self) -> str:
        """Key of a question as JSON: accepted answers, choices with the index of the right one, wrong references, and
        the hash of a context.
        """
        right = {"answers": self.answers, "choices": self.choices, "correct": self.correct, "incorrect": self.incorrect}
        context = hashlib.sha256(self.context.encode("utf-8", "surrogatepass")).hexdigest()[:16] if self.context else ""
        entries = {name: value for name, value in {**right, "context": context}.items() if value not in ((), "", None)}
        return json.dumps(entries)

    @property
    def scenario(self) -> Scenario:
        """Scenario of the question: multiple_choice with choices, extractive with a context, else abstractive."""
        if self.choices:
            return Scenario.MULTIPLE_CHOICE
        return Scenario.EXTRACTIVE if self.context else Scenario.ABSTRACTIVE


def fingerprint(questions: Sequence[Question], edition: str = "") -> str:
    """Return the SHA-256 of the content and order of the questions, and of the edition of the data (split and revision
    of a hub).
    """
    digest = hashlib.sha256(edition.encode("utf-8", "surrogatepass"))
    for question in questions:
        digest.update(json.dumps(asdict(question), ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


def seeded_rank(seed: int, *keys: str) -> bytes:
    """Return pseudo-random bytes of a seed and keys, such as an id: a sort key independent of other elements."""
    return hashlib.blake2b("\0".join([str(seed), *keys]).encode(), digest_size=16).digest()
