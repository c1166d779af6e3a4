"""Answer of a free-text reply: an explicit answer, or else what the reply says as a whole (docs/methods.md, §6)."""

import ast
import json
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from robust_eval.reader.base import WHOLE_REPLY
from robust_eval.reader.clauses import is_subject, last_correction, sentences, without_denials, without_doubts
from robust_eval.reader.markup import plain

MARKED, EXPLICIT = "marked answer", "explicit answer"
"""Rules for a reply that marks its answer or states it explicitly."""
WORDS = 60
"""Most words of a reply whose answer is all that it says. The answer of a longer one is its first and last sentence: an
accepted answer that stands between them alone is uncertain.
"""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_MAX_OBJECTS = 100
"""Maximum number of places at which a JSON object is tried."""
_PYTHON_OBJECT = re.compile(r"\{\s*'[\w ]{1,30}'\s*:[^{}\\]{0,4000}\}")
_FIELD_NAMES = (
    "answer",
    "final_answer",
    "finalanswer",
    "final answer",
    "antwort",
    "réponse",
    "respuesta",
    "choice",
    "答案",
)
_ELEMENT = re.compile(r"<((?:final[_ ]?)?answer)>(.*?)(?:</\1>|\Z)", re.I | re.S)
_AFTER_HASHES = re.compile(r"^####[ \t]+(\S.*)$", re.M)
_MAX_BOXES = 32
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")

_QUALITY = (
    r"(?:correct|right|final|short|best|true|proper|full|exact|expected|accepted|most likely|only|definitive|overall)"
)
_NOUN = "answer|solution|Antwort|Lösung|réponse|respuesta|solución|risposta"
_LABEL = re.compile(
    r"^[ \t]*(?:(?:so|thus|therefore|hence|in short|in summary)[,:]?\s+)?(?:(?:the|my|your)\s+)?(?:\w+\s+){0,2}?"
    rf"(?:{_NOUN})"
    r"(?:\s+(?:final|correcta|correcte|finale))?"
    r"\s*(?:is\s*)?[:：=→][ \t]*(?P<answer>\S[^\n]*|\n\s*\S[^\n]*)"
    r"|^[ \t]*(?:最终|正确)?(?:答案|回答|答え)\s*[:：][ \t]*(?P<chinese>\S[^\n]*|\n\s*\S[^\n]*)",
    re.I | re.M,
)
_HEADING = re.compile(
    rf"^[ \t]*(?:(?:the|my|your|die|la)[ \t]+)?(?:{_QUALITY}[ \t]+)?"
    rf"(?:{_NOUN}|response|答案|回答|答え)[ \t]*\n"
    r"(?:[ \t]*(?:=|-){3,}[ \t]*\n)?\s*(?=[^\n]*[^\W_])",
    re.I | re.M,
)
_GAP = r"(?:(?!\b(?:no|nicht|pas|non)\b)[^.:!?\n]){0,60}?"
_STATEMENT = re.compile(
    rf"(?<![^\W_])(?:(?:the|my)\s+(?:{_QUALITY}\s+(?:and\s+{_QUALITY}\s+)?)?(?:answer|solution)"
    r"(?:\s+(?:to|for|here|you|that|we|would|I|of|in|is\s+therefore)\b(?:[^.:!?\n]|(?<=[\"”])[?!]|\?(?=[\"”])){0,90}?)?\s*"
    r"\s(?:is|was|are|were|would\s+be|should\s+be|must\s+be|has\s+to\s+be|will\s+be)\b\s*[:：]?"
    rf"|die\s+(?:\w+\s+)?(?:Antwort|Lösung){_GAP}\s(?:ist|lautet|wäre|war)\b\s*[:：]?"
    rf"|la\s+(?:\w+\s+)?réponse{_GAP}\s(?:est|serait|était)\b\s*[:：]?"
    rf"|la\s+(?:respuesta|solución){_GAP}\s(?:es|sería|fue)\b\s*[:：]?"
    rf"|la\s+risposta{_GAP}\s(?:è|sarebbe)\s*[:：]?)"
    r"\s*(?P<answer>[^\s.,;:!?][^\n]*)"
    r"|(?:正确|最终)?答案(?:是|为|應為|应为|应该是)[:：]?\s*(?P<chinese>[^\s，。][^\n]*)"
    r"|答えは\s*(?P<japanese>[^\s、。][^\n]*)",
    re.I,
)
_NO_STATEMENT = re.compile(
    r"(?:quite|very|rather|fairly|pretty|so|too|not|n['’]t|no longer|based|derived|taken|from|found|given"
    r"|provided|known|unknown"
    r"|helpful|useful|correct|right|wrong|incorrect|clear|unclear|obvious|easy|simple|straightforward|complicated|complex"
    r"|difficult|debated|disputed|subjective|ambiguous|as follows|below|above|because|that|hilfreich|korrekt"
    r"|richtig|falsch"
    r"|einfach|nicht|utile|correcte|simple|pas|útil|correcta|sencilla|fácil|no)\b",
    re.I,
)
_MAX_END = 4_000
"""Maximum number of characters at each end of a reply that are read sentence by sentence."""
_BLANKS, _BLANK_LINES = re.compile(r"[^\S\n]+"), re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_LEAD = 200
"""Characters before a statement in which a supposition is searched."""
_SUPPOSED = re.compile(
    r"(?:\b(?:if|why|whether|would|suppose|think|thinks|believe|believes|doubt|confiden\w*|sure that|unless|ob"
    r"|wenn|dass|warum"
    r"|si|pourquoi|que|this|such|wrong|hope|hoffe)\b[^.!?;\n]*|\bn['’]t\s+[^.!?;\n]*)\Z",
    re.I,
)
_TAIL = re.compile(
    r"\s*(?:[;；]|\s[–—-]\s|,\s+(?=[a-zäöüàéèñ])|，|\s(?:rather than|instead of|because|since|which|who|whose"
    r"|as opposed to|unlike"
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
    r"\s*(?:as an (?:AI|language)|let me know|feel free|I hope|hope (?:this|that)|if you (?:have|need|want"
    r"|would|'d|like)|please|is there anything"
    r"|would you like|do you (?:want|need)|could you|can I help|wenn du|wenn Sie|falls|ich hoffe|si tu|si vous"
    r"|n['’]hésite|j['’]espère"
    r"|si (?:tienes|necesitas|quieres)|espero|希望|如果您?你?)",
    re.I,
)


