"""Grading by comparison with the accepted answers: equal, or contained as whole words or anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.base import FreeReply, Grader, accepted_answers
from robust_eval.normalization import has_words, is_one_character
from robust_eval.question import Question


@dataclass
class Matching(Grader):
    """Free text is right if it contains an accepted answer, both in normal form."""

    contains: str = "word"
    """word: an accepted answer must stand in the reply as whole words. substring: anywhere ("He" is in "There"), but
    for one of a single letter or sign ("U" is not in "Uruguay"). equal: the reply must be an accepted answer, and
    nothing else."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contains not in ("word", "substring", "equal"):
            raise ValueError(f"contains must be word, substring or equal, not {self.contains}")

    def right(self, replies: Sequence[FreeReply]) -> list[bool]:
        """Tell whether each reply contains an accepted answer, or is one."""
        if self.contains == "equal":
            return [reply.exact for reply in replies]
        return [any(self._contains(reply.searched, alias) for alias in reply.accepted) for reply in replies]

    def _contains(self, reply: str, alias: str) -> bool:
        return has_words(reply, alias) if self.contains == "word" or is_one_character(alias) else alias in reply

    def matcher(self, question: Question) -> AnswerMatcher | None:
        """Return the rule as it applies to a free-text answer that is being written; None where whole words do not
        count.
        """
        accepted, _ = accepted_answers(question)
        if question.choices or not accepted or self.contains != "word":
            return None
        return AnswerMatcher(accepted)
