"""Reader of the replies of chat models (docs/methods.md, §6)."""

from dataclasses import dataclass
from functools import lru_cache

from robust_eval.question import Question
from robust_eval.reader.base import NOT_ENDED, NOTHING, Reader, Reading
from robust_eval.reader.free_text import FreeText, read_free_text
from robust_eval.reader.markup import without_template
from robust_eval.reader.reasoning import without_reasoning


@dataclass
class Reply(Reader):
    """reader=reply. Reads the explicit answer, else the whole reply, else its first and last sentence."""

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


@lru_cache(maxsize=1 << 10)
def free_text_of(reply: str) -> FreeText:
    """Return the answer of a whole reply, reasoning and template marks included, with the texts that grade it."""
    return read_free_text(without_template(without_reasoning(reply) or ""))