class FreeText(NamedTuple):
    """Free-text answer of a reply, one line, and the texts by which it is graded.

    ``graded`` is the explicit answer, or else the whole reply, without asides; ``certain`` is the answer without asides
    and doubtful sentences, and without what the reply takes back ("Rome... no, Paris"); ``whole`` is the plain text of
    the reply. An accepted answer that stands in only one of ``certain`` and ``whole`` makes the verdict uncertain.
    """

    answer: str
    rule: str
    graded: str
    certain: str
    whole: str


def read_free_text(reply: str) -> FreeText:
    """Return the free-text answer of a reply without reasoning and template marks; all texts are empty without one.

    >>> read_free_text("Emma is a novel. So the answer is: J. Austen. She was born in 1775.")[:2]
    ('J. Austen', 'explicit answer')
    """
    whole = one_line(plain(reply))
    reply = bounded(reply)
    if answers := [answer for answer in marked_answers(reply) if plain(answer)]:
        answer = one_line(plain(answers[-1]))
        return FreeText(answer, MARKED, answer, answer, whole)
    text = plain(reply)
    if (stated := explicit_answer(text)) is not None:
        graded = one_line(without_denials(stated))
        denies = graded != one_line(stated)
        tail = _TAIL.search(graded)
        head = graded[: tail.start()] if tail and tail.start() else graded
        if denies and is_subject(head):
            head = graded
        first = "".join(sentences(head)[:1])
        corrected = last_correction(text, text.rfind(stated))
        certain = "" if corrected else one_line(without_doubts(_PARENTHESIS.sub("", first)))
        unsaid = head == graded and (first not in sentences(stated) or is_subject(stated.split()[0]))
        if denies and (unsaid or not any(map(str.isalnum, first))):
            first = sentences(stated)[0]  # "I don't know" states nothing, but "I" would be another answer
        return FreeText(one_line(first).removesuffix("."), EXPLICIT, head, certain, whole)
    if headings := deque(_HEADING.finditer(text), maxlen=1):
        text = text[headings[0].end() :]
    text = _OPENING.sub("", text).strip() or text
    spoken, rule = text, WHOLE_REPLY
    if len(_WORD.findall(text)) > WORDS:
        with_words = [sentence for sentence in sentences(text) if any(map(str.isalnum, sentence))]
        content = [sentence for sentence in with_words if not _OFFER.match(sentence)] or with_words
        spoken, rule = " ".join(dict.fromkeys((*content[:1], *content[-1:]))), "first and last sentence"
    certain = one_line(without_doubts(without_denials(spoken[last_correction(spoken) :])))
    return FreeText(one_line(spoken), rule, one_line(without_denials(text)), certain, whole)


