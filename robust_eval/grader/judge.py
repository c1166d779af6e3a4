"""A reader and a grader together: what was said in a reply, and whether it is right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from robust_eval.grader.arranged import graded_as_shown
from robust_eval.grader.base import Grader
from robust_eval.model.base import Choices, Matcher
from robust_eval.question import Question
from robust_eval.reader.base import Reader
from robust_eval.reader.table import read


@dataclass(frozen=True)
class Judge:
    """Reads replies, and grades what was read."""

    reader: Reader
    grader: Grader
    first_line: bool
    """Whether a model may end its reply with the first line."""
    served: bool = False
    """Whether the model is behind a server, which says itself that it cannot use a matcher."""

    def closed(self) -> "Judge":
        """Return the same, which asks no model for verdicts."""
        return replace(self, grader=self.grader.closed())

    def grade(self, questions: Sequence[Question], replies: pa.Table) -> pa.Table:
        """Return the table of replies with what was read in them, and graded; labels are letters of the choices in the
        order in which a question has them, however they were shown.
        """

        def grade(questions: Sequence[Question], replies: pa.Table) -> pa.Table:
            return self.grader.grade(questions, read(self.reader, questions, replies))

        return graded_as_shown(grade, questions, replies)

    def matcher(self, question: Question) -> Matcher | None:
        """Return the rule of the grader for an answer that is being written; None where all of the reply is read."""
        return self.grader.matcher(question) if self.first_line or self.served else None

    def choices(self, question: Question) -> Choices | None:
        """Return the letters of a multiple-choice question."""
        return self.grader.choices(question)

    def unusable_aliases(self, questions: Sequence[Question]) -> Mapping[str, int]:
        """See Grader."""
        return self.grader.unusable_aliases(questions)
