"""Normalised form of a text: texts that a person calls the same answer share one.

"The Eiffel Tower's", "eiffel tower" and "EIFFEL TOWER." are the same; "C", "C++" and "C#" are not. The two tables
of docs/development/normal_forms.md list pairs that are joined and pairs that are not, each row with its reason; a test
runs them.

The steps, in order: first line; Unicode NFKC without control characters, but superscripts apart from digits; case and,
unless accents are kept, accents folded; digits of all scripts to ASCII; initials and thousands joined; possessive 's
removed; words and the signs that carry meaning cut from punctuation; articles dropped; numbers to their value; a named
month behind its day.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from robust_eval.numerals import LARGE_NUMBERS, PLAIN, STARTS, with_values
from robust_eval.runtime.files import module_data
from robust_eval.runtime.text import first_line

ARTICLES = frozenset({"a", "an", "the"})
_TABLES = module_data(__file__)
NAMED_BY_LETTER = frozenset(_TABLES["named_by_letter"])
"""Nouns that a letter names one of: the A of "Vitamin A" is no article."""
KEYS = frozenset({"flat", "sharp", "minor", "major"})
"""Words that make the A before them the name of a note."""
MONTHS: Sequence[str] = _TABLES["months"]
MONTH_NAMES: Mapping[str, str] = {
    **{month: month for month in MONTHS},
    **{month[:3]: month for month in MONTHS},
    "sept": "september",
}
"""Months by name and by abbreviation."""
SIGNS: Mapping[str, Sequence[str]] = _TABLES["signs"]
"""Signs and units behind a number, and the words for them."""
UNSEGMENTED = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of scripts that write no spaces between words (Thai, Lao, Khmer, Kana, Han), as a class of regular
expressions.
"""
_HANGUL = "\uac00-\ud7a3"

_OPEN_ENDED = re.compile(f"\\A[{UNSEGMENTED}]|[{UNSEGMENTED}{_HANGUL}]\\Z")
_MONTH_WORDS = frozenset(MONTH_NAMES)
_SIGN_OF = {word: sign for sign, words in SIGNS.items() for word in words}
UNITS = frozenset(_TABLES["units"])
"""Units that may be glued to their number: "5km" is "5 km"."""
SPOKEN_SIGNS = frozenset({*_SIGN_OF, "degree", "degrees", "cent", "sharp"})
_LETTER = r"[^\W\d_]"
_SUPERSCRIPT = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_AS_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_DEGREE = re.compile(r"(?<![^\W\d_])[º˚](?=\s?[cfCF](?!\w))")
"""Signs that keyboards have in place of the degree sign."""
_MIXED = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_NARROW_SPACE = re.compile("(?<=\\d)[\u00a0\u2009\u202f](?=\\d{3}(?!\\d))")
_BEHIND_NUMBER = re.compile("[º˚¼-¾⅐-⅞\u00a0\u2009\u202f⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]")
"""Characters of the patterns for degree signs, mixed fractions, narrow spaces and superscripts."""
_SAME = str.maketrans(
    {
        **dict.fromkeys("’‘ʼ′", "'"),
        **dict.fromkeys("™®©\u00ad\ufe0e\ufe0f\u20e3"),  # and the marks of emoji
        "−": "-",
        "⁄": "/",
        "♯": "#",
        "♭": " flat ",
        "&": " and ",
    }
)
_REPLACED = re.compile(f"[{''.join(map(chr, _SAME))}]")
_NOT_DECOMPOSED = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"})
_ACCENTED = re.compile("[\u00c0-\u024f\u0370-\u03ff\u1e00-\u1fff]")
_LOOSE_ACCENTS = re.compile("(?<=[a-z\u0370-\u03ff])[\u0300-\u036f]+")
_ASCII_OR_PHONETIC = re.compile("[\x00-\x7f\u0250-\u02af]*")
"""Characters that have neither accents nor compatibility forms; AnswerMatcher's stand-in for a letter is one."""
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")