def bounded(text: str) -> str:
    """Return a reply's text without runs of blanks, and without its middle if too long to be read by sentences."""
    text = _BLANKS.sub(" ", _BLANK_LINES.sub("\n\n", text))
    if len(text) <= 2 * _MAX_END:
        return text
    return f"{text[:_MAX_END]}\n{text[-_MAX_END:]}"


def boxed(text: str) -> Iterator[str]:
    r"""Yield the content of each ``\boxed{…}`` in a reply; one that is cut off ends with the text."""
    for box in deque(_BOX.finditer(text), maxlen=_MAX_BOXES):
        depth, end = 1, box.end()
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield text[box.end() : end - (not depth)]


def marked_answers(text: str) -> list[str]:
    """Return free-text answers in marks of their own, the most explicit last: "####", an element, a box, a field."""
    return [
        *(match[1] for match in _AFTER_HASHES.finditer(text)),
        *(match[2] for match in _ELEMENT.finditer(text)),
        *boxed(text),
        *_fields(text),
    ]


def _fields(text: str) -> list[str]:
    """Return the field ``answer`` of each outermost JSON object of a reply that has one, as text."""
    decoder = json.JSONDecoder(strict=False)
    values, end = [], 0
    for brace in islice(re.finditer(r"\{", text), _MAX_OBJECTS):
        if brace.start() < end:
            continue
        try:
            value, end = _object(decoder, text, brace.start())
            fields = {str(name).lower(): each for name, each in value.items()}
            values += [_as_text(fields[name]) for name in _FIELD_NAMES if fields.get(name) is not None][:1]
        except (ValueError, RecursionError):
            continue
    return values


def _object(decoder: json.JSONDecoder, text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the JSON object at a place of a text, or a flat one in Python's quotes, and its end; else ValueError."""
    python = _PYTHON_OBJECT.match(text, start)
    try:
        value, end = (ast.literal_eval(python.group()), python.end()) if python else decoder.raw_decode(text, start)
    except (SyntaxError, TypeError, MemoryError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value, end


def _as_text(value: Any) -> str:
    """Return an answer in JSON as free text: 3e8 is 300000000, true is true, a list its items."""
    if isinstance(value, list):
        return ", ".join(map(_as_text, value))
    if isinstance(value, bool | dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return str(value)


def explicit_answer(text: str) -> str | None:
    """Return a reply's explicit answer: the last one behind a label at the beginning of a line, else that of the last
    statement; None where there is neither.
    """
    if labelled := deque(_answers(_LABEL, text), maxlen=1):
        return labelled[0][1]
    stated = None
    for place, answer in _answers(_STATEMENT, text):
        if not (_NO_STATEMENT.match(answer) or _SUPPOSED.search(text[max(0, place - _LEAD) : place])):
            stated = answer
    return stated


def _answers(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    """Yield the place of each label or statement, which may begin in the answer of another, and its answer."""
    place = 0
    while (match := pattern.search(text, place)) is not None:
        group = next(name for name, value in match.groupdict().items() if value)
        answer = match[group].strip().strip('"“”')
        if any(map(str.isalnum, answer)):
            yield match.start(), answer
        place = match.start(group)


def one_line(text: str) -> str:
    """Return a free-text answer as one line."""
    return " ".join(text.split())
