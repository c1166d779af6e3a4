"""Graders by cosine: similarity of meaning, by a sentence-embedding model.

A reply is right that is close to an accepted answer (:class:`Cosine`: the rule of WikiQA, whose accepted answers are
labelled passages), or closer to one than to any incorrect reference (:class:`References`: the rule of TruthfulQA
without choices). Both are of Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations
and Answers" (docs/methods.md, §2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from robust_eval.error import UserError
from robust_eval.grader.accepted_forms import accepted_answers, comparable
from robust_eval.grader.base import FreeReply, Grader
from robust_eval.model.local.sentences import Sentences
from robust_eval.normalization import has_words, is_one_character, normalize
from robust_eval.question import Question

_ROUNDING = 1e-6
"""Rounding of a cosine in float32, which may differ by as much in another batch."""


@dataclass
class SentenceGrader(Grader):
    """Base of graders that compare a reply with references by cosine, with a sentence-embedding model."""

    model: str
    """Sentence-embedding model: a folder, a hub id, or embedded:PACKAGE/FOLDER from the package index."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError("model must name a sentence-embedding model")

    @cached_property
    def _sentences(self) -> Sentences:
        return Sentences(self.model)


@dataclass
class Cosine(SentenceGrader):
    """Free text is right if the cosine of its first line to any accepted answer, as they are written, is large enough.

    A sentence-embedding model hears what a reply is about: it takes a wrong name or year, or a denial, for much the
    same. A reply that equals an accepted answer in normalised form is right in any case (see :func:`nearness`).
    """

    similarity: float = 0.6
    """The cosine must be above this number (at least −1 and below 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -1 <= self.similarity < 1:
            raise ValueError(f"similarity must be at least -1 and below 1, not {self.similarity}")

    def right(self, replies: Sequence[FreeReply]) -> list[bool]:
        """Return True for each reply near an accepted answer by cosine; all new texts are embedded together."""
        self._sentences.precompute(text for reply in replies for text in (reply.line, *reply.references))
        return [nearness(self._sentences, reply, reply.references) > self.similarity for reply in replies]


def nearness(sentences: Sentences, reply: FreeReply, references: Sequence[str]) -> float:
    """Return the largest cosine of a reply to any of the references; 1 if the normalised forms are equal.

    The normalised form takes precedence because a sentence-embedding model separates 1,945 from 1945. It does not
    separate letters: a reference of a single letter counts only if it is a word of the reply. −1 if no reference
    counts.
    """
    forms = [normalize(text) for text in references]
    if reply.form in forms:
        return 1.0
    counted = [
        text
        for text, form in zip(references, forms, strict=True)
        if not is_one_character(form) or has_words(reply.form, form)
    ]
    if not counted:
        return -1.0
    return float((sentences.embed(counted) @ sentences.embed([reply.line])[0]).max())


@dataclass
class References(SentenceGrader):
    """Free text is right if its first line has a larger cosine to an accepted answer than to any in ``incorrect``.

    A tie is wrong. It does not matter how near the reply is to either: every reply is taken for one of the two.
    """

    def unusable_aliases(self, questions: Sequence[Question]) -> Mapping[str, int]:
        """See :class:`Grader`; UserError names a question with accepted answers and without incorrect references."""
        for question in questions:
            if not question.choices and accepted_answers(question)[0]:
                _incorrect(question)
        return super().unusable_aliases(questions)

    def right(self, replies: Sequence[FreeReply]) -> list[bool]:
        """Return True for each reply nearest by cosine to a correct reference; all new texts are embedded together."""
        incorrect = {reply.question.id: _incorrect(reply.question) for reply in replies}
        self._sentences.precompute(
            text for reply in replies for text in (reply.line, *reply.references, *incorrect[reply.question.id])
        )
        return [
            nearness(self._sentences, reply, reply.references)
            > nearness(self._sentences, reply, incorrect[reply.question.id]) + _ROUNDING
            for reply in replies
        ]


def _incorrect(question: Question) -> list[str]:
    """Return the incorrect references of a question; UserError if there are none."""
    if not (texts := comparable(question.incorrect)):
        raise UserError(
            f"grader=references cannot grade question {question.id}: it needs wrong references ('incorrect') in "
            "addition to its accepted answers"
        )
    return texts
