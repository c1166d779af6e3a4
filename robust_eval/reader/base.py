"""Interface of readers: a reader extracts the answer of a reply, with the rule, or the reason that there is none."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from robust_eval.question import Question

NOT_ENDED = "reasoning not ended"
NOTHING = "nothing said"
NO_LETTER = "no letter"
"""Reasons why a reply has no answer."""
FIRST_LINE = "first line"
"""Rule of the reader that looks no further."""
WHOLE_REPLY = "whole reply"
"""Rule where the answer is all that a reply says."""


class Reading(NamedTuple):
    """The answer that was read in a reply: a text in one line, or a letter; empty where there is none.

    ``rule`` says how it was found, ``reason`` why there is none. ``uncertain`` says of a letter that the scopes of the
    reply disagree; of free text the grader says so.
    """

    answer: str
    rule: str
    reason: str = ""
    uncertain: bool = False


class Reader(ABC):
    """A way of reading replies. It asks no model, so stored replies can be read anew."""

    whole_reply = True
    """The reader needs the whole reply, and not its first line alone."""

    def of(self, chat: bool) -> "Reader":
        """Return the reader for a model that is prompted by conversation (``chat``) or by plain text: this one."""
        return self

    @abstractmethod
    def read(self, reply: str, question: Question) -> Reading:
        """Return the answer of a reply to a question."""
