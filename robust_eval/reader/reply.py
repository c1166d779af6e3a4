"""The answer in a reply of a chat model (docs/methods.md, §6)."""

import re
from dataclasses import dataclass

from robust_eval.question import Question
from robust_eval.reader.base import NOT_ENDED, NOTHING, Reader, Reading
from robust_eval.reader.explicit import marked, sentences, stated
from robust_eval.reader.markup import compatible, plain, without_template
from robust_eval.reader.reasoning import without_reasoning

WORDS = 60
"""Words of a reply that is taken whole, at most; in a longer one much is said besides the answer."""
LAST_SENTENCE = "last sentence"
"""The rule for longer ones."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_POLITE = "|".join(
    (
        r"sure(?: thing)?|certainly|of course|absolutely|(?:great|good) question|no problem|hello|hi(?: there)?",
        r"natürlich|gerne?|klar|selbstverständlich|bien sûr|avec plaisir|bonjour|claro|por supuesto|hola",
        r"当然|好的|你好",
    )
)
_OPENING = re.compile(rf"\A\s*(?:(?:{_POLITE})[!,.:！，。：]+\s*)+", re.I)


@dataclass
class Reply(Reader):
    """reader=reply. Reads an explicit answer, or else the whole reply if it is short, or else its last sentence."""

    def read(self, reply: str, question: Question) -> Reading:
        """See Reader."""
        said = without_reasoning(reply)
        if said is None:
            return Reading("", "", NOT_ENDED)
        said = without_template(said)
        if not said:
            return Reading("", "", NOTHING)
        if not question.choices:
            return _answer(said)
        from robust_eval.reader.letters import chosen  # a seventh of a second, which every other command would spend

        return chosen(said, question.choices)


def _answer(reply: str) -> Reading:
    """Return the answer in free text."""
    if found := [answer for _, answer in marked(reply) if plain(answer)]:
        return Reading(_line(plain(found[-1])), "marked answer")
    text = plain(reply)
    if found := [answer for _, answer in stated(text) if answer]:
        return Reading(_line(found[-1]), "stated answer")
    text = _OPENING.sub("", text).strip() or text
    if len(_WORD.findall(text)) <= WORDS:
        return Reading(_line(text), "whole reply") if text else Reading("", "", NOTHING)
    said = sentences(text)  # none of a long row of full stops
    return Reading(_line(said[-1]), LAST_SENTENCE) if said else Reading("", "", NOTHING)


def spoken(reply: str) -> str:
    """Return all that a reply says besides its reasoning, as plain text in one line."""
    return _line(plain(without_template(without_reasoning(reply) or "")))


def _line(text: str) -> str:
    """Return a text as one line."""
    return " ".join(compatible(text).split())
