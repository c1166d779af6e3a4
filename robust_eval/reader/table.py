"""Answers read in a table of replies."""

from collections.abc import Sequence

import pyarrow as pa

from robust_eval.answer import NO_REPLY, SCHEMA, rows
from robust_eval.question import Question
from robust_eval.reader.base import NOT_ENDED, Reader, Reading


def read(reader: Reader, questions: Sequence[Question], replies: pa.Table) -> pa.Table:
    """Return the answer table with ``answer``, ``rule`` and ``reason`` filled; ``invalid`` where a reader finds none.

    A reply that ended at its token limit before it said anything is one whose reasoning did not end, where it reasoned.
    """
    by_id = {question.id: question for question in questions}
    known: dict[tuple[str, str], Reading] = {}
    columns: dict[str, list[str | bool | None]] = {
        name: [] for name in ("outcome", "answer", "rule", "reason", "uncertain")
    }
    names = ("question_id", "text", "outcome", "finish_reason", "reasoning", "reasoning_tokens")
    for question_id, text, outcome, finish, reasoning, reasoned in rows(replies, *names):
        reading = Reading("", "")
        if outcome == "empty" and finish == "length" and (reasoning or reasoned):
            reading = Reading("", "", NOT_ENDED)
        elif outcome not in NO_REPLY and outcome != "empty":
            if (question_id, text) not in known:
                known[question_id, text] = reader.read(text, by_id[question_id])
            reading = known[question_id, text]
        columns["outcome"].append("invalid" if reading.reason and outcome in ("ok", "empty") else outcome)
        for name in ("answer", "rule", "reason"):
            columns[name].append(getattr(reading, name) or None)
        columns["uncertain"].append(reading.uncertain)
    for name, values in columns.items():
        field = SCHEMA.field(name)
        replies = replies.set_column(replies.schema.get_field_index(name), field, pa.array(values, field.type))
    return replies
