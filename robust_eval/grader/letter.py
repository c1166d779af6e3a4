"""The letter that a reply to a multiple-choice question chooses.

Read by anchored patterns, never "the first capital letter found": the article *A* is no answer (METHODS §3).
"""

import re

from robust_eval.question import LETTERS

_WHOLE = re.compile(r"^[\s\"'(*\[]*([A-Ja-j])[\s\"').:,*\]]*$")
_START = re.compile(r"^[\s\"'(*\[]*([A-J])[).:\]]")
_ANSWER_IS = re.compile(
    r"(?i:\b(?:answer|choice|option)\s*(?:is|:))\s*[\"'(*\[]*"
    r"([A-J]\b(?!['’])|[a-j](?=[\"').:,*\]]*\s*$))"  # a small letter only at the end: "is a force" is an article
)


def chosen_letter(reply: str, choices: int) -> str | None:
    """The one letter that the reply chooses, in capitals; None where it chooses none, two, or one beyond the choices.

    >>> chosen_letter(" B) 4 m/s", 5), chosen_letter("The answer is C.", 5), chosen_letter("A force", 5)
    ('B', 'C', None)
    """
    line = reply.strip().splitlines()[0] if reply.strip() else ""
    whole = _WHOLE.match(line)
    found = {whole.group(1).upper()} if whole else set()
    if not found:
        start = _START.match(line)
        found = {match.upper() for match in _ANSWER_IS.findall(line)} | ({start.group(1)} if start else set())
    if len(found) != 1:
        return None
    letter = found.pop()
    return letter if LETTERS.index(letter) < choices else None
