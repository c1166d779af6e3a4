"""What every rewriter can be asked."""

from collections.abc import Sequence
from typing import Protocol

from robust_eval.question import Question


class Rewriter(Protocol):
    """Where rewrites come from; a dataclass whose fields are its configuration."""

    def rewrite(self, questions: Sequence[Question]) -> list[Question]:
        """The questions with their rewrites; those that are given may have some, context and choices stay."""
