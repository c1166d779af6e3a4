"""Numbers in words, digits and signs, reduced to their value: "twenty-one" is 21, "2.5 million" 2500000, "10⁶" 1000000.

Works on the words of a text in lower case (:mod:`robust_eval.normalization` makes them). A word ``,`` stands for
punctuation, which ends a number.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

_UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBERS: Mapping[str, int] = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
LARGE_NUMBERS: Mapping[str, int] = {
    "hundred": 100,
    "thousand": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
    "trillion": 1_000_000_000_000,
}
_IRREGULAR = {
    "first": "one",
    "second": "two",
    "third": "three",
    "fifth": "five",
    "eighth": "eight",
    "ninth": "nine",
    "twelfth": "twelve",
}
ORDINALS: Mapping[str, str] = {
    **_IRREGULAR,
    **{f"{word}th": word for word in _UNITS if word not in _IRREGULAR.values() and word != "zero"},
    **{f"{word[:-1]}ieth": word for word in _TENS},
    **{f"{word}th": word for word in LARGE_NUMBERS},
}
"""Cardinal of each ordinal, in words."""
PLAIN = re.compile(r"-?(?:\d+(?:\.\d+)?|\.\d+)")
"""A number in digits."""
_ROMAN = "i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx xxi xxii xxiii"
ROMAN: Mapping[str, int] = {word: value for value, word in enumerate(_ROMAN.split(), start=1) if len(word) > 1}
"""Roman numerals of several letters, which are numbers: "Henry VIII" is Henry 8. A single I is one behind "world
war" alone.
"""
STARTS = frozenset({*NUMBERS, *ORDINALS, *ROMAN, "war"})
"""Words that can begin a number, or make one of the letter behind them (world war I). Others begin with a digit."""
_ORDINAL = re.compile(r"(\d{1,40})(?:st|nd|rd|th)")
_POWER = re.compile(r"(-?\d+(?:\.\d+)?)\^([+-]?\d+)")
_SCIENTIFIC = re.compile(r"(-?\d+(?:\.\d+)?)e([+-]?\d+)")
_FRACTION = re.compile(r"(-?\d{1,3})/(\d{1,3})")
_POWER_OF_TEN = re.compile(r"10\^([+-]?\d{1,2})")
_MAX_DIGITS = 28
"""Maximum number of digits of a number that is computed; a larger one stays as written."""
_MAX_WORDS = 48
"""Maximum number of words of a number."""


def with_values(words: Sequence[str]) -> list[str]:
    """Return words with each number as digits of its value, each ordinal as digits with its ending.

    "hundred" and its like count only after a number: "hundreds of" and "hundred" stay. "no one" is no number.

    >>> " ".join(with_values("two hundred and five of the twenty first , 2.50 million".split()))
    '205 of the 21st , 2500000'
    """
    if STARTS.isdisjoint(words) and not any(word[-1].isdigit() or word[0].isdigit() for word in words):
        return list(words)
    result: list[str] = []
    place = 0
    while place < len(words):
        number, length = (
            ("", 0) if words[place] in NUMBERS and result[-1:] == ["no"] else _number(words[place : place + _MAX_WORDS])
        )
        if not length and words[place] in ("minus", "negative") and not (result and PLAIN.fullmatch(result[-1])):
            number, length = _number(words[place + 1 : place + 1 + _MAX_WORDS])
            if PLAIN.fullmatch(number) and not number.startswith("-"):
                number, length = (f"-{number}" if number != "0" else number), length + 1
            else:
                length = 0
        if not length and words[place] == "i" and result[-2:] == ["world", "war"]:
            number, length = "1", 1
        if not length and words[place] in ROMAN:
            number, length = str(ROMAN[words[place]]), 1
        result.append(number if length else words[place])
        place += length or 1
    return result


def ordinal(value: int) -> str:
    """Return the ordinal of a number, in digits.

    >>> [ordinal(value) for value in (1, 2, 3, 4, 11, 112, 121)]
    ['1st', '2nd', '3rd', '4th', '11th', '112th', '121st']
    """
    teens = value % 100 in (11, 12, 13)
    return f"{value}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(value % 10, 'th')}"


def value_of(word: str) -> str | None:
    """Return the value of a numeral that is one word of digits and signs; None where the word is none.

    Digits stay as they stand (007 is not 7), and so does a fraction that is not in lowest terms (6/8 time, 50/50).

    >>> value_of("5.0"), value_of(".50"), value_of("10^-3"), value_of("3e8"), value_of("1/2"), value_of("9/11")
    ('5', '0.5', '0.001', '300000000', '0.5', '9/11')
    """
    if word.isdecimal():
        return word
    if PLAIN.fullmatch(word):
        return _written(Decimal(word))
    if fraction := _FRACTION.fullmatch(word):
        return _as_fraction(int(fraction[1]), int(fraction[2])) or word
    if power := _POWER.fullmatch(word) or _SCIENTIFIC.fullmatch(word):
        if len(power[2]) > _MAX_DIGITS:
            return word
        base, exponent = (Decimal(power[1]), int(power[2])) if "^" in word else (Decimal(10), int(power[2]))
        if not base or abs(exponent) * len(str(base)) > _MAX_DIGITS:
            return word
        return _written(base**exponent * (1 if "^" in word else Decimal(power[1])))
    return None


def _as_fraction(over: int, under: int) -> str | None:
    """Return a fraction in lowest terms as a decimal number where it is one, else as it is; None for any other."""
    if not under or Fraction(over, under).denominator != under or under == 1:
        return None
    return _written(Decimal(over) / under) if 10**9 % under == 0 else f"{over}/{under}"


def _written(value: Decimal) -> str:
    """Return a number in plain digits, without zeros at the end of its decimals."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _number(words: Sequence[str]) -> tuple[str, int]:
    """Return the number at the start of the words in digits, and its length in words: 0 if there is none."""
    if not words:
        return "", 0
    if match := _ORDINAL.fullmatch(words[0]):
        return ordinal(int(match[1])), 1
    if words[0] in NUMBERS or words[0] in ORDINALS:
        return _in_words(words)
    digits = value_of(words[0]) if words[0][-1].isdigit() else None
    return ("", 0) if digits is None else _scaled(digits, words)


