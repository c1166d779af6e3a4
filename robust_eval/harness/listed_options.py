"""Choices that stand in the text of a question, as lists of letters or of dashes."""

import re
from itertools import pairwise

_MARKS = (
    re.compile(r"(?:(?<=\s)|^)\(([A-Z])\)[ \t]*", re.MULTILINE),
    re.compile(r"(?:(?<=\s)|^)([A-Z])\)[ \t]+", re.MULTILINE),
    re.compile(r"^[ \t]*([A-Z])[.:][ \t]+", re.MULTILINE),
)
"""Marks of a choice: ``(A)`` and ``A)`` anywhere, ``A.`` and ``A:`` where a line begins."""
_DASHES = re.compile(
    r"^[ \t]*(?:answer )?(?:options|choices):[ \t]*\n((?:[ \t]*[-*•][ \t]+\S[^\n]*(?:\n|\Z)){2,})", re.I | re.MULTILINE
)
_DASH = re.compile(r"^[ \t]*[-*•][ \t]+([^\n]*\S)", re.MULTILINE)
_LETTER = re.compile(r"[(\[]?([A-Z])[)\]]?[.:]?")
LONGEST = 100_000
"""Characters of a text in which choices are looked for, from its end."""


def lettered_options(text: str) -> tuple[str, ...]:
    """Return the last list of choices that are marked with letters from A; empty where there is none."""
    for mark in _MARKS:
        run: list[re.Match[str]] = []
        last: list[re.Match[str]] = []
        for match in mark.finditer(text[-LONGEST:]):
            if match[1] == chr(ord("A") + len(run)):
                run.append(match)
            elif match[1] == "A":
                run = [match]
            last = list(run) if len(run) > 1 else last
        if last:
            return _between(last)
    return ()


def _between(marks: list[re.Match[str]]) -> tuple[str, ...]:
    """Return the texts after each of the marks, the last one up to the end of its line; empty where one is blank."""
    text = marks[0].string
    inner = [text[one.end() : following.start()] for one, following in pairwise(marks)]
    options = [" ".join(each.split()) for each in (*inner, text[marks[-1].end() :].partition("\n")[0])]
    return tuple(options) if all(options) else ()


def dashed_options(text: str) -> tuple[str, ...]:
    """Return the last list of choices under a line such as ``Options:`` with a dash each; empty where there is none."""
    lists = _DASHES.findall(text[-LONGEST:])
    return tuple(each.strip() for each in _DASH.findall(lists[-1])) if lists else ()


def letter_in(target: str) -> str | None:
    """Return the letter that a target is, in brackets or not; None where it is no single letter.

    >>> letter_in("(B)"), letter_in("B."), letter_in("Bern")
    ('B', 'B', None)
    """
    match = _LETTER.fullmatch(target.strip())
    return match[1] if match else None
