"""Canonical prefixes of replies: after all prefixes with one canonical form, each next token has the same outcome.

Nearly all words of a reply have no part in the verdict on it. A placeholder replaces those that are in no accepted
answer and trigger no rule of normalisation. With a boundary behind it, it separates the texts on both sides, so the
text before it can go unless that is right already.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from string import ascii_lowercase, ascii_uppercase

from robust_eval.normalization import ARTICLES, KEYS, MONTH_NAMES, NAMED_BY_LETTER, SIGNS, UNITS, UNSEGMENTED, unified
from robust_eval.numerals import LARGE_NUMBERS, NUMBERS, ORDINALS, ROMAN

_CLOSED_WORD = re.compile(r"(?<![^ ])[a-z]{2,}(?=[ ,.;!)])")
_LAST_WORD = re.compile(r"(?<![^ ,.;/*#+'-])[a-z]{2,}\Z")
_MAX_DIGITS = 28
"""Maximum number of digits of a number that has a placeholder."""
_SEPARATORS = re.compile(r"[\"(\[{\\|:;?@~]+")
"""Marks that only separate words."""
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_UNSEGMENTED_TEXT = re.compile(f"[{UNSEGMENTED}]{{2,}}")
_UNSEGMENTED_PLACEHOLDER = "\u3005\u3005"  # two: a single one may be an initial
_RULES = "\n".join(("", *ARTICLES, *NAMED_BY_LETTER, *KEYS, "ph", ""))
"""Words that normalisation always treats unlike other words, a line each."""
_NUMBER_RULES = "\n".join(
    (
        *("", *NUMBERS, *LARGE_NUMBERS, *ORDINALS, *ROMAN, *MONTH_NAMES, *UNITS),
        *(word for words in SIGNS.values() for word in words),
        *("and", "of", "no", "minus", "negative", "world", "war", "degree", "degrees", "per", "cent"),
        *("st", "nd", "rd", "th", ""),
    )
)
"""Those that it treats so near numbers, single letters and signs."""


class PrefixStates:
    """Canonical prefixes of the replies to one question.

    ``accepted`` are the normal forms of its answers. ``delicate``: one has a number, a single letter or a sign.
    ``right`` returns True for a right reply.
    """

    def __init__(self, accepted: Sequence[str], accents: str, delicate: bool, right: Callable[[str], bool]) -> None:
        self._answers = "\n".join(text for form in accepted for text in (form, form.replace(" ", "")))
        """The accepted answers, with and without spaces, a line each."""
        self._rules = _RULES + _NUMBER_RULES if delicate else _RULES
        # a combining mark after a word may make a non-ASCII answer of it
        self._ascii = self._answers.isascii()
        self._masks_last_word = self._ascii or accents == "fold"
        self._answers_are_words = self._ascii and not delicate
        words = {word for form in accepted for word in form.split() if any(map(str.isdigit, word))}
        self._integers = [int(word) for word in words if word.isdecimal() and len(word) <= _MAX_DIGITS]
        self._masks_last_number = len(self._integers) == len(words)
        # normalisation keeps articles only where there is no other word
        self._has_article_answer = any(ARTICLES.issuperset(form.split()) for form in accepted)
        self._right = right

    def of(self, prefix: bytes) -> bytes:
        """Return the canonical prefix after which each token has the same outcome as after ``prefix``."""
        if not self._applies(prefix):
            return prefix
        text = self._masked(prefix)
        if not self._has_article_answer and not text.startswith(self._placeholder):
            text = f"{self._placeholder} {text.lstrip(' ')}"
        return _encoded(text if self._right(_readable(text)) else self._with_masked_end(text))

    def of_reply(self, reply: bytes) -> str:
        """Return a reply that is right, and stays right, where ``reply`` does."""
        text = self._with_masked_end(self._masked(reply)) if self._applies(reply) else _decoded(reply)
        return _readable(text)

    def _applies(self, prefix: bytes) -> bool:
        """Return True if there is a placeholder, and the text is one line."""
        return self._placeholder != "" and len(f"{prefix.decode('utf-8', 'replace')}.".splitlines()) == 1

    def _masked(self, prefix: bytes) -> str:
        """Return a text with placeholders for the words before its end, without what they separate from the end."""
        text = _decoded(prefix)
        if self._ascii:
            text = _UNSEGMENTED_TEXT.sub(self._unsegmented_or_placeholder, text)
        text = _CLOSED_WORD.sub(self._word_or_placeholder, _SEPARATORS.sub(";", text.translate(_LOWER)))
        for match in reversed([*re.finditer(rf"(?<![^ ]){self._placeholder}(?=[ ,.;!)])", text)]):
            if not self._right(_readable(text[: match.end()])):
                return text[match.start() :]
        return text

    def _with_masked_end(self, text: str) -> str:
        """Return a text with a placeholder for its last word, if no continuation of that can be part of an answer."""
        first = f"{self._placeholder} "
        end = text.removeprefix(first)
        if first + end == text and end.isascii():
            if end.isdecimal() and len(end) <= _MAX_DIGITS:
                return first + self._number_or_placeholder(end)
            if len(end) == 1 and end.isalpha():
                return first + self._letter_or_placeholder(end)
        last = _LAST_WORD.search(text)
        if last is None or not self._masks_last_word:
            return text
        word, before = last.group(), text[: last.start()]
        start = "\n" if before[-1:] in ("", " ") else ""  # "se'ven" may be seven
        if before == first and self._answers_are_words:
            masked = re.search(rf"\b{word}", self._answers) is None
        else:
            masked = word not in self._answers and f"{start}{word}" not in self._rules
        if not masked:
            return text
        end = self._placeholder[: len(word)]
        if before[-1:] in (" ", ";", ",") and not self._right(_readable(before + end)):
            before = first
        return before + (self._placeholder if before == first and self._answers_are_words else end)

    def _letter_or_placeholder(self, letter: str) -> str:
        """Return a letter that may begin a word or an initial of an answer, or an article; a placeholder for others."""
        placeholder = self._placeholder[0]
        starts = {word[0] for word in self._answers.split()} | {"a"}
        if not self._answers_are_words or letter in starts or placeholder in starts:
            return letter
        return placeholder

    def _number_or_placeholder(self, number: str) -> str:
        """Return a number that a token may complete to one of an answer; a placeholder for others.

        Further digits, "thousand" and its like leave the first digits as they are; a power may not. A comma may
        separate thousands after at most three digits: the placeholder has as many, or four.
        """
        placeholder = next((digit for digit in "896" if not self._may_become_answer(digit)), None)
        if not (self._masks_last_number and self._ascii) or placeholder is None or self._may_become_answer(number):
            return number
        return placeholder * (4 if len(number) > 3 else 1)

    def _may_become_answer(self, number: str) -> bool:
        """Return True if a token after a number may make it one of an answer."""
        digits = number.strip("0")
        return any(
            str(integer).strip("0").startswith(digits) or integer in [int(number) ** power for power in range(2, 10)]
            for integer in self._integers
        )

    def _word_or_placeholder(self, match: re.Match[str]) -> str:
        word = match.group()
        return word if word in self._answers or f"\n{word}\n" in self._rules else self._placeholder

    def _unsegmented_or_placeholder(self, match: re.Match[str]) -> str:
        word = match.group()
        is_masked = not any(map(str.isdigit, word)) and set(unified(word)).isdisjoint(self._answers)
        return _UNSEGMENTED_PLACEHOLDER if is_masked else word

    @cached_property
    def _placeholder(self) -> str:
        """A three-letter word whose first two letters are in no answer and no rule; empty if there is none."""
        pairs = (first + second for first, second in product("zqxjvkw", repeat=2))
        excluded = f"{self._answers}\n{_RULES}{_NUMBER_RULES}"
        return next((f"{pair}{pair[0]}" for pair in pairs if pair not in excluded), "")


def _decoded(text: bytes) -> str:
    """Return a text, in which surrogates stand for the bytes of incomplete characters."""
    return text.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _readable(text: str) -> str:
    """Return a text with U+FFFD for the bytes of incomplete characters."""
    return _encoded(text).decode("utf-8", "replace")
