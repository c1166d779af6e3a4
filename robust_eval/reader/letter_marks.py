"""Marks in place of letters that may name a choice."""

import re

from robust_eval.reader.phrases import AFTER_A_LETTER, WORD, phrases

P = phrases("letters")
"""Patterns of phrases, by their names in ``phrases.toml``."""
_NO_ARTICLE = (
    rf"(?!A und O\b)(?!A[ \t]+(?!{AFTER_A_LETTER}(?![{WORD}]))[a-zäöüéèñA-Z])"  # "is A force", but "is A because"
)
_NO_SYMBOL = (
    r"(?![#+])(?!\s*[=<>≈∝^²³√±%°])(?!\s?[-‐][a-zA-Z])(?!['’][a-zA-Z])(?!\s*(?:\(\w\)|_)\s*=)"  # E = mc², B-field
)
_NO_PRONOUN = r"(?!I\s+(?!is\b)[a-z]|I['’])"
_NO_UNIT = r"(?<![.'’\-°])(?<!° )(?<!\d )"  # 20 °C, 3 A
_LETTER_NAME = re.compile(
    rf"(?<![{WORD}]){_NO_UNIT}{_NO_ARTICLE}{_NO_PRONOUN}([A-Z])(?![{WORD}])(?:(?=\s*[)\]}}])|{_NO_SYMBOL})"
    rf"|(?<![{WORD}])([a-z])(?=[)\]](?![{WORD}]))"  # (b)
    rf"|(?<![{WORD}'’/])(?<!\d )([a-z])(?=[.:,]*\s*(?:\n|\Z))"  # "the answer is b"
)
"""Pattern of a letter that may name a choice. A mark replaces it, so that no rule can distinguish letters; the mark of
a small one at the end of a line counts in statements alone.
"""
MARK, SMALL_MARK, TEXT_MARK = "\ue100-\ue119", "\ue120-\ue139", "\ue140-\ue14c"
MARKS = re.compile(f"[{MARK}{SMALL_MARK}]")
THING_BEFORE = re.compile(rf"{P.things}\.?\s*[(]?\Z")


def with_marks(text: str) -> str:
    """Return a text with each letter that may name a choice as a mark of its own."""

    def mark(match: re.Match[str]) -> str:
        number = match.lastindex or 1
        if THING_BEFORE.search(text[max(0, match.start(number) - 30) : match.start(number)]):
            return match.group()
        return chr((0xE120 if number == 3 else 0xE100) + ord(match[number].upper()) - ord("A"))

    return _LETTER_NAME.sub(mark, text)


def unmarked(text: str) -> str:
    """Return a text with letters for marks."""
    return MARKS.sub(lambda match: letter_of_mark(match.group()), text)


def letter_of_mark(mark: str) -> str:
    """Return the letter of a mark."""
    return chr(ord("A") + (ord(mark) & 0x1F))


def letter_in(match: re.Match[str]) -> tuple[int, int, str]:
    """Return the begin and the end of the mark in a match, and its letter."""
    number = next(number for number, value in enumerate(match.groups(), 1) if value)
    return match.start(number), match.end(number), letter_of_mark(match[number])