def _in_words(words: Sequence[str]) -> tuple[str, int]:
    total, group, length = 0, 0, 0
    room = 0  # the group may still take a number below this: 10 after tens, 100 after hundreds
    scale = 10**15  # the next scale word must be smaller than the last
    for index, written in enumerate(words):
        if written == "and" and length == index and index and words[index - 1] in LARGE_NUMBERS:
            continue
        if not (length == index or (length == index - 1 and words[index - 1] == "and")):
            break
        word = ORDINALS.get(written, written)
        if word in NUMBERS and (not length or 0 < NUMBERS[word] < room):
            group += NUMBERS[word]
            room = 10 if NUMBERS[word] >= 20 else 0
        elif words[index - 1] == "and" and index:
            break
        elif word == "hundred" and 0 < group < 100:
            group, room = group * 100, 100
        elif word in LARGE_NUMBERS and not length and written in ORDINALS:  # "hundredth" by itself
            return ordinal(LARGE_NUMBERS[word]), 1
        elif word in LARGE_NUMBERS and word != "hundred" and group and LARGE_NUMBERS[word] < scale:
            scale = LARGE_NUMBERS[word]
            total, group, room = total + group * scale, 0, 1000
        else:
            break
        length = index + 1
        if written in ORDINALS:
            return ordinal(total + group), length
    return (str(total + group), length) if length else ("", 0)


def _scaled(digits: str, words: Sequence[str]) -> tuple[str, int]:
    """Return the value of digits with a multiplier or fraction ("2.5 million", "1 1/2"), and its length in words."""
    if not PLAIN.fullmatch(digits):
        return digits, 1
    value = Decimal(digits)
    following = words[1] if len(words) > 1 else ""
    if following in LARGE_NUMBERS:
        rest, taken = _below(words[2:], LARGE_NUMBERS[following])
        return _written(value * LARGE_NUMBERS[following] + rest), 2 + taken
    if following in ("×", "x") and len(words) > 2 and (power := _POWER_OF_TEN.fullmatch(words[2])):
        return _written(value.scaleb(int(power[1]))), 3
    if (
        len(digits) <= _MAX_DIGITS
        and digits.isdecimal()
        and (part := _FRACTION.fullmatch(following))
        and 0 < int(part[1]) < int(part[2])
    ):
        over, under = int(digits) * int(part[2]) + int(part[1]), int(part[2])
        return _as_fraction(over, under) or f"{over}/{under}", 2
    return digits, 1


def _below(words: Sequence[str], scale: int) -> tuple[int, int]:
    """Return the smaller number in words after a scale word ("and five"), and its length in words; else 0 and 0."""
    skipped = int(words[:1] == ["and"])
    if words[skipped : skipped + 1] and words[skipped] in NUMBERS:
        number, length = _in_words(words[skipped:])
        if number.isdecimal() and 0 < int(number) < scale:
            return int(number), length + skipped
    return 0, 0
