"""Filter of replies by their letters and digits: a reply without those of any accepted answer cannot be right.

It is much faster than the comparison of normalised forms, and most canonical prefixes, which are short, fail it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from robust_eval.normalization import MONTH_NAMES, MONTHS, SIGNS, unified
from robust_eval.numerals import LARGE_NUMBERS, NUMBERS, ORDINALS, ROMAN

WORDS_OF_NUMBERS = (*NUMBERS, *LARGE_NUMBERS, *ORDINALS, *ROMAN)
NUMBER_OR_MONTH = "|".join((*WORDS_OF_NUMBERS, *MONTH_NAMES))
"""Words of numbers and dates, as a regular expression."""
_DELICATE = re.compile(rf"\d|\b(?:{NUMBER_OR_MONTH})\b|(?<!\S)[^\W\d_](?!\S)|[^\w\s]")
"""Words that later text may change: a number, a single letter, a sign."""
_ALPHANUMERIC = re.compile(r"[^\W_]+")
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
_NO_DIGITS = re.compile(r"\D+")
_SEPARATED_DIGITS = re.compile(r"\d[^\d\n]+\d")
_NEW_LETTERS = (*MONTHS, *(sign for sign, words in SIGNS.items() if not all({*sign} <= {*word} for word in words)))
"""Names that normalisation writes in place of words with other letters."""
_SPOKEN = {sign: (*words, *(["cent"] if sign == "%" else [])) for sign, words in SIGNS.items()}
_FEW = 16
"""Maximum number of texts that are tested one by one; one search in all of them is faster for more."""
_INTEGER = re.compile(r"(?:-|[a-z]*)(\d{1,28})[a-z]*")


class LetterFilter:
    """Filter of replies that may hold one of the accepted ``forms``, which are ASCII, or one of their ``compounds``."""

    def __init__(self, forms: Sequence[str], compounds: Iterable[str]) -> None:
        needed = [*map(_Needed.of_form, forms)]
        self.last_words = frozenset(word for parts in needed for word in parts.last_words)
        """All ways to write the last words of the answers."""
        self._needed = _without_implied((*needed, *map(_Needed.of_compound, compounds)))

    def passes(self, reply: str) -> bool:
        """Return True if a unified reply may be right."""
        return self._holds(letters_of(reply))

    def passing(self, start: str, by_letters: Mapping[str, Sequence[int]]) -> list[int]:
        """Return the tokens that may make a reply right that begins with the unified text ``start``.

        ``by_letters`` has the tokens by the :func:`letters_of` of their texts.
        """
        begun = letters_of(start)
        if self._holds(begun):
            return [*chain.from_iterable(by_letters.values())]
        if begun.endswith("^"):
            begun = f"^{begun[:-1]}"  # letters on both sides of the end of ``start`` are adjacent
        lines: Iterable[str] = [begun + end for end in by_letters]
        if len(by_letters) > _FEW:
            text = "\n".join(("", *lines, ""))
            lines = {line for needed in self._needed for line in needed.candidates(text, begun)}
        return [token for line in lines if self._holds(line) for token in by_letters[line.removeprefix(begun)]]

    def _holds(self, letters: str) -> bool:
        """Return True if the letters of a reply may have an answer's words."""
        if "'" in letters:  # dropping a possessive may join initials: "X's Y Z" is XYZ
            return True
        for needed in self._needed:
            if all(map(letters.__contains__, needed.words)) and needed.may_end_in(letters):
                return True
        return False


