"""Verdict of a judge on a reply: right or wrong, and the reason."""

import json
import re
from typing import NamedTuple

from robust_eval.reader.markup import plain, without_template
from robust_eval.reader.reasoning import without_reasoning

_RIGHT, _WRONG = "right|correct|true|yes|pass", "wrong|incorrect|false|no|fail"
_VERDICT = (
    r"(?P<negation>(?:(?:(?:is|was)\s+)?(?:not|never)|(?:is|was)n['’]t)\s+)?"
    r"(?:(?:really|actually|indeed|clearly|therefore|thus)\s+)?"
    rf"(?:(?P<right>{_RIGHT})|(?P<wrong>{_WRONG}))\b(?!\s*\?)"
)
_KEYWORD = "verdict|judge?ment|grade|decision|conclusion|final"
_SIGNS = r"[^\w.!?]{0,60}"
"""Signs and white space inside one sentence."""
_STRUCK = re.compile(r"~~[^~\n]+~~|(?:\[ ?\]|[☐□])\s*\w+|\[x\]", re.I)
"""A word that is struck out or whose box is not ticked, and the tick of another."""
_BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")


def _either(separator: str) -> str:
    """Return a pattern of both words of a verdict, in either order, with a separator between them."""
    quote = "[\"'“”‘’«»]?"
    right, wrong = (rf"\b(?:{words})\b{quote}" for words in (_RIGHT, _WRONG))
    between = rf"{separator}{quote}(?:\b(?:{_KEYWORD})\W{{1,3}})?"
    return rf"{quote}(?:{right}{between}{wrong}|{wrong}{between}{right})"


_OR = r"[/|]|→|[-=]>|\b(?:or|and|nor|vs)\b\.?"
_ECHO = re.compile(
    r"[\[({<]\s*" + _either(rf"\s*(?:,|{_OR})\s*") + r"\s*\??[\])}>]"
    r"|(?:\b(?:n?either|between)\s+)?" + _either(rf"\s*(?:{_OR})\s*") + r"\s*\??",
    re.I,
)
"""Both words of the instruction, which choose none: "(right/wrong)", "right or wrong?"."""
_LINE = re.compile(rf"[^\w?]*{_VERDICT}[^\w?]*", re.I)
_CONCLUDED = re.compile(
    rf"(?:^[^\w\n]*(?:(?:so|the|my)\s+)*(?:final\s+)?(?:answer|result){_SIGNS}(?:is\b{_SIGNS})?"
    rf"|(?:^|[,.;:]\s+)(?:and\s+)?(?:therefore|thus|hence){_SIGNS}|\b(?:therefore|thus|hence)\s*[,:]{_SIGNS})"
    rf"{_VERDICT}[^\w?]*\Z",
    re.I,
)
"""End of the last line: "Final answer: wrong", "…, therefore: wrong"."""
_LEADING = re.compile(rf"\W*{_VERDICT}\s*[.,:;!–—-](?!\s*(?:let|so|now|then|i|we|ok|okay|first|wait)\b)", re.I)
_STATED = re.compile(
    rf"(?:[\"'](?:{_KEYWORD})(?=[\"'])|(?<![^\n][\"'“‘«`])(?<!\bno )\b(?:{_KEYWORD})\b){_SIGNS}(?:is\b{_SIGNS})?"
    rf"(?:that\s+)?(?:the\s+(?:reply|answer|response)\s+is\s+)?{_VERDICT}",
    re.I,
)
_SENTENCE = re.compile(r"[^.!?\n]+")
_ASSERTED = re.compile(
    r"\b(?:reply|answer|response|candidate|it|this|that)(?:['’]s|\s+(?:is|was)|(?=\s+(?:is|was)n['’]t))\s+"
    + _VERDICT
    + r"(?=\s*(?:[,;:)]|\Z|because\b|since\b|as\b|for\b|and\b))",
    re.I,
)
_NOT_ASSERTED = re.compile(
    r"n['’]t\b|\b(?:not|cannot|no|never|if|whether|unless|would|could|might|may|seems?|doubt|hardly|suppose|assum\w+)\b"
    r"|\b(?:reference|accepted|expected|correct|right)\s*\Z",
    re.I,
)
"""Words before a verdict in its sentence that take its assertion away, or make another answer its subject."""
_LIMITED = re.compile(r"\b(?:but|except|only|partly|partially|however|if|unless)\b", re.I)


