"""Readers for chat models and base models, and their choice by prompt style (docs/methods.md, §6)."""

from dataclasses import dataclass
from functools import lru_cache

from robust_eval.normalization import first_line
from robust_eval.question import Question
from robust_eval.reader.base import FIRST_LINE, NOT_ENDED, NOTHING, Reader, Reading
from robust_eval.reader.free_text import FreeText, read_free_text
from robust_eval.reader.markup import without_template
from robust_eval.reader.reasoning import without_reasoning


@dataclass
class ReplyReader(Reader):
    """reader=reply. Reads the explicit answer, else the whole reply, else its first and last sentence."""

    def read(self, reply: str, question: Question) -> Reading:
        """Return the answer, the letter of a choice for a question with choices."""
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
    """Return the answer of a whole reply, reasoning and template marks included, with the texts that grade it."""
    return read_free_text(without_template(without_reasoning(reply) or ""))


@dataclass
class FirstLineReader(Reader):
    """reader=first_line. Reads the first line and never looks further.

    Below it a base model asks and answers questions of its own.
    """

    whole_reply = False

    def read(self, reply: str, question: Question) -> Reading:
        """Return the first line; all lines of a multiple-choice reply, because the grader reads lists of letters."""
        text = without_reasoning(reply)
        if text is None:
            return Reading("", "", NOT_ENDED)
        text = without_template(text)
        answer = text if question.choices else first_line(text)
        return Reading(answer, FIRST_LINE) if answer else Reading("", "", NOTHING)


@dataclass
class ByPromptStyle:
    """reader=by_prompt_style: ``reply`` for conversations and recorded answers, ``first_line`` for plain prompts."""

    def of(self, chat: bool) -> Reader:
        """Return the reader of a model that is prompted by conversation (``chat``) or by plain text."""
        return ReplyReader() if chat else FirstLineReader()
