"""Statements in a reply that say what the answer is: "the answer is X", a box, a field ``answer``."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_FIELD = re.compile(
    r'"(?:final_?)?(?:answer|antwort|réponse|respuesta|choice|答案)"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d[\d.]*|true|false)',
    re.I,
)
_ELEMENT = re.compile(r"<((?:final[_ ]?)?answer)>(.*?)(?:</\1>|\Z)", re.I | re.S)
_AFTER_HASHES = re.compile(r"^####[ \t]+(\S.*)$", re.M)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")

_SAYS = "|".join(
    (
        r"(?:answer|solution)[^.:!?\n]{0,80}?\s*(?:\b(?:is|was|are|would be|should be|must be)\b\s*:?|[:=→]|\n)",
        r"(?:Antwort|Lösung)[^.:!?\n]{0,60}?\s*(?:\b(?:ist|lautet|wäre)\b\s*:?|[:=→]|\n)",
        r"réponse[^.:!?\n]{0,60}?\s*(?:\b(?:est|serait)\b\s*:?|[:=→]|\n)",
        r"(?:respuesta|solución)[^.:!?\n]{0,60}?\s*(?:\b(?:es|sería)\b\s*:?|[:=→]|\n)",
        r"答案[^。.:!?\n]{0,20}?\s*(?:是|为|應為|应为|:|\n)\s*:?",
    )
)
_STATEMENT = re.compile(rf"(?<![\w-])(?:{_SAYS})\s*(?P<answer>\S[^\n]*)", re.I)
_DENIED = re.compile(r"(?:not|nicht|keine?|pas|no|不)\b", re.I)

_NOT_AN_END = (
    r"(?<!\b[A-Zv])(?<!\b(?:St|Mr|Dr|Mt|Ft|Jr|Sr|vs|No|ca))(?<!\b(?:Mrs|Rev|Gen|Col|Inc|Ltd|bzw))(?<!\b(?:Prof|Capt))"
)
_END = re.compile(rf"(?<=[\w)\]\"'”’%°]){_NOT_AN_END}[.!?](?P<closing>[\"'”’)]*)(?=\s|\Z)|[。！？]")


class Statement(NamedTuple):
    """An answer that a reply states, and where in the reply."""

    place: int
    answer: str


def boxed(text: str) -> Iterator[tuple[int, int, str]]:
    r"""Yield where each ``\boxed{…}`` begins and ends, and what is in it; one that is cut off ends with the text."""
    for box in _BOX.finditer(text):
        depth, end = 1, box.end()
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield box.start(), end, text[box.end() : end - (not depth)]


def marked(text: str) -> list[Statement]:
    """Return the answers that stand in a box, in a field of JSON, in an element, or behind "####"; in their order."""
    found = [Statement(begin, inside) for begin, _, inside in boxed(text)]
    found += [Statement(match.start(), match[2]) for match in _ELEMENT.finditer(text)]
    found += [Statement(match.start(), match[1]) for match in _AFTER_HASHES.finditer(text)]
    for match in _FIELD.finditer(text):
        value = json.loads(match[1], strict=False) if match[1].startswith('"') else match[1]
        found.append(Statement(match.start(), str(value)))
    return sorted(found)


def stated(text: str) -> list[Statement]:
    """Return the answers that sentences of a plain text state, in their order: "the answer is X", "Answer: X".

    >>> stated("Emma is a novel. So the answer is: J. Austen. She was born in 1775.")
    [Statement(place=24, answer='J. Austen')]
    """
    found = []
    place = 0
    while (match := _STATEMENT.search(text, place)) is not None:
        answer = first_sentence(match["answer"])
        if any(map(str.isalnum, answer)) and not _DENIED.match(answer):
            found.append(Statement(match.start(), answer))
        place = match.start("answer")
    return found


def first_sentence(line: str) -> str:
    """Return the first sentence of a line, without its full stop."""
    end = _END.search(line)
    return (line[: end.start()] if end else line).strip()


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each without its full stop; a line break ends one as well."""
    found = []
    for line in text.splitlines():
        rest = line.strip()
        while rest:
            end = _END.search(rest)
            sentence, rest = (rest[: end.start()] + (end["closing"] or ""), rest[end.end() :]) if end else (rest, "")
            if any(letter.isalnum() for letter in sentence):
                found.append(sentence.strip())
    return found