class ReadVerdict(NamedTuple):
    """Verdict in a judge's reply: ``right`` is None without one, or with both; ``why`` is the rest of its words."""

    right: bool | None
    why: str


def read_verdict(reply: str) -> ReadVerdict:
    r"""Return the verdict in a judge's reply, without its reasoning.

    Both words of the instruction together ("right/wrong") choose none and are left out. In this order: a last line of
    one word (unless the line before is the other), a field ``verdict`` of JSON, the last "verdict: …", a last line that
    is "answer: …" or ends in "therefore: …", a first line of one word, and the first word and sentences such as "the
    reply is correct" if all of them agree.

    >>> read_verdict("The reply names another city.\nVerdict (right/wrong): wrong")
    ReadVerdict(right=False, why='The reply names another city.')
    >>> read_verdict("Right or wrong? I cannot say.").right is None
    True
    """
    answer = without_reasoning(reply)
    if answer is None:
        return ReadVerdict(None, "")
    text = _BOXED.sub(r"\1", plain(_STRUCK.sub("", without_template(answer))))
    choosing = _ECHO.sub(lambda echo: " " * len(echo.group()), text)
    lines = [line for line in choosing.splitlines() if line.strip()]
    if not lines:
        return ReadVerdict(None, text)
    if last := _LINE.fullmatch(lines[-1]):
        before = _LINE.fullmatch(lines[-2]) if len(lines) > 1 else None
        if before is not None and _is_right(before) != _is_right(last):  # both words of the instruction, a line each
            return ReadVerdict(None, text)
        return ReadVerdict(_is_right(last), "\n".join(lines[:-1]).strip())
    if (field := _in_json(text)) is not None:
        return field
    if stated := list(_STATED.finditer(choosing)):
        return ReadVerdict(_is_right(stated[-1]), text[: stated[-1].start()].strip())
    if concluded := _CONCLUDED.search(lines[-1]):
        return ReadVerdict(_is_right(concluded), text[: text.rfind(lines[-1]) + concluded.start()].strip())
    if first := _LINE.fullmatch(lines[0]):
        return ReadVerdict(_is_right(first), "\n".join(lines[1:]).strip())
    return _in_sentences(choosing)


def _in_sentences(text: str) -> ReadVerdict:
    """Return the judge's verdict in the first word and in sentences that assert one, if all agree."""
    leading = _LEADING.match(text)
    verdicts = {_is_right(leading)} if leading else set()
    for sentence in _SENTENCE.finditer(text):
        for verdict in _ASSERTED.finditer(sentence.group()):
            before, after = sentence.group()[: verdict.start()], sentence.group()[verdict.end() :]
            if not (_NOT_ASSERTED.search(before) or _LIMITED.search(after) or text.startswith("?", sentence.end())):
                verdicts.add(_is_right(verdict))
    if len(verdicts) != 1:
        return ReadVerdict(None, text)
    return ReadVerdict(verdicts.pop(), (text[leading.end() :] if leading else text).strip())


def _is_right(verdict: re.Match[str]) -> bool:
    return (verdict["right"] is not None) != bool(verdict["negation"])


def _in_json(text: str) -> ReadVerdict | None:
    """Return the judge's verdict in a JSON object, from its first brace to its last; None where there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        fields = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    fields = {name.lower(): value for name, value in fields.items()}
    value = next((fields[name] for name in ("verdict", "correct", "right", "is_correct") if name in fields), None)
    why = str(fields.get("reason", fields.get("why", "")))
    if isinstance(value, bool):
        return ReadVerdict(value, why)
    word = _LINE.fullmatch(_ECHO.sub("", value)) if isinstance(value, str) else None
    return None if word is None else ReadVerdict(_is_right(word), why)