_SPACED_THOUSANDS = re.compile(r"(?<![\w.,])(?<!\d )\d{1,3}(?: \d{3}){2,}(?![\w.,]?\d)(?! \d)")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_INITIALS = re.compile(
    rf"(?<![^\W_]){_LETTER}\.(?:\s?{_LETTER}\.)+(?![^\W_])"  # J.R.R., J. R. R.
    r"|(?<![^\W_])ph\.\s?d(?:\.|(?![^\W_]))"  # Ph.D.
    rf"|(?<![^\W_])(?:{_LETTER}\.)+{_LETTER}(?![^\W_])(?!\.)"  # U.S
    rf"|(?<!\S)(?!a\s){_LETTER}(?:\s{_LETTER})+(?!\S)"  # J R R
)
_SPACED_LETTERS = re.compile(r"(?<!\S)\S\s\S(?!\S)")
_POSSESSIVE = re.compile(r"(?:(?<=\w)|(?<=\w\.))'s(?!\w)")
_APOSTROPHE = re.compile(rf"(?<={_LETTER})'(?={_LETTER})|(?<=\d)'(?=s(?!\w))")
_FOOTNOTE = re.compile(rf"(?<={_LETTER}{_LETTER}{_LETTER})\^\d+(?!\w)")
_CHARGE = re.compile(r"\^(\d*[+-])(?![\d^])")
_ARROW = re.compile(r"(?:<|(?<![-=]))[-=]+>|<[-=]+(?!\d)")
_LESS, _GREATER = re.compile(r"<=(?![=>])"), re.compile(r"(?<![-=])>=")
_COMPARING = frozenset("<>=")
_CURRENCY = re.compile(rf"([$€£¥₹₩₽])(\d[\d.]*(?:\s+(?:{'|'.join(LARGE_NUMBERS)})\b)*)")
_TIMES_TEN = re.compile(r"(?<=\d)\s*[*·×x]\s*(?=10\^)")
_PLAIN_WORDS = re.compile(r"(?:\s*(?:a|[a-zʘ]{2,}|([0-9]+)(?!\s[0-9]))(?!\S))*\s*(?:[a-zʘ]{2,}[.!?])?")
"""Integers, and words of ASCII letters or of AnswerMatcher's stand-in for a letter."""
_REWRITTEN = frozenset({*ARTICLES, *STARTS, *_MONTH_WORDS, *SPOKEN_SIGNS})
_SCRIPT_EDGE = re.compile(rf"(?<=[^\s{UNSEGMENTED}])(?=[{UNSEGMENTED}])|(?<=[{UNSEGMENTED}])(?=[^\s{UNSEGMENTED}])")
_SPECIAL = re.compile(r"[^\w\s.!?]")


def normalize(text: str, accents: str = "fold") -> str:
    """Return the normalised form of the first line of a text; empty only where the line is blank.

    ``accents``: ``fold`` (São is Sao) or ``keep``.

    >>> normalize("The Eiffel Tower's height?")
    'eiffel tower height'
    >>> normalize("Twenty-one thousand, or 3.50"), normalize("C++"), normalize("August 6th, 1945")
    ('21000 or 3.5', 'c++', '6 august 1945')
    """
    return forms(text, accents)[0]


@lru_cache(maxsize=1 << 15)
def forms(text: str, accents: str = "fold") -> tuple[str, ...]:
    """Return the normalised forms of a text: two where it has an apostrophe within a word, else one.

    The first removes a possessive 's and parts a word at other apostrophes ("o brien"); the second leaves them out
    ("obrien", "mcdonalds").

    >>> forms("McDonald's"), forms("Paris")
    (('mcdonald', 'mcdonalds'), ('paris',))
    """
    line = unified(first_line(text), accents)
    ways = (False, True) if "'" in line else (False,)
    return tuple(dict.fromkeys(_form(line, join_apostrophes) for join_apostrophes in ways))


def _form(line: str, join_apostrophes: bool) -> str:
    """Return a normalised form of a unified line."""
    line = " ".join(line.split())
    if plain := _PLAIN_WORDS.fullmatch(line):
        text = line.rstrip(".!?")
        words = text.split()
        if plain[1] is None and _REWRITTEN.isdisjoint(words):
            return text
    else:
        words = _words(line, join_apostrophes)
    words = _with_months_after_days(with_values(_without_articles(words)))
    form = " ".join(word for word in _with_signs(words) if word != ",")
    return form or line


def normalised_form(text: str) -> str:
    r"""Return the normalised form of a text of several lines. Questions with the same form are duplicates.

    >>> normalised_form("Who wrote\n Emma?")
    'who wrote emma'
    """
    return normalize(" ".join(text.split()))


def has_words(form: str, words: str) -> bool:
    """Return True if a normalised form holds another as whole words.

    In scripts without spaces no boundary is needed, in Hangul none at the end.

    >>> has_words("he is roman", "roman"), has_words("he is romanian", "roman"), has_words("法国的首都是巴黎", "巴黎")
    (True, False, True)
    """
    if f" {words} " in f" {form} ":
        return True
    return (
        not words.isascii() and _OPEN_ENDED.search(words) is not None and _whole_words(words).search(form) is not None
    )


@lru_cache(maxsize=1 << 14)
def _whole_words(form: str) -> re.Pattern[str]:
    """Return a pattern that matches a normalised form in another, as whole words."""
    before = "" if re.match(f"[{UNSEGMENTED}]", form) else r"(?<!\S)"
    after = "" if re.search(f"[{UNSEGMENTED}{_HANGUL}]\\Z", form) else r"(?!\S)"
    return re.compile(f"{before}{re.escape(form)}{after}")


