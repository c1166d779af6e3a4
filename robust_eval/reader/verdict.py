"""What a judge said of a reply: right or wrong, and why."""

import json
import re
from typing import NamedTuple

from robust_eval.reader.markup import plain, without_template
from robust_eval.reader.reasoning import without_reasoning

_RIGHT, _WRONG = r"right|correct|true|yes|pass", r"wrong|incorrect|false|no|fail|not\s+(?:right|correct|true)"
_WORD = re.compile(rf"(?:(?P<wrong>{_WRONG})|(?P<right>{_RIGHT}))\b", re.I)
_STATED = re.compile(
    rf"\b(?:final\s+)?(?:verdict|judge?ment|grade)\W{{0,3}}\s*(?:is\b|:|=|-|–|—)?\W{{0,4}}(?:the\s+reply\s+is\s+)?"
    rf"(?:(?P<wrong>{_WRONG})|(?P<right>{_RIGHT}))\b",
    re.I,
)
_SENTENCE = re.compile(
    r"\b(?:reply|answer|response|it)\s+is\s+(?:therefore\s+|thus\s+|clearly\s+|indeed\s+)?"
    r"(?:(?P<wrong>wrong|incorrect|false|not\s+(?:right|correct|true))|(?P<right>right|correct|true))\b",
    re.I,
)


class ReadVerdict(NamedTuple):
    """``right`` is None where a judge did not say it, or said both; ``why`` is the rest of what was said."""

    right: bool | None
    why: str


def read_verdict(reply: str) -> ReadVerdict:
    r"""Return what a judge's reply says, without its reasoning.

    In this order: the last "verdict: …" counts, or a field ``verdict`` of JSON; a reply that is one word, or of which
    the first or last line is one; sentences such as "the reply is correct", if all agree.

    >>> read_verdict("The reply names another city.\nVerdict: wrong")
    ReadVerdict(right=False, why='The reply names another city.')
    >>> read_verdict("I cannot say.").right is None
    True
    """
    said = without_reasoning(reply)
    if said is None:
        return ReadVerdict(None, "")
    text = plain(without_template(said)).strip()
    if (found := _in_json(text)) is not None:
        return found
    if stated := list(_STATED.finditer(text)):
        last = stated[-1]
        return ReadVerdict(last["right"] is not None, text[: last.start()].strip())
    lines = [line for line in text.splitlines() if line.strip()]
    for line in (lines[-1], lines[0]) if lines else ():
        if (word := _WORD.fullmatch(line.strip(" .!*\"'"))) is not None:
            return ReadVerdict(word["right"] is not None, "\n".join(each for each in lines if each != line))
    if lines and (word := _WORD.match(lines[0])) is not None and re.match(r"\s*[.,:;!–—-]", lines[0][word.end() :]):
        return ReadVerdict(word["right"] is not None, text[word.end() :].strip(" .,:;!–—-"))
    verdicts = {found["right"] is not None for found in _SENTENCE.finditer(text)}
    return ReadVerdict(verdicts.pop() if len(verdicts) == 1 else None, text)


def _in_json(text: str) -> ReadVerdict | None:
    """Return the verdict of a JSON object, from its first brace to its last; None where there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    value = next((found[name] for name in ("verdict", "correct", "right") if name in found), None)
    why = str(found.get("reason", found.get("why", "")))
    if isinstance(value, bool):
        return ReadVerdict(value, why)
    word = _WORD.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if word is None else ReadVerdict(word["right"] is not None, why)
