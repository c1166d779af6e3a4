"""Grader by edit distance: a reply that is almost an accepted answer is right.

The rule of SciQ without choices in Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question
Perturbations and Answers" (docs/methods.md, §2), for misspellings only: the word for the opposite is often spelt almost
alike (docs/replies.md).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from rapidfuzz.distance import Levenshtein as Distance
from rapidfuzz.distance import Postfix, Prefix

from robust_eval.grader.base import FreeReply, Grader
from robust_eval.normalization import numbers_differ
from robust_eval.runtime.files import module_data

_ROUNDING = 1e-9
_AFFIXES = module_data(__file__)
_OPPOSED, _SAME_SOUND = _AFFIXES["opposed"], _AFFIXES["same_sound"]
_DENIALS = frozenset({"not", "no", "non", "never", "un", "anti"})
_ROMAN = re.compile(r"(?=.)(?:xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_DIGITS = {"i": 1, "v": 5, "x": 10, "l": 50}
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")


@dataclass
class Levenshtein(Grader):
    """Grader by Levenshtein distance: free text is right if it is an accepted answer, perhaps misspelt.

    The similarity of two normalised forms is 1 − distance / length of the longer, where the distance is the least
    number of letters to insert, delete or replace. The reply is compared as a whole, so that this is approximate
    equality and not containment: "it is mitosis" is no "mitosis". Forms that hold different numbers are never alike,
    however long they are: 19451 is no misspelling of 19452. Nor are forms with different words: another Roman numeral,
    letter or sign, another first sound, or an affix that makes an opposite.
    """

    similarity: float = 0.8
    """Minimum similarity of reply and accepted answer, above 0 and at most 1 (equality)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.similarity <= 1:
            raise ValueError(f"similarity must be above 0 and at most 1, not {self.similarity}")

    def right(self, replies: Sequence[FreeReply]) -> list[bool]:
        """Return True for each reply that is almost an accepted answer by Levenshtein distance."""
        return [any(self._is_similar(reply.form, alias) for alias in reply.accepted) for reply in replies]

    def _is_similar(self, reply: str, alias: str) -> bool:
        if Distance.normalized_similarity(reply, alias) < self.similarity - _ROUNDING:
            return False
        return reply == alias or (not numbers_differ(reply, alias) and _is_misspelt(reply, alias))


def _is_misspelt(one: str, other: str) -> bool:
    """Return True if two similar forms differ only in the spelling of their words."""
    words, counterparts = one.split(), other.split()
    if "".join(words) == "".join(counterparts):
        return True
    return _symbol(words[-1]) == _symbol(counterparts[-1]) and all(
        _is_same_word(*pair) for pair in _pairs(words, counterparts) if pair[0] != pair[1]
    )


def _pairs(words: Sequence[str], counterparts: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Return the pairs of words to compare; if their numbers differ, all words between the equal ends, joined."""
    if len(words) == len(counterparts):
        return zip(words, counterparts, strict=True)
    start = Prefix.similarity(words, counterparts)
    end = Postfix.similarity(words[start:], counterparts[start:])
    return [("".join(words[start : len(words) - end]), "".join(counterparts[start : len(counterparts) - end]))]


def _is_same_word(one: str, other: str) -> bool:
    """Return True if two different words may be one misspelt word; one may be empty, an omitted word."""
    if not (one and other):
        return one + other not in _DENIALS
    symbols = _symbol(one), _symbol(other)
    if symbols != (None, None):
        return symbols[0] == symbols[1]
    if _is_exchanged(one, other, _OPPOSED):
        return False
    return one[0] == other[0] or not (one + other).isascii() or _is_exchanged(one, other, _SAME_SOUND)


def _symbol(word: str) -> str | None:
    """Return the value of a word with at most one letter, an ordinal or a Roman numeral up to 89; None for others.

    >>> _symbol("xiv"), _symbol("14th"), _symbol("b"), _symbol("c++"), _symbol("war")
    ('14', '14', 'b', 'c++', None)
    """
    if _ROMAN.fullmatch(word):
        digits = [_ROMAN_DIGITS[letter] for letter in word]
        return str(sum(-digit if digit < max(digits[place:]) else digit for place, digit in enumerate(digits)))
    if ordinal := _ORDINAL.fullmatch(word):
        return ordinal[1]
    return word if sum(map(str.isalpha, word)) <= 1 else None


def _is_exchanged(one: str, other: str, table: Iterable[Sequence[str]]) -> bool:
    """Return True if two words differ in affixes of one row: the least edit of the words must exchange these.

    >>> _is_exchanged("hypotension", "hypertention", _OPPOSED), _is_exchanged("innocent", "inocent", _OPPOSED)
    (True, False)
    """
    distance = Distance.distance(one, other)
    for affix, counterpart in (pair for row in table for pair in permutations(row, 2)):
        rest, other_rest = _without(one, affix), _without(other, counterpart)
        if rest is not None and other_rest is not None:
            exchange = Distance.distance(affix.strip("-"), counterpart.strip("-"))
            if distance == exchange + Distance.distance(rest, other_rest):
                return True
    return False


def _without(word: str, affix: str) -> str | None:
    """Return a word without an affix ("un-", "-ite"); None if it lacks it."""
    letters = affix.strip("-")
    if affix.startswith("-"):
        return word[: -len(letters)] if word.endswith(letters) else None
    return word[len(letters) :] if word.startswith(letters) else None
