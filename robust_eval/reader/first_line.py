"""The answer of a base model: the first line of what it writes (docs/methods.md, §6)."""

from dataclasses import dataclass

from robust_eval.normalization import first_line
from robust_eval.question import Question
from robust_eval.reader.base import FIRST_LINE, NOT_ENDED, NOTHING, Reader, Reading
from robust_eval.reader.markup import without_template
from robust_eval.reader.reasoning import without_reasoning


@dataclass
class FirstLine(Reader):
    """reader=first_line. Reads the first line and never looks further.

    Below it a base model asks and answers questions of its own.
    """

    whole_reply = False

    def read(self, reply: str, question: Question) -> Reading:
        """See Reader. Of a multiple-choice question all lines are left to the grader, which reads lists of letters."""
        spoken = without_reasoning(reply)
        if spoken is None:
            return Reading("", "", NOT_ENDED)
        spoken = without_template(spoken)
        answer = spoken if question.choices else first_line(spoken)
        return Reading(answer, FIRST_LINE) if answer else Reading("", "", NOTHING)
