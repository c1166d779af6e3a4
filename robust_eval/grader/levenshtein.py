"""Grading by spelling: a reply that is almost an accepted answer is right.

The rule of SciQ without choices in Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question
Perturbations and Answers" (docs/methods.md, §2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein as Distance

from robust_eval.grader.base import FreeReply, Grader
from robust_eval.normalization import is_one_character, numbers_differ

_ROUNDING = 1e-9


@dataclass
class Levenshtein(Grader):
    """Free text is right if it is spelt almost like an accepted answer.

    The similarity of two normal forms is 1 − distance / length of the longer, where the distance is the least number
    of letters to insert, delete or replace. The reply is compared as a whole, so that this is approximate equality and
    not containment: "it is mitosis" is no "mitosis". Forms that hold different numbers are never alike, however long
    they are: 19451 is no misspelling of 19452. A single letter or sign is like nothing but itself.
    """

    similarity: float = 0.8
    """Of reply and accepted answer at least, above 0 and at most 1 (then they must be equal)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.similarity <= 1:
            raise ValueError(f"similarity must be above 0 and at most 1, not {self.similarity}")

    def right(self, replies: Sequence[FreeReply]) -> list[bool]:
        """Tell whether each reply is spelt almost like an accepted answer."""
        return [any(self._alike(reply.form, alias) for alias in reply.accepted) for reply in replies]

    def _alike(self, reply: str, alias: str) -> bool:
        if is_one_character(alias):
            return reply == alias
        similarity = Distance.normalized_similarity(reply, alias)
        return similarity >= self.similarity - _ROUNDING and not numbers_differ(reply, alias)
