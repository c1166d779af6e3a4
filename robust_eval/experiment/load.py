"""Loading of the questions of a run, with their types and metadata."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from robust_eval.dataset.selection import Questions, Selection
from robust_eval.grader.base import Grader
from robust_eval.question import Question
from robust_eval.question_type.classifier import with_types
from robust_eval.runtime.text import counted

log = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """Loaded questions of a data set with their types, and the metadata of both."""

    questions: list[Question]
    original: Questions
    """The questions without predicted types."""
    type_metadata: dict[str, Any]
    """Number of predicted types, and their classifier."""
    unusable_aliases: Mapping[str, int]
    """Accepted answers that the grader cannot compare, with their counts."""

    def in_words(self, digest: str) -> str:
        """Return the number of loaded questions, and that of the data set's records that were left out."""
        left_out = "".join(f", {number:,} {reason}" for reason, number in self.original.unusable.items())
        return f"{counted(len(self.questions), 'question')}, fingerprint {digest[:12]}{left_out}"

    def description(self, digest: str) -> dict[str, Any]:
        """Return the metadata of the loaded questions, whose fingerprint is ``digest``."""
        return {
            **{f"loaded.dataset.{name}": value for name, value in self.original.description().items()},
            "loaded.dataset.fingerprint": digest,
            "loaded.dataset.unusable_aliases": sum(self.unusable_aliases.values()),
            **{f"loaded.{name}": value for name, value in self.type_metadata.items()},
        }


def load(dataset: Selection, grader: Grader, types: str | None) -> Loaded:
    """Load the questions of a run, and predict missing types with the classifier in the folder ``types``, if any."""
    original = dataset.load()
    questions, type_metadata = with_types(original, types)
    unusable = grader.unusable_aliases(questions)
    if unusable:
        log.warning("accepted answers with an empty normalised form are left out: %s", ", ".join(sorted(unusable)))
    return Loaded(questions, original, type_metadata, unusable)
