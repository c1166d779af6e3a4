"""Reader and grader of replies, combined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import SCHEMA
from robust_eval.grader.arranged import graded_as_shown
from robust_eval.grader.base import Grader
from robust_eval.model.base import Choices, Matcher
from robust_eval.question import Question
from robust_eval.reader.base import Reader, read

_FILLED = ("outcome", "answer", "rule", "reason", "uncertain", "label", "correct", "exact")
"""The columns that a reader and a grader fill."""


@dataclass(frozen=True)
class Judge:
    """Combination of a reader, which extracts answers from replies, and a grader of the answers."""

    reader: Reader
    grader: Grader
    first_line: bool
    """Whether a model may stop after the first line."""
    served: bool = False
    """Whether the model is behind a server, which refuses matchers itself."""

    def cached_only(self) -> "Judge":
        """Return a cache-only copy, which reads the verdicts of a judge from the store."""
        return replace(self, grader=self.grader.cached_only())

    def grade(self, questions: Sequence[Question], replies: pa.Table) -> pa.Table:
        """Return the table of replies with extracted answers and verdicts.

        Labels are letters of the choices in the question's order, in whatever order they were shown.
        """

        def grade(questions: Sequence[Question], replies: pa.Table) -> pa.Table:
            different, place = _different(replies)
            graded = self.grader.grade(questions, read(self.reader, questions, different))
            for name in _FILLED:
                column = graded[name].combine_chunks().take(place)
                replies = replies.set_column(replies.schema.get_field_index(name), SCHEMA.field(name), column)
            return replies

        return graded_as_shown(grade, questions, replies)

    def matcher(self, question: Question) -> Matcher | None:
        """Return the grader's matcher of unfinished answers; None if the whole reply is read."""
        return self.grader.matcher(question) if self.first_line or self.served else None

    def choices(self, question: Question) -> Choices | None:
        """Return the letters of a multiple-choice question."""
        return self.grader.choices(question)

    def unusable_aliases(self, questions: Sequence[Question]) -> Mapping[str, int]:
        """See Grader."""
        return self.grader.unusable_aliases(questions)


def _different(replies: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return the distinct replies, and for each reply the row of its equal."""
    has_reasoning_text = pc.fill_null(pc.not_equal(replies["reasoning"], ""), False)
    has_reasoning = pc.or_(has_reasoning_text, pc.fill_null(pc.greater(replies["reasoning_tokens"], 0), False))
    columns = [replies[name] for name in ("question_id", "text", "outcome", "finish_reason")] + [has_reasoning]
    codes = np.zeros(replies.num_rows, dtype=np.int64)
    for column in columns:
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * max(len(coded.dictionary), 1) + coded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return replies.take(pa.array(first[order])), pa.array(np.argsort(order)[place])
