"""Readers of replies of chat models and base models, and their choice by prompt style (docs/methods.md, §6)."""

from dataclasses import dataclass
from functools import lru_cache

from robust_eval.question import Question
from robust_eval.reader.base import FIRST_LINE, NOT_ENDED, NOTHING, Reader, Reading
from robust_eval.reader.free_text import FreeText, read_free_text
from robust_eval.reader.markup import without_template
from robust_eval.reader.reasoning import without_reasoning
from robust_eval.runtime.text import first_line


@dataclass
class ReplyReader(Reader):
    """Reader of a whole reply (reader=reply): its explicit answer, else the reply, else its first and last sentence."""

    def read(self, reply: str, question: Question) -> Reading:
        """Return the answer in a whole reply, the letter of a choice for a question with choices."""
        text = without_reasoning(reply)
        if text is None:
            return Reading("", "", NOT_ENDED)
        text = without_template(text)
        if text and question.choices:
            from robust_eval.reader.letters import chosen  # an import of a seventh of a second

            return chosen(text, question.choices)
        free_text = read_free_text(text)
        return Reading(free_text.answer, free_text.rule) if text and free_text.answer else Reading("", "", NOTHING)


@lru_cache(maxsize=1 << 10)
def free_text_of(reply: str) -> FreeText:
    """Return the free-text answer in a raw reply (with reasoning and template marks), and the texts that grade it."""
    return read_free_text(without_template(without_reasoning(reply) or ""))


@dataclass
class FirstLineReader(Reader):
    """Reader of the first line of a reply (reader=first_line); it never looks further.

    Below it a base model asks and answers questions of its own.
    """

    whole_reply = False

    def read(self, reply: str, question: Question) -> Reading:
        """Return a reply's first line, or all of a multiple-choice reply, because the grader reads lists of letters."""
        text = without_reasoning(reply)
        if text is None:
            return Reading("", "", NOT_ENDED)
        text = without_template(text)
        answer = text if question.choices else first_line(text)
        return Reading(answer, FIRST_LINE) if answer else Reading("", "", NOTHING)


@dataclass
class ByPromptStyle:
    """Reader by prompt style (reader=by_prompt_style): ``first_line`` for plain prompts, ``reply`` for all others."""

    def of(self, chat: bool) -> Reader:
        """Return the reader of replies to conversations (``chat``) or to plain text."""
        return ReplyReader() if chat else FirstLineReader()
