"""Reader of the replies of chat models (docs/methods.md, §7)."""

from dataclasses import dataclass
from functools import lru_cache

from robust_eval.question import Question
from robust_eval.reader.base import NOT_ENDED, NOTHING, Reader, Reading
from robust_eval.reader.free_text import FreeText, one_line, read_free_text
from robust_eval.reader.markup import plain, without_template
from robust_eval.reader.reasoning import without_reasoning


@dataclass
class Reply(Reader):
    """reader=reply. Reads an explicit answer, or else the reply as a whole, or of a long one two sentences."""

    def read(self, reply: str, question: Question) -> Reading:
        """See Reader."""
        said = without_reasoning(reply)
        if said is None:
            return Reading("", "", NOT_ENDED)
        said = without_template(said)
        if not said:
            return Reading("", "", NOTHING)
        if not question.choices:
            found = read_free_text(said)
            return Reading(found.answer, found.rule) if found.answer else Reading("", "", NOTHING)
        from robust_eval.reader.letters import chosen  # a seventh of a second, which every other command would spend

        return chosen(said, question.choices)


@lru_cache(maxsize=1 << 14)
def free_text_of(reply: str) -> FreeText:
    """Return the answer of a whole reply, reasoning and template marks included, with the texts that grade it."""
    return read_free_text(without_template(without_reasoning(reply) or ""))


def spoken(reply: str) -> str:
    """Return all that a reply says besides its reasoning, as plain text in one line."""
    return one_line(plain(without_template(without_reasoning(reply) or "")))
