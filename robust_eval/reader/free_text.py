"""Answer of a free-text reply: an explicit answer, or else what the reply says as a whole (docs/methods.md, §7)."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from robust_eval.reader.asides import without_denials, without_doubts
from robust_eval.reader.markup import plain
from robust_eval.reader.sentences import sentences

WORDS = 60
"""Most words of a reply whose answer is all that it says. The answer of a longer one is its first and last sentence: an
accepted answer that stands between them alone is uncertain.
"""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_FIELD_NAMES = ("answer", "final_answer", "finalanswer", "final answer", "antwort", "réponse", "respuesta", "choice", "答案")
_ELEMENT = re.compile(r"<((?:final[_ ]?)?answer)>(.*?)(?:</\1>|\Z)", re.I | re.S)
_AFTER_HASHES = re.compile(r"^####[ \t]+(\S.*)$", re.M)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")

_QUALITY = r"(?:correct|right|final|short|best|true|proper|full|exact|expected|accepted|most likely|only|definitive|overall)"
_LABEL = re.compile(
    r"^[ \t]*(?:(?:so|thus|therefore|hence|in short|in summary)[,:]?\s+)?(?:(?:the|my|your)\s+)?(?:\w+\s+){0,2}?"
    r"(?:answer|solution|Antwort|Lösung|réponse|respuesta|solución|risposta)(?:\s+(?:final|correcta|correcte|finale))?"
    r"\s*(?:is\s*)?[:：=→][ \t]*(?P<answer>\S[^\n]*|\n\s*\S[^\n]*)"
    r"|^[ \t]*(?:最终|正确)?(?:答案|回答|答え)\s*[:：][ \t]*(?P<chinese>\S[^\n]*|\n\s*\S[^\n]*)",
    re.I | re.M,
)
_STATEMENT = re.compile(
    rf"(?<![^\W_])(?:(?:the|my)\s+(?:{_QUALITY}\s+(?:and\s+{_QUALITY}\s+)?)?(?:answer|solution)"
    r"(?:\s+(?:to|for|here|you|that|we|would|I|of|in|is\s+therefore)\b(?:[^.:!?\n]|(?<=[\"”])[?!]|\?(?=[\"”])){0,90}?)?\s*"
    r"\s(?:is|was|are|were|would\s+be|should\s+be|must\s+be|has\s+to\s+be|will\s+be)\b\s*[:：]?"
    r"|die\s+(?:\w+\s+)?(?:Antwort|Lösung)[^.:!?\n]{0,60}?\s(?:ist|lautet|wäre|war)\b\s*[:：]?"
    r"|la\s+(?:\w+\s+)?réponse[^.:!?\n]{0,60}?\s(?:est|serait|était)\b\s*[:：]?"
    r"|la\s+(?:respuesta|solución)[^.:!?\n]{0,60}?(?<!\sno)\s(?:es|sería|fue)\b\s*[:：]?"
    r"|la\s+risposta[^.:!?\n]{0,60}?(?<!\snon)\s(?:è|sarebbe)\s*[:：]?)"
    r"\s*(?P<answer>[^\s.,;:!?][^\n]*)"
    r"|(?:正确|最终)?答案(?:是|为|應為|应为|应该是)[:：]?\s*(?P<chinese>[^\s，。][^\n]*)"
    r"|答えは\s*(?P<japanese>[^\s、。][^\n]*)",
    re.I,
)
_NO_STATEMENT = re.compile(
    r"(?:quite|very|rather|fairly|pretty|so|too|not|n['’]t|no longer|based|derived|taken|from|found|given|provided|known|unknown"
    r"|helpful|useful|correct|right|wrong|incorrect|clear|unclear|obvious|easy|simple|straightforward|complicated|complex"
    r"|difficult|debated|disputed|subjective|ambiguous|as follows|below|above|because|that|hilfreich|korrekt|richtig|falsch"
    r"|einfach|nicht|utile|correcte|simple|pas|útil|correcta|sencilla|fácil|no)\b",
    re.I,
)
_SUPPOSED = re.compile(
    r"(?:\b(?:if|why|whether|would|suppose|think|thinks|believe|believes|doubt|confiden\w*|sure that|unless|ob|wenn|dass|warum"
    r"|si|pourquoi|que|this|such|wrong|hope|hoffe)\b[^.!?;\n]*|\bn['’]t\s+[^.!?;\n]*)\Z",
    re.I,
)
_TAIL = re.compile(
    r"\s*(?:[;；]|\s[–—-]\s|,\s+(?=[a-zäöüàéèñ])|，|\s(?:rather than|instead of|because|since|which|who|whose|as opposed to|unlike"
    r"|und nicht|et non|y no)\b)"
)
_PARENTHESIS = re.compile(r"\s+[(（].*")
_POLITE = "|".join(
    (
        r"sure(?: thing)?|certainly|of course|absolutely|(?:great|good) question|no problem|hello|hi(?: there)?",
        r"natürlich|gerne?|klar|selbstverständlich|bien sûr|avec plaisir|bonjour|claro|por supuesto|hola",
        r"当然|好的|你好",
    )
)
_OPENING = re.compile(rf"\A\s*(?:(?:{_POLITE})[!,.:！，。：]+\s*)+", re.I)
_OFFER = re.compile(
    r"\s*(?:as an (?:AI|language)|let me know|feel free|I hope|hope (?:this|that)|if you (?:have|need|want|would|'d|like)|please|is there anything"
    r"|would you like|do you (?:want|need)|could you|can I help|wenn du|wenn Sie|falls|ich hoffe|si tu|si vous|n['’]hésite|j['’]espère"
    r"|si (?:tienes|necesitas|quieres)|espero|希望|如果您?你?)",
    re.I,
)


class FreeText(NamedTuple):
    """The answer of a reply, one line, and the texts by which it is graded.

    ``graded`` is the answer without its asides, ``certain`` what of it is said without doubt, ``whole`` all that the
    reply says. An accepted answer that stands in one of them and not in another makes the reading uncertain.
    """

    answer: str
    rule: str
    graded: str
    certain: str
    whole: str


def read_free_text(reply: str) -> FreeText:
    """Return the answer of a reply without reasoning and template marks; all texts are empty where there is none.

    >>> read_free_text("Emma is a novel. So the answer is: J. Austen. She was born in 1775.")[:2]
    ('J. Austen. She was born in 1775.', 'stated answer')
    """
    whole = one_line(plain(reply))
    if found := [answer for answer in _marked(reply) if plain(answer)]:
        answer = one_line(plain(found[-1]))
        return FreeText(answer, "marked answer", answer, answer, whole)
    text = plain(reply)
    if (stated := _stated(text)) is not None:
        graded = one_line(without_denials(stated))
        tail = _TAIL.search(graded)
        head = graded[: tail.start()] if tail and tail.start() else graded
        first = _PARENTHESIS.sub("", "".join(sentences(head)[:1]))
        return FreeText(one_line(stated), "stated answer", head, one_line(without_doubts(first)), whole)
    text = _OPENING.sub("", text).strip() or text
    graded = without_denials(text)
    if len(_WORD.findall(text)) <= WORDS:
        return FreeText(one_line(text), "whole reply", one_line(graded), one_line(without_doubts(graded)), whole)
    said = [sentence for sentence in sentences(text) if any(map(str.isalnum, sentence))]
    kept = [sentence for sentence in said if not _OFFER.match(sentence)] or said
    ends = " ".join(dict.fromkeys((*kept[:1], *kept[-1:])))
    certain = one_line(without_doubts(without_denials(ends)))
    return FreeText(one_line(ends), "first and last sentence", one_line(graded), certain, whole)


def boxed(text: str) -> Iterator[tuple[int, int, str]]:
    r"""Yield the beginning, the end and the content of each ``\boxed{…}``; one that is cut off ends with the text."""
    for box in _BOX.finditer(text):
        depth, end = 1, box.end()
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield box.start(), end, text[box.end() : end - (not depth)]


def _marked(text: str) -> list[str]:
    """Return the answers in marks of their own, the most explicit last: behind "####", in an element, a box, a field."""
    return [
        *(match[1] for match in _AFTER_HASHES.finditer(text)),
        *(match[2] for match in _ELEMENT.finditer(text)),
        *(inside for _, _, inside in boxed(text)),
        *_fields(text),
    ]


def _fields(text: str) -> list[str]:
    """Return the field ``answer`` of the outermost JSON object that parses, as a text."""
    decoder = json.JSONDecoder(strict=False)
    for brace in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        fields = {str(name).lower(): each for name, each in value.items()}
        found = next((fields[name] for name in _FIELD_NAMES if name in fields), None)
        return [] if found is None else [_as_text(found)]
    return []


def _as_text(value: Any) -> str:
    """Return a value of JSON as a text: 3e8 is 300000000, true is true, a list its items."""
    if isinstance(value, list):
        return ", ".join(map(_as_text, value))
    if isinstance(value, bool | dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return str(value)


def _stated(text: str) -> str | None:
    """Return the last answer behind a label at the beginning of a line, else that of the last statement; None where
    there is neither.
    """
    if labelled := [answer for _, answer in _answers(_LABEL, text)]:
        return labelled[-1]
    stated = [
        answer
        for place, answer in _answers(_STATEMENT, text)
        if not (_NO_STATEMENT.match(answer) or _SUPPOSED.search(text[:place]))
    ]
    return stated[-1] if stated else None


def _answers(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    """Yield the place of each statement, which may begin in the answer of another, and what it says."""
    place = 0
    while (match := pattern.search(text, place)) is not None:
        group = next(name for name, value in match.groupdict().items() if value)
        answer = match[group].strip().strip('"“”')
        if any(map(str.isalnum, answer)):
            yield match.start(), answer
        place = match.start(group)


def one_line(text: str) -> str:
    """Return a text as one line."""
    return " ".join(text.split())