def is_one_character(form: str) -> bool:
    """Return True if a normalised form is a single letter, digit or sign, which means nothing as a part of a word.

    >>> is_one_character("s"), is_one_character("8"), is_one_character("he")
    (True, True, False)
    """
    return sum(unicodedata.category(character)[0] != "M" for character in form) == 1


def numbers_differ(one: str, other: str) -> bool:
    """Return True if both normalised forms hold numbers, and not the same.

    >>> numbers_differ("1945", "in 1946"), numbers_differ("1945", "in 1945"), numbers_differ("8 planets", "eight")
    (True, False, False)
    """
    numbers = [frozenset(PLAIN.findall(form)) for form in (one, other)]
    return bool(numbers[0] and numbers[1]) and numbers[0] != numbers[1]


def unified(text: str, accents: str = "fold") -> str:
    """Return a text in NFKC and case folded, with ASCII digits, superscripts as ``^2``, apostrophes and minus signs of
    one kind, and without control characters; unless ``accents`` are kept, without those of Latin and Greek letters.
    """
    if text.isascii() or _ASCII_OR_PHONETIC.fullmatch(text):
        plain = text.casefold().replace("&", " and ").replace("`", "'")
        return plain if plain.isprintable() else _without_control_characters(plain)
    if _BEHIND_NUMBER.search(text):
        text = _same_signs(_NARROW_SPACE.sub("", _MIXED.sub(" ", _DEGREE.sub("°", text))))
        text = _SUPERSCRIPT.sub(lambda match: f"^{match.group().translate(_AS_DIGITS)}", text)
    else:
        text = _same_signs(text)
    text = _same_signs(unicodedata.normalize("NFKC", text)).casefold()
    if accents == "fold":
        text = _LOOSE_ACCENTS.sub("", _ACCENTED.sub(lambda match: _base(match.group()), text))
    text = _FOREIGN_DIGIT.sub(lambda match: str(unicodedata.decimal(match.group())), text).replace("`", "'")
    return text if text.isprintable() else _without_control_characters(text)


def _same_signs(text: str) -> str:
    """Return a text with one sign in place of those that mean the same."""
    return text.translate(_SAME) if _REPLACED.search(text) else text


@cache
def _base(letter: str) -> str:
    """Return a letter without its accents."""
    parts = (part for part in unicodedata.normalize("NFD", letter) if unicodedata.category(part) != "Mn")
    return "".join(parts).translate(_NOT_DECOMPOSED)


def _without_control_characters(text: str) -> str:
    """Return a text without characters of category C, except for white space."""
    return "".join(
        letter for letter in text if letter.isprintable() or letter.isspace() or unicodedata.category(letter)[0] != "C"
    )


def _words(text: str, join_apostrophes: bool) -> list[str]:
    """Return the words and signs of a text to normalise; a comma by itself stands for punctuation."""
    if not text.isascii():
        text = _SCRIPT_EDGE.sub(" ", text)
    text = _SPACED_THOUSANDS.sub(_joined_digits, text)
    if _SPECIAL.search(text):
        if "," in text:
            text = _THOUSANDS.sub(_joined_digits, text)
        if "'" in text:
            text = _POSSESSIVE.sub("", _APOSTROPHE.sub("", text) if join_apostrophes else text)
        if "^" in text:
            text = _CHARGE.sub(r"\1", _FOOTNOTE.sub("", text))
        if not _COMPARING.isdisjoint(text):
            text = _ARROW.sub(" , ", _with_comparison_signs(text))
        if "10^" in text:
            text = _TIMES_TEN.sub(" × ", text)
        text = _CURRENCY.sub(r" \2 \1 ", text)
    if "." in text or _SPACED_LETTERS.search(text):
        text = _INITIALS.sub(_joined, text)
    return [
        "," if match.lastgroup == "punctuation" else match.group()
        for match in _piece().finditer(text)
        if match.lastgroup != "dropped"
    ]


def _with_comparison_signs(text: str) -> str:
    """Return a text with ≤, ≥ and ≠ in place of the signs that are typed for them."""
    return _GREATER.sub("≥", _LESS.sub("≤", text)).replace("!=", "≠")


def _joined_digits(number: re.Match[str]) -> str:
    return "".join(filter(str.isdigit, number.group()))


def _joined(initials: re.Match[str]) -> str:
    return "".join(filter(str.isalpha, initials.group()))


