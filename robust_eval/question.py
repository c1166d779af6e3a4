"""The item of a data set: a question, its accepted answers, and what comes with it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

LETTERS = "ABCDEFGHIJKLM"
"""Of choices, in their order: no data set here has more of them than TruthfulQA, which has 13 to some questions."""
QUESTION_TYPES = {
    "ABBR": "Abbreviation",
    "DESC": "Description",
    "ENTY": "Entity",
    "HUM": "Human",
    "LOC": "Location",
    "NUM": "Numerical",
}
"""The coarse classes of TREC, and what a person calls them (Li & Roth, "Learning Question Classifiers", 2002)."""


class Scenario(StrEnum):
    """What a question shows besides its text (Cho & Watson, §3)."""

    EXTRACTIVE = "extractive"
    """A context is given; the answer stands in it."""
    MULTIPLE_CHOICE = "multiple_choice"
    """Choices are given; the answer is a letter."""
    ABSTRACTIVE = "abstractive"
    """The question alone (closed-book question answering)."""


@dataclass(frozen=True)
class Question:
    """One question. Where only its key is known, ``text`` is empty: it cannot be asked, but recorded answers be graded.

    ``answers`` are aliases: a reply that matches any of them is right. A multiple-choice question has ``choices`` and
    the index ``correct`` of the right one (from 0) instead. ``type`` is the TREC coarse class
    (:data:`QUESTION_TYPES`), ``category`` the data set's own subject, ``level`` how common the knowledge is (1: a child
    knows it), ``group`` what makes questions dependent (the paragraph that they ask about): intervals resample groups,
    ``incorrect`` references that are wrong (TruthfulQA).
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

    @property
    def title(self) -> str:
        """What it is called where it is shown: its text, or where that is not known its id."""
        return self.text or self.id

    @property
    def key(self) -> str:
        """What is right, as JSON: accepted answers, choices with the index of the right one, references that are wrong;
        where there is a context, its hash as well.
        """
        right = {"answers": self.answers, "choices": self.choices, "correct": self.correct, "incorrect": self.incorrect}
        context = hashlib.sha256(self.context.encode("utf-8", "surrogatepass")).hexdigest()[:16] if self.context else ""
        told = {name: value for name, value in {**right, "context": context}.items() if value not in ((), "", None)}
        return json.dumps(told)

    @property
    def scenario(self) -> Scenario:
        if self.choices:
            return Scenario.MULTIPLE_CHOICE
        return Scenario.EXTRACTIVE if self.context else Scenario.ABSTRACTIVE


def fingerprint(questions: Sequence[Question], edition: str = "") -> str:
    """SHA-256 over the content and order of the questions, and over which edition of the data they are from (split and
    revision, on a hub): equal fingerprints, equal data.
    """
    digest = hashlib.sha256(edition.encode("utf-8", "surrogatepass"))
    for question in questions:
        digest.update(json.dumps(asdict(question), ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


def seeded_rank(seed: int, *parts: str) -> bytes:
    """Return bytes that are random, and always the same for the same seed and parts: what is sorted by them is in an
    order that does not depend on what else there is.
    """
    return hashlib.blake2b("\0".join([str(seed), *parts]).encode(), digest_size=16).digest()
