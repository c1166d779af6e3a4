"""Questions of a run, with their types and metadata."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from robust_eval.dataset.selection import Questions, Selection
from robust_eval.grader.base import Grader
from robust_eval.question import Question
from robust_eval.question_type.classifier import with_types

log = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """The questions of a data set with their types, and what is put on record of both."""

    questions: list[Question]
    whole: Questions
    """As the data set brought them."""
    typed: dict[str, Any]
    """Number of predicted types, and their classifier."""
    unusable: Mapping[str, int]
    """Accepted answers that the grader cannot compare, with how often each occurs."""

    def in_words(self, digest: str) -> str:
        """Say how many questions there are, and how many records of the data set were left out."""
        left_out = "".join(f", {number:,} {reason}" for reason, number in self.whole.unusable.items())
        return f"{len(self.questions)} questions, fingerprint {digest[:12]}{left_out}"

    def description(self, digest: str) -> dict[str, Any]:
        """Return the metadata of the questions, whose fingerprint is ``digest``, for the record."""
        return {
            **{f"loaded.dataset.{name}": value for name, value in self.whole.description().items()},
            "loaded.dataset.fingerprint": digest,
            "loaded.dataset.unusable_aliases": sum(self.unusable.values()),
            **{f"loaded.{name}": value for name, value in self.typed.items()},
        }


def load(dataset: Selection, grader: Grader, types: str | None) -> Loaded:
    """Load the questions, and predict the ``types`` of those that have none where there is a classifier."""
    whole = dataset.load()
    questions, typed = with_types(whole, types)
    unusable = grader.unusable_aliases(questions)
    if unusable:
        log.warning("accepted answers that normalise to nothing are left out: %s", ", ".join(sorted(unusable)))
    return Loaded(questions, whole, typed, unusable)