@cache
def _piece() -> re.Pattern[str]:
    """Return the pattern of a number, a word, a sign with a meaning, punctuation, and dropped characters."""
    letter = f"(?:[^\\W_]|[{_marks()}])"
    ends = rf"(?!{letter})"
    number = (
        rf"(?:(?<![\w)\]}}.])-)?(?:\d{{1,3}}/\d{{1,3}}(?![\d/])|(?:\d+(?:\.\d+)*|(?<![\w)\]}}])\.\d+)"
        rf"(?:\^[+-]?\d+|e[+-]?\d+)?)(?:{ends}|(?=(?:{'|'.join(UNITS)}){ends}))"
    )
    return re.compile(
        rf"(?P<number>\d+(?:st|nd|rd|th){ends}|{number})"
        rf"|(?P<word>(?<![^\W_])[^\W\d_]{{1,2}}-(?![\w-])"  # the sign of O− and of Cl−
        rf"|{letter}+(?:\^-?{letter}+)?(?:\+{{1,2}}{ends}|\#{ends})?)"
        r"|(?P<dropped>[-‐-―]|(?<![\w)\]])\+(?=\d))"
        r"|(?P<sign>[<>≤≥≠±≈√∞∝∈∉⊂∪∩∧∨¬×÷∫∑∂%‰$€£¥₹₩₽+])"
        r"|(?P<punctuation>\S)"
    )


@cache
def _marks() -> str:
    """Return the marks that are combined with the letter before them, as ranges of a character class."""
    codes = [code for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M"]
    starts = [code for place, code in enumerate(codes) if not place or codes[place - 1] != code - 1]
    ends = [code for place, code in enumerate(codes) if codes[place + 1 : place + 2] != [code + 1]]
    return "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))


def _without_articles(words: Sequence[str]) -> list[str]:
    """Return normalised words without articles, and with "one hundred" for "a hundred"."""
    if ARTICLES.isdisjoint(words):
        return list(words)
    last = max((place for place, word in enumerate(words) if word != ","), default=0)
    remaining: list[str] = []
    for place, word in enumerate(words):
        following = words[place + 1] if place < last else ","
        if word == "a" and following in LARGE_NUMBERS:
            remaining.append("one")
        elif word not in ARTICLES or (word == "a" and _is_name(remaining[-1:], following)):
            remaining.append(word)
    return remaining if any(word not in (*ARTICLES, ",") for word in remaining) or last == 0 else list(words)


def _is_name(before: Sequence[str], following: str) -> bool:
    """Return True if an A between these words is a name and no article: in "vitamin A", "A minor", "C&A", "A$AP"."""
    return (before[:1] != [] and before[0] in NAMED_BY_LETTER) or following in KEYS or not following[:1].isalnum()


def _with_months_after_days(words: Sequence[str]) -> list[str]:
    """Return normalised words with each month after its day: "august 6th" and "6th of august" are 6 august."""
    if _MONTH_WORDS.isdisjoint(words):
        return list(words)
    dated: list[str] = []
    place = 0
    while place < len(words):
        month = MONTH_NAMES.get(words[place])
        place += 1
        if month is None:
            dated.append(words[place - 1])
            continue
        following = place + (words[place : place + 1] == [","] and words[place - 1] not in MONTHS)
        before = len(dated) - next((skip for skip in (1, 2) if _day(dated[-skip : len(dated) - skip + 1])), 0)
        if before < len(dated) and (dated[before + 1 :] in ([], ["of"], [","])):
            dated[before:] = [_day(dated[before : before + 1]), month]
        elif day := _day(words[following : following + 1]):
            dated += [day, month]
            place = following + 1
        else:
            dated.append(words[place - 1])
    return dated


def _day(words: Sequence[str]) -> str:
    """Return the number of the day that a word may be, without an ordinal's ending; empty for any other word."""
    digits = re.fullmatch(r"0?([1-9]|[12]\d|3[01])(?:st|nd|rd|th)?", words[0]) if words else None
    return digits[1] if digits else ""


def _with_signs(words: Sequence[str]) -> list[str]:
    """Return normalised words with signs in place of words for them: "5 dollars" is 5 $, "20 degrees celsius" 20 c."""
    if SPOKEN_SIGNS.isdisjoint(words):
        return list(words)
    signed: list[str] = []
    for word in words:
        number = bool(signed) and PLAIN.fullmatch(signed[-1]) is not None
        if number and word in ("degree", "degrees"):
            continue
        if word == "cent" and signed[-1:] == ["per"] and PLAIN.fullmatch("".join(signed[-2:-1])):
            signed[-1] = "%"
        elif word == "sharp" and signed and re.fullmatch("[a-g]", signed[-1]):
            signed[-1] += "#"
        else:
            signed.append(_SIGN_OF[word] if number and word in _SIGN_OF else word)
    return signed
