"""The letter that a reply to a multiple-choice question chooses.

Read by anchored patterns, never "the first capital letter found": the article *A* is no answer (docs/methods.md, §3).
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from robust_eval.model.token_texts import Ids, TokenTexts
from robust_eval.question import LETTERS
from robust_eval.reader.letter_lists import listed_letters, only_letters

_EMPHASIS = re.compile(r"[*_`\"“”„«»‘]|(?<!\w)['’]|['’](?!\w)")
_WHOLE = re.compile(r"^[(\[\s]*([A-Ma-m])[).:,\]\s]*$")
_START = re.compile(r"[(\[\s]*([A-M])\s*[).:\]]")
_AFTER_A_LETTER = """and as at because but by due for from given if in is it not on or since so that the this to when
    where which with"""
_ARTICLE = rf"A\s+(?!(?i:{'|'.join(_AFTER_A_LETTER.split())})\b)[^\W\d_]"  # "is A force", but "is A because"
_SYMBOL = r"[A-M]\s*(?:[=<>≈∝^²³]|[-‐][^\W\d_])"  # "is E = mc²", "is B-field"
_ANSWER_IS = re.compile(
    rf"(?i:\b(?:answer|choice|option)\s*(?:is\s*:?|:))\s*[(\[]*(?!{_ARTICLE}|{_SYMBOL})"
    r"([A-M]\b(?!['’])|[a-m](?=[).:,\]]*\s*$))"  # a small letter only at the end: "is a force" is an article
)
_AND_ANOTHER = re.compile(
    r"^[).:\]]*\s*(?:,|/|&|\+|or\b|and\b)\s*[(\[]*([A-M])"
    r"(?=[).,:;/&+\]]|\s*$|\s+(?:and|or|are|as|because|for|since)\b)"
)
_ANOTHER_QUESTION = re.compile(r"(?i:^\s*(?:question|q)\b)|\?")


def chosen_letter(reply: str, choices: int, strict: bool = False) -> str | None:
    """Return the one letter that the reply chooses, in capitals; None where it chooses none, several, or one beyond the
    choices. A reply that lists the choices chooses several.

    ``strict``: the reply must be the letter and nothing else.

    >>> chosen_letter(" B) 4 m/s", 5), chosen_letter("The answer is C.", 5), chosen_letter("A force", 5)
    ('B', 'C', None)
    >>> chosen_letter("A. 3 m/s, B. 4 m/s", 5), chosen_letter("The answer is A force", 5)
    (None, None)
    """
    if strict:
        letter = reply.strip().upper()
        return letter if letter in LETTERS[:choices] and len(letter) == 1 else None
    found = _given(reply)
    if len(found) != 1:
        return None
    letter = found.pop()
    return letter if LETTERS.index(letter) < choices else None


def _given(reply: str) -> set[str]:
    """Return the letters that a reply gives: in its first line, in those below that go on with a list of letters, and
    where a later one says what the answer is. None, where its first line gives none; what stands below a question of
    its own is an answer to that.
    """
    lines = [_EMPHASIS.sub("", line).strip() for line in reply.strip().splitlines() if line.strip()]
    found = _given_in(lines[0]) if lines else set()
    listed = bool(found)
    for line in lines[1:] if found else ():
        if _ANOTHER_QUESTION.search(line):
            break
        if re.fullmatch(r"(?i:and|or)", line):
            continue
        given = _given_in(line)
        listed = listed and bool(given)
        found |= given if listed else {match.group(1).upper() for match in _ANSWER_IS.finditer(line)}
    return found


def _given_in(line: str) -> set[str]:
    """Return the letters that a line gives where it is one, begins with one, or says what the answer is."""
    if whole := _WHOLE.match(line):
        return {whole.group(1).upper()}
    if found := only_letters(line):
        return found
    matches = [match for match in (_START.match(line), *_ANSWER_IS.finditer(line)) if match]
    found = {match.group(1).upper() for match in matches}
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        end = following.start() if following else len(line)
        if other := _AND_ANOTHER.match(line[match.end(1) : end]):
            found.add(other.group(1))
        found |= listed_letters(line[max(0, match.start(1) - 1) : end])
    return found


@dataclass(frozen=True)
class LetterChoices:
    """The choices of one question as letters: which tokens, as whole replies, choose which."""

    count: int
    correct: int | None
    strict: bool = False

    @property
    def identity(self) -> str:
        """See Choices."""
        return f"letters {self.count} {self.correct}{' strict' if self.strict else ''}"

    def tokens(self, texts: TokenTexts) -> list[Ids]:
        """Return for each choice the ids of the tokens that choose it: "B", " B", "B." and the like."""
        return _tokens_by_letter(texts, self.count, self.strict)


@lru_cache(maxsize=64)
def _tokens_by_letter(texts: TokenTexts, choices: int, strict: bool) -> list[Ids]:
    letters = [chosen_letter(raw.decode("utf-8", "replace"), choices, strict) for raw in texts.raw]
    return [np.flatnonzero([chosen == letter for chosen in letters]) for letter in LETTERS[:choices]]
