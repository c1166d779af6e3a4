"""Interface of readers, and reading of a table of replies: answers, their rules, or why there are none."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from robust_eval.answer import NO_REPLY, rows, with_columns
from robust_eval.question import Question

NOT_ENDED = "reasoning not ended"
NOTHING = "no answer text"
NO_LETTER = "no letter"
"""Reasons why a reply has no answer."""
FIRST_LINE = "first line"
"""Rule of the reader that looks no further."""
WHOLE_REPLY = "whole reply"
"""Rule where the answer is all that a reply says."""


class Reading(NamedTuple):
    """Answer that a reader extracts from a reply: a text in one line, or a letter; empty without one.

    ``rule`` is the extraction rule, ``reason`` the reason if there is no answer. ``uncertain`` is True for a letter on
    which the scopes of the reply disagree; for free text the grader decides that.
    """

    answer: str
    rule: str
    reason: str = ""
    uncertain: bool = False


class Reader(ABC):
    """Base of readers, which extract answers from replies. They ask no model, so stored replies can be read anew."""

    whole_reply = True
    """The reader needs the whole reply, and not its first line alone."""

    def of(self, chat: bool) -> "Reader":
        """Return the reader for a model that is prompted by conversation (``chat``) or by plain text: this one."""
        return self

    @abstractmethod
    def read(self, reply: str, question: Question) -> Reading:
        """Return the answer that the reader extracts from a reply to a question."""


def read(reader: Reader, questions: Sequence[Question], replies: pa.Table) -> pa.Table:
    """Read an answer table: fill ``answer``, ``rule`` and ``reason``; ``invalid`` where a reader finds none.

    A reply that ended at its token limit before it said anything is one whose reasoning did not end, where it reasoned.
    """
    by_id = {question.id: question for question in questions}
    readings: dict[tuple[str, str], Reading] = {}
    columns: dict[str, list[str | bool | None]] = {
        name: [] for name in ("outcome", "answer", "rule", "reason", "uncertain")
    }
    names = ("question_id", "text", "outcome", "finish_reason", "reasoning", "reasoning_tokens")
    for question_id, text, outcome, finish, reasoning, reasoned in rows(replies, *names):
        reading = Reading("", "")
        if outcome == "empty" and finish == "length" and (reasoning or reasoned):
            reading = Reading("", "", NOT_ENDED)
        elif outcome not in NO_REPLY and outcome != "empty":
            if (question_id, text) not in readings:
                readings[question_id, text] = reader.read(text, by_id[question_id])
            reading = readings[question_id, text]
        columns["outcome"].append("invalid" if reading.reason and outcome in ("ok", "empty") else outcome)
        for name in ("answer", "rule", "reason"):
            columns[name].append(getattr(reading, name) or None)
        columns["uncertain"].append(reading.uncertain)
    return with_columns(replies, columns)
