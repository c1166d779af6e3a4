"""Grader by comparison with the accepted answers: equality, or containment as whole words or anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_eval.grader.accepted_forms import accepted_answers, compounds, holds, holds_compound, with_spellings
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.base import FreeReply, Grader
from robust_eval.normalization import is_one_character
from robust_eval.question import Question


@dataclass
class Matching(Grader):
    """Grader by matching: free text is right if it contains an accepted answer, both in normalised form."""

    contains: str = "word"
    """word: the reply must contain an accepted answer as whole words. substring: anywhere ("There" contains "He"),
    except for single letters and signs ("Uruguay" does not contain "U"). equal: the reply must equal an accepted
    answer."""
    spelling: str = "lenient"
    """lenient: a space or hyphen inside a word ("bee keeper") or between letters and digits ("U-2"), and the plural -s
    of the last word, make no difference; strict: they do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contains not in ("word", "substring", "equal"):
            raise ValueError(f"contains must be word, substring or equal, not {self.contains}")
        if self.spelling not in ("lenient", "strict"):
            raise ValueError(f"spelling must be lenient or strict, not {self.spelling}")

    def right(self, replies: Sequence[FreeReply]) -> list[bool]:
        """Return True for each reply that matches: it contains an accepted answer, or is one."""
        if self.contains == "equal":
            return [reply.exact for reply in replies]
        return [reply.exact or any(self._holds(form, reply.accepted) for form in reply.searched) for reply in replies]

    def _holds(self, form: str, accepted: tuple[str, ...]) -> bool:
        if self.contains == "substring":
            aliases = [alias for alias in accepted if not is_one_character(alias)]
            return holds(form, accepted) or any(alias in form for alias in aliases)
        if self.spelling == "strict":
            return holds(form, accepted)
        return holds(form, with_spellings(accepted)) or holds_compound(form, compounds(accepted))

    def matcher(self, question: Question) -> AnswerMatcher | None:
        """Return the matcher of unfinished free-text answers; None unless the comparison is by whole words."""
        accepted, _ = accepted_answers(question, self.accents)
        if question.choices or question.is_unanswerable or not accepted or self.contains != "word":
            return None
        return AnswerMatcher(accepted, self.accents, lenient=self.spelling == "lenient")