class _Needed(NamedTuple):
    """Parts of every reply that holds one accepted answer, among its letters and digits.

    A reply needs all of ``words``. Unless the answer's last word is among them, it also needs one of ``ends``, or one
    of ``digits`` within its digits. ``last_words`` are all ways to write the last word.
    """

    words: tuple[str, ...]
    last_words: frozenset[str]
    ends: frozenset[str] = frozenset()
    digits: frozenset[str] = frozenset()

    @classmethod
    def of_form(cls, form: str) -> "_Needed":
        """Return the parts that replies with a normalised form need."""
        words = form.split()
        plain = [word for word in words if len(word) > 2 and word.isascii() and not is_delicate(word)]
        last = words[-1]
        if last in plain:
            return cls(tuple(plain), frozenset({last}))
        last_words = {last, *_SPOKEN.get(last, ())}
        last_words.update(name for name, month in MONTH_NAMES.items() if month == last and name not in MONTHS)
        last_words.update(word for word, value in (*ROMAN.items(), ("i", 1)) if str(value) == last)
        # the longest run of letters and digits of a last word, or a number in words
        ends = {max(_ALPHANUMERIC.findall(unified(word)), key=len, default="") for word in last_words}
        ends |= {word for word, value in NUMBERS.items() if str(value) in ends} | ({"sharp"} if "#" in last else set())
        numbers = [word for word in last_words if any(map(str.isdigit, word))]
        parts = {part for word in numbers for part in _parts_of_number(word)}
        digits = frozenset(filter(str.isdigit, parts))
        return cls(tuple(plain), frozenset(last_words), frozenset(ends | parts - digits), digits)

    @classmethod
    def of_compound(cls, word: str) -> "_Needed":
        """Return the letters that replies with a compound need, perhaps apart; none if normalisation makes some."""
        is_made = not word.isascii() or any(name in word for name in _NEW_LETTERS)
        return cls(() if is_made else tuple(sorted({*word})), frozenset())

    def candidates(self, text: str, begun: str) -> Iterator[str]:
        """Yield the lines of a text, each the letters and digits of a reply, that may have all parts.

        Each begins with ``begun``, which by itself lacks a part.
        """
        missing = [word for word in self.words if word not in begun]
        for part in filter(None, ("'", *(missing[:1] or (*self.ends, *self.digits, "^")))):
            end = 0
            while (place := text.find(part, end)) >= 0:
                end = text.find("\n", place)
                yield text[text.rfind("\n", 0, place) + 1 : end]
        if self.digits and not missing:
            for digits in _SEPARATED_DIGITS.finditer(text):
                yield text[text.rfind("\n", 0, digits.start()) + 1 : text.find("\n", digits.end())]

    def may_end_in(self, letters: str) -> bool:
        """Return True if the letters of a reply may have the last word."""
        if not self.ends or (self.digits and "^" in letters) or any(map(letters.__contains__, self.ends)):
            return True
        if not self.digits or letters.isalpha():
            return False
        return any(map(_NO_DIGITS.sub("", letters).__contains__, self.digits))


def _without_implied(needed: Iterable[_Needed]) -> list[_Needed]:
    """Return the parts that replies need, without those of answers that hold all words of another."""
    remaining: list[_Needed] = []
    for parts in sorted(needed, key=lambda parts: len("".join(parts.words))):
        words = " ".join(parts.words)
        if not any(not other.ends and all(map(words.__contains__, other.words)) for other in remaining):
            remaining.append(parts)
    return remaining


def _parts_of_number(word: str) -> Iterable[str]:
    """Yield texts of which a reply has at least one if a number in it is ``word``: digits, and words of numbers.

    They are its digits without zeros at both ends (1.5 thousand is 1500), each word for it or for its tens or units,
    and every word that makes other digits of a number.
    """
    integer = _INTEGER.fullmatch(word)
    if integer is None or not int(integer[1]):
        yield ""
        return
    value = int(integer[1])
    yield str(value).rstrip("0")
    yield from LARGE_NUMBERS
    parts = {value, value // 10 * 10, value % 10} if 20 < value < 100 else {value}
    for name, number in NUMBERS.items():
        if number in parts:
            yield name
            yield from (ordinal for ordinal, cardinal in ORDINALS.items() if cardinal == name)


@lru_cache(maxsize=1 << 14)
def is_delicate(word: str) -> bool:
    """Return True if later text may change a word of a normalised form."""
    return _DELICATE.search(word) is not None


@lru_cache(maxsize=1 << 14)
def letters_of(text: str) -> str:
    """Return the letters and digits of a text: the signs and spaces within words are optional.

    The sign of a power, ``^``, and an apostrophe for a possessive follow where the text has them.
    """
    marks = ("^" if "^" in text else "") + ("'" if "'s" in text else "")
    return _NOT_ALPHANUMERIC.sub("", text) + marks
