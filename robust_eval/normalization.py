"""Free text made comparable: "The Eiffel Tower's", "eiffel tower" and "EIFFEL TOWER." are one and the same.

The steps, in order (docs/methods.md, §0): first line; Unicode NFKC without control characters; case folded; thousands
separators joined ("1,000" is "1000") and dotted abbreviations ("U.S.A." is "usa"); possessive 's removed; punctuation
and symbols to spaces, except a decimal point between digits and a minus sign before a number; articles dropped; number
words to digits ("twenty-one" is "21", "a hundred" is "100"); white space folded.
"""

import re
import unicodedata
from functools import lru_cache

ARTICLES = frozenset({"a", "an", "the"})
_UNITS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBERS = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
LARGE_NUMBERS = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
NUMBER_WORDS = (*NUMBERS, *LARGE_NUMBERS)

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_ABBREVIATION = re.compile(r"\b(?:[^\W\d_]\.){2,}(?!\w)|\b(?:[^\W\d_]\.)+[^\W\d_]\b(?!\.)")
_POSSESSIVE = re.compile(r"(?<=\w)['’]s\b")
_MARK = re.compile(r"[^\w\s]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_A_HUNDRED = re.compile(r"\ba(?=\s+(?:hundred|thousand|million|billion)\b)")


@lru_cache(maxsize=1 << 16)
def normalize(text: str) -> str:
    """Return the normal form of a reply or an accepted answer; empty where nothing is left ("The", ".", "").

    >>> normalize("The Eiffel Tower's height?")
    'eiffel tower height'
    >>> normalize("Twenty-one thousand, or 3.5")
    '21000 or 3.5'
    """
    text = unified(first_line(text)).replace("_", " , ")
    if _MARK.search(text):  # most texts have none, and the exact tree reads very many
        text = _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text)
        text = _ABBREVIATION.sub(lambda match: match.group().replace(".", ""), text)
        text = _POSSESSIVE.sub(_without_possessive, text)
        text = _MARK.sub(_kept, text)
    words = _A_HUNDRED.sub("one", text).split()
    return " ".join(word for word in _digits([word for word in words if word not in ARTICLES]) if word != ",")


def normal_form(text: str) -> str:
    r"""Return the normal form of all lines of a text together: questions with the same are no two.

    >>> normal_form("Who wrote\n Emma?")
    'who wrote emma'
    """
    return normalize(" ".join(text.split()))


def first_line(text: str) -> str:
    """Return what a reply says before it breaks the line, without white space around it: more is another answer, or
    none.
    """
    lines = text.strip().splitlines()
    return lines[0].rstrip() if lines else ""


def has_words(form: str, words: str) -> bool:
    """Tell whether a normal form holds another as whole words.

    >>> has_words("he is roman", "roman"), has_words("he is romanian", "roman")
    (True, False)
    """
    return f" {words} " in f" {form} "


def is_one_character(form: str) -> bool:
    """Tell whether a normal form is a single letter, digit or sign, which means nothing as a part of a word: "s" of
    "'s".

    >>> is_one_character("s"), is_one_character("8"), is_one_character("he")
    (True, True, False)
    """
    return sum(unicodedata.category(character)[0] != "M" for character in form) == 1


def numbers_differ(one: str, other: str) -> bool:
    """Tell whether both normal forms hold numbers, and not the same.

    >>> numbers_differ("1945", "in 1946"), numbers_differ("1945", "in 1945"), numbers_differ("8 planets", "eight")
    (True, False, False)
    """
    numbers = [frozenset(_NUMBER.findall(form)) for form in (one, other)]
    return bool(numbers[0] and numbers[1]) and numbers[0] != numbers[1]


def unified(text: str) -> str:
    """Compatible forms unified (NFKC), control characters left out but for white space, and case folded."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if text.isprintable():
        return text
    return "".join(letter for letter in text if letter.isspace() or unicodedata.category(letter)[0] != "C")


def _without_possessive(found: re.Match[str]) -> str:
    """Return nothing, unless the s goes on with a mark that is combined with it."""
    after = found.string[found.end() : found.end() + 1]
    return found.group() if after and unicodedata.category(after)[0] == "M" else ""


def _kept(found: re.Match[str]) -> str:
    """Return what stands for a character that is neither a letter nor a digit nor white space: a space or a comma by
    itself, unless it is part of a number or combined with a letter.
    """
    character, index = found.group(), found.start()
    before, after = found.string[index - 1 : index], found.string[index + 1 : index + 2]
    if unicodedata.category(character)[0] not in "PS":
        return character
    if after.isdigit() and character == "." and before.isdigit():
        return "."
    if after.isdigit() and character in "-−" and not (before.isalnum() or (before and before in ")]}")):
        return "-"
    return " " if unicodedata.category(character) == "Pd" else " , "  # a comma ends a number, a hyphen does not


def _digits(words: list[str]) -> list[str]:
    """Number words replaced by digits, as long as they form one number: "two hundred and five" is one, "one two" not.

    "hundred" and its like count only after a number ("five hundred", "8 billion"; "hundreds of" and "hundred" stay).
    """
    result: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        value, length = _number(words[position:]) if word in NUMBERS or word.isdecimal() else (0, 0)
        result.append(str(value) if length else word)
        position += length or 1
    return result


def _number(words: list[str]) -> tuple[int, int]:
    """Return the number that the words begin with, and how many of them it takes: 0 where the first, a number word or
    digits, stays as it is.
    """
    total, group, length = 0, 0, 0
    room = 0  # the group may still take a number below this: 10 after tens, 100 after hundreds
    scale = 1_000_000_000_000  # the next scale word must be smaller than the last
    for index, word in enumerate(words):
        if word == "and" and length == index and index and words[index - 1] in LARGE_NUMBERS and index + 1 < len(words):
            if words[index + 1] in NUMBERS:
                continue
            break
        connected = length == index or (length == index - 1 and words[index - 1] == "and")
        if not connected:
            break
        if not index and word.isdecimal() and words[1:2] and words[1] in LARGE_NUMBERS:
            group = int(word)
        elif word in NUMBERS and (not length or (NUMBERS[word] < room and NUMBERS[word] > 0)):
            group += NUMBERS[word]
            room = 10 if NUMBERS[word] >= 20 else 0
        elif word == "hundred" and 0 < group < 100:
            group, room = group * 100, 100
        elif word in LARGE_NUMBERS and word != "hundred" and group and LARGE_NUMBERS[word] < scale:
            scale = LARGE_NUMBERS[word]
            total, group, room = total + group * scale, 0, 1000
        else:
            break
        length = index + 1
    return total + group, length
