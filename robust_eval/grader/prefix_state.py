"""Canonical prefixes of replies: after all prefixes with one canonical form, each next token has the same outcome.

Nearly all words of a reply have no part in the verdict on it. A placeholder replaces those that are in no accepted
answer and trigger no rule of normalisation. With a boundary behind it, it separates the texts on both sides, so the
text before it can go unless that is right already. The signs behind it can go too where they mean nothing to any
answer: answers that are plain words, or integers, have fewer states than others.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import product
from string import ascii_lowercase, ascii_uppercase

from robust_eval.normalization import (
    ARTICLES,
    KEYS,
    MONTH_NAMES,
    MONTHS,
    NAMED_BY_LETTER,
    SPOKEN_SIGNS,
    UNITS,
    UNSEGMENTED,
    unified,
)
from robust_eval.numerals import LARGE_NUMBERS, NUMBERS, ORDINALS, ROMAN

_CLOSED_WORD = re.compile(r"(?<![^ ])[a-z]{2,}(?=[ ,.;!)])")
_LAST_WORD = re.compile(r"(?<![^ ,.;/*#+'-])[a-z]{2,}\Z")
_MAX_DIGITS = 28
"""Maximum number of digits of a number that has a placeholder."""
_SEPARATORS = re.compile(r"[\"(\[{\\|:;?@~]+")
"""Marks that only separate words."""
_LINE_BREAK = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_LOWER = str.maketrans({**dict(zip(ascii_uppercase, ascii_lowercase, strict=True)), "`": "'", "’": "'", "&": " and "})
_FOREIGN_WORD = re.compile(r"(?<!\w)[a-z]*[^\W\d_a-z][^\W\d_]*(?!\w)")
_UNSEGMENTED = re.compile(f"[{UNSEGMENTED}]")
_UNSEGMENTED_TEXT = re.compile(f"[{UNSEGMENTED}]{{2,}}")
_UNSEGMENTED_PLACEHOLDER = "\u3005\u3005"  # two: a single one may be an initial

_SEPARATING = r" !#-%)-/<=>\]};–—“”…"
"""Signs that mean nothing between words of letters, as a class of regular expressions."""
_CLOSED_TERM = re.compile(
    rf"(?<![^{_SEPARATING}])(?:[a-z]{{2,}}(?:'(?:s|[a-z]{{2,}}))?|[a-z]+\d[a-z\d]*|\d+)(?=[{_SEPARATING}])"
)
_SEPARATED_WORDS = re.compile(
    rf"((?:[{_SEPARATING}]|(?<=[{_SEPARATING}])(?:the|an)(?=[{_SEPARATING}])|(?<= )a(?= ))+)(.*)", re.DOTALL
)
_WORDS_ALONE = re.compile(" ?[a-z]{3,}(?: [a-z]{3,})*")
_WORDS = re.compile(r"([a-z]{2,}(?:[ ,.;!)]+[a-z]{2,})*)(?<!\bph)([ ,.;!)]*)")
_INITIALS = re.compile(r"(?:[a-z]\. ?)*[a-z](\.? ?)")
_PLAIN = re.compile(rf"[a-z\d'_{_SEPARATING}]*")
_TERM = re.compile(r"[a-z\d]+")

_SEPARATED_NUMBER = re.compile(r"([ ,.;!)#*/=+-]+)(.*)", re.DOTALL)
_LAST_NUMBER = re.compile(r"(\d+)((?:\.\d+)?)([ ,.;!)+]*)")
_ALIKE_NUMBERS = (("one", "two", "three", "five", "twelve"), ("six", "seven"))
"""Numbers below 20 to which the same endings make others: none, or "teen", "ty" and "th"."""
_BEGINNING_WITH_INTEGER = re.compile(rf"\d{{1,{_MAX_DIGITS}}}(?: ?[a-z]{{2,}})*")
_INTEGER_OR_WORD = re.compile(rf"(\d{{1,{_MAX_DIGITS}}})[a-z]*|[a-z].*")
_DAY = re.compile("0?(?:[1-9]|[12][0-9]|3[01])")

_MAX_INITIALS = 3
"""Maximum number of letters that one token writes as initials."""
_RULES = ("ph", *ARTICLES, *NAMED_BY_LETTER, *KEYS)
"""Words that normalisation always treats unlike other words."""
_NUMBER_WORDS = (*NUMBERS, *ROMAN, "no", "minus", "negative")
"""Those that change the value of a number behind them."""
_DATE_WORDS = (*MONTH_NAMES, *(ordinal for ordinal, cardinal in ORDINALS.items() if cardinal in NUMBERS))
"""Those that may be, or make, the day of a date."""
_NUMBER_RULES = (
    *(*_NUMBER_WORDS, *_DATE_WORDS, *LARGE_NUMBERS, *ORDINALS, *UNITS, *SPOKEN_SIGNS),
    *("and", "of", "world", "war", "per", "st", "nd", "rd", "th"),
)
"""Those that it treats so near numbers, single letters and signs."""


class PrefixStates:
    """Canonical prefixes of the replies to one question.

    ``accepted`` are the normalised forms of its answers. ``delicate``: one has a number, a single letter or a sign.
    ``right`` returns True for a right reply.
    """

    def __init__(self, accepted: Sequence[str], accents: str, delicate: bool, right: Callable[[str], bool]) -> None:
        self._answers = _lines(*(text for form in accepted for text in (form, form.replace(" ", ""))))
        """The accepted answers, with and without spaces, a line each."""
        self._accents = accents
        # a combining mark after a word may make a non-ASCII answer of it
        self._ascii = self._answers.isascii()
        self._masks_last_word = self._ascii or accents == "fold"
        # normalisation keeps articles only where there is no other word
        self._has_article_answer = any(ARTICLES.issuperset(form.split()) for form in accepted)
        delicate = delicate or not SPOKEN_SIGNS.isdisjoint(self._answers.split())
        self._are_words = self._ascii and not delicate and not self._has_article_answer
        self._may_be_initials = any(len(form.split()[0]) <= _MAX_INITIALS for form in accepted)
        self._are_numbers = all(map(_BEGINNING_WITH_INTEGER.fullmatch, accepted)) and set(_NUMBER_RULES).isdisjoint(
            re.findall("[a-z]+", self._answers)
        )
        starts = [form.split()[0] for form in accepted if re.search(r"\d", form.split()[0])]
        integers = [_INTEGER_OR_WORD.fullmatch(word) for word in starts]
        self._masks_last_number = self._ascii and all(integers)
        self._integers = [int(match[1]) for match in integers if match and match[1]]
        self._have_day = any(_DAY.fullmatch(str(integer)) for integer in self._integers)
        wars = ["world"] if self._may_become_answer("1") else []
        self._first_rules = _lines(*_NUMBER_WORDS, *(_DATE_WORDS if self._have_day else ()), *wars)
        """Words that change the meaning of what follows, or may be an answer, behind a placeholder and near numbers."""
        if self._are_words:
            self._rules = _lines("the", "an", "ph")
        elif self._are_numbers:
            rules = ("the", "an", *self._first_rules.split(), *LARGE_NUMBERS, *ORDINALS, "and", "of", "war")
            self._rules = _lines(*rules)
        else:
            self._rules = _lines(*_RULES, *(_NUMBER_RULES if delicate else ()))
        self._right = right

    def of(self, prefix: bytes) -> bytes:
        """Return the canonical prefix after which each token has the same outcome as after ``prefix``."""
        text = _lower(_decoded(prefix))
        if not self._has_article_answer and self._are_plain(text):
            return self._in_plain_word
        if not self._applies(text):
            return prefix
        if not self._has_article_answer and text == "":
            return self._behind_plain_words
        if self._are_words and self._begins_no_answer(text):
            return _encoded(self._placeholder + self._end_of_other_word(text))
        text = self._masked(text)
        if not self._has_article_answer and (text == self._placeholder or not text.startswith(self._placeholder)):
            text = f"{self._placeholder} {text.lstrip(' ')}"
        if not self._right(_readable(text)):
            text = self._with_masked_end(self._without_separators(text))
        return _encoded(text)

    def next(self, state: bytes, token: bytes) -> bytes | None:
        """Return the canonical prefix after one more token, if both are plain; else None.

        A plain prefix ends in words that are in no answer and no rule. A plain token is another one, or continues one.
        """
        word = token.removeprefix(b" ")
        if not (self._masks_plain_words and word.isalpha()):
            return None
        if state == self._in_plain_word and len(word) == len(token):
            return state
        is_clear = state in (self._behind_plain_words, self._in_plain_word)
        return self._in_plain_word if is_clear and self._are_plain(word.decode().lower()) else None

    def is_in_plain_word(self, state: bytes) -> bool:
        """Return True for the canonical prefix within or behind a word in no answer, before a boundary."""
        return self._placeholder != "" and state == self._in_plain_word

    def is_behind_plain_words(self, state: bytes) -> bool:
        """Return True for the canonical prefix after words in no answer."""
        return self._placeholder != "" and state == self._behind_plain_words

    def of_reply(self, reply: bytes) -> str:
        """Return the canonical prefix for a whole reply: it is right, and stays right, where ``reply`` does."""
        text = _decoded(reply)
        return _readable(self._with_masked_end(self._masked(_lower(text))) if self._applies(text) else text)

    def _are_plain(self, text: str) -> bool:
        """Return True for words in lower case if none of them, and no longer last word, is in an answer or a rule."""
        if not (self._masks_plain_words and _WORDS_ALONE.fullmatch(text)):
            return False
        words = text.split()
        return _BEGINNINGS_OF_RULES.isdisjoint(words) and not any(map(self._answers.__contains__, words))

    def _applies(self, text: str) -> bool:
        """Return True if a prefix has a canonical form: there is a placeholder, and it is one line."""
        return self._placeholder != "" and (text.isprintable() or not _LINE_BREAK.search(text))

    def _masked(self, text: str) -> str:
        """Return a prefix with placeholders for the words before its end, without what they separate from the end."""
        if self._ascii and not text.isascii():
            text = _UNSEGMENTED_TEXT.sub(self._unsegmented_or_placeholder, text)
            text = _FOREIGN_WORD.sub(self._ascii_or_placeholder, text)
        text = _SEPARATORS.sub(";", text)
        closed, signs = (_CLOSED_TERM, _SEPARATING) if self._are_words else (_CLOSED_WORD, " ,.;!)")
        text = closed.sub(self._word_or_placeholder, text)
        before = signs if self._are_words else " "
        for match in reversed([*re.finditer(rf"(?<![^{before}]){self._placeholder}(?=[{signs}])", text)]):
            if not self._right(_readable(text[: match.end()])):
                return text[match.start() :]
        return text

    def _without_separators(self, text: str) -> str:
        """Return a prefix that is not right, without the signs and words that mean nothing behind its placeholder."""
        if not ((self._are_words or self._are_numbers) and text.startswith(self._placeholder)):
            return text
        if self._are_numbers:
            text = self._inert_words.sub(self._placeholder, text)
        separated = _SEPARATED_WORDS if self._are_words else _SEPARATED_NUMBER
        parts = separated.fullmatch(text, len(self._placeholder))
        if parts is None:
            return text
        return self._placeholder + (self._before_words if self._are_words else self._before_number)(parts[1], parts[2])

    def _before_words(self, signs: str, end: str) -> str:
        """Return the end of a prefix, and the signs before it, without words that begin no answer."""
        if self._begins_no_answer(end):
            return self._end_of_other_word(end)
        if signs.endswith(" ") or re.match(r"[a-z]{2}|\d" if self._may_be_initials else r"(?![a-z] )", end):
            signs = " "
        elif signs != "." and (not end or end[0].isalpha()):
            signs = ";"
        if words := _WORDS.fullmatch(end):
            return self._last_words(words[1], words[2])
        if (initials := _INITIALS.fullmatch(end)) and not end.endswith("a"):
            letters = re.sub("[^a-z]", "", end)
            if not any(self._begins_answer(letters[place : place + 2]) for place in range(len(letters))):
                end = f"{self._placeholder[0]}{initials[1]}"
        return f"{signs}{end}"

    def _begins_no_answer(self, text: str) -> bool:
        """Return whether no word of a text can be part of an answer of words, nor make one of its letters."""
        words = None if self._may_be_initials else _PLAIN.fullmatch(text)
        return words is not None and not any(map(self._begins_answer, _TERM.findall(text)))

    def _end_of_other_word(self, text: str) -> str:
        """Return the end of a canonical prefix for a text without an answer's words: within a word, or after one."""
        return f" {self._placeholder}" if text[-1:].isalnum() else " "

    def _last_words(self, text: str, closing: str) -> str:
        """Return a prefix's last words from the first that may begin an answer, and the signs behind them."""
        if closing not in ("", "."):
            closing = " " if closing.endswith(" ") else ";"
        *words, last = re.findall("[a-z]+", text)
        words = [word for word in words if word not in ARTICLES]
        ends = [] if closing else [last]
        if closing and last not in ARTICLES:
            words.append(last)
        may_be_dropped = not closing and any(article.startswith(last) for article in ARTICLES)
        while words and not self._begins_answer("".join(words + ends)):
            if may_be_dropped and self._begins_answer("".join(words)):
                break
            del words[0]
        words += ends
        if words:
            return f" {' '.join(words)}{closing}"
        return closing if self._may_be_initials else " "

    def _before_number(self, signs: str, end: str) -> str:
        """Return the end of a prefix, and the signs before it, without a number that has ended and is in no date."""
        if signs.endswith(" ") or (signs[-1] in ";!#*/=+" and end[:1].isdigit()):
            signs = " "
        elif signs[-1] in ";!#*/=+":
            signs = ";"
        if signs != " ":
            return f"{signs}{end}"
        number = _LAST_NUMBER.fullmatch(end)
        if number is None or len(number[1] + number[2]) > _MAX_DIGITS:
            return f" {self._number_word_or_placeholder(end)}"
        digits, decimals, closing = number.groups()
        if re.fullmatch(r"[,.]?| *", closing):
            return f" {self._number_or_placeholder(digits, decimals)}{closing[:1]}"
        if closing[-1] in ",.)" or self._number_placeholder is None or self._may_become_answer(digits + decimals):
            return f" {end}"
        closing = " " if closing.endswith(" ") else ";"
        if self._have_day and not decimals and "+" not in number[3] and _DAY.fullmatch(digits):
            return f" {self._number_placeholder};{closing.strip(';')}"
        return closing

    def _with_masked_end(self, text: str) -> str:
        """Return a prefix with a placeholder for its last word, if no continuation of that can be part of an answer."""
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
        if before == first and self._are_words:
            masked = not self._begins_answer(word)
        elif before == first and self._are_numbers:
            masked = f"\n{word}" not in self._first_rules
        else:
            masked = word not in self._answers and f"{start}{word}" not in self._rules
        if not masked:
            return text
        end = self._placeholder[: len(word)]
        if before[-1:] in (" ", ";", ",") and not self._right(_readable(before + end)):
            before = first
        return before + (self._placeholder if before == first and (self._are_words or self._are_numbers) else end)

    def _letter_or_placeholder(self, letter: str) -> str:
        """Return a letter that may begin a word or an initial of an answer, or an article; a placeholder for others."""
        if self._are_numbers:
            return letter if f"\n{letter}" in self._first_rules or letter in "aivx" else "q"
        placeholder = self._placeholder[0]
        if not self._are_words or letter == "a" or self._begins_answer(letter) or self._begins_answer(placeholder):
            return letter
        return placeholder

    def _number_or_placeholder(self, number: str, decimals: str = "") -> str:
        """Return a number that a token may complete to one of an answer; a placeholder for others.

        Further digits, "thousand" and its like leave the first digits as they are; a power may not. A comma may
        separate thousands after at most three digits: the placeholder has as many, or four.
        """
        placeholder = self._number_placeholder
        # "8.5s" holds the number 8
        may_become = self._may_become_answer(number + decimals) or int(number) in self._integers
        if not self._masks_last_number or placeholder is None or may_become:
            return number + decimals
        if decimals:
            return f"{placeholder}.{placeholder}"
        return placeholder * (4 if len(number) > 3 and not self._are_words else 1)

    def _number_word_or_placeholder(self, word: str) -> str:
        """Return a number in words that a token may complete to one of an answer; a similar one for others."""
        alike = next((words for words in _ALIKE_NUMBERS if word in words), ())
        values = {name: [value for longer, value in NUMBERS.items() if longer.startswith(name)] for name in alike}
        masked = [name for name in alike if not any(self._may_become_answer(str(value)) for value in values[name])]
        return masked[0] if word in masked else word

    def _may_become_answer(self, number: str) -> bool:
        """Return True if a token after a prefix's last number may make it one of an answer."""
        digits = number.replace(".", "").strip("0")
        if not digits or any(str(integer).strip("0").startswith(digits) for integer in self._integers):
            return self._integers != []
        exponents = range(1, _MAX_DIGITS // len(number) + 1)
        if number.isdecimal():
            return any(int(number) ** exponent in self._integers for exponent in exponents)
        powers = (Fraction(number) ** power for exponent in exponents for power in (exponent, -exponent))
        return any(power in self._integers for power in powers)

    def _begins_answer(self, letters: str) -> bool:
        return f"\n{letters}" in self._answers

    def _word_or_placeholder(self, match: re.Match[str]) -> str:
        word = match.group()
        if self._are_numbers and word in MONTH_NAMES:
            return "may" if word in MONTHS else "jan"
        is_masked = not any(part in self._answers for part in word.removesuffix("'s").split("'"))
        return self._placeholder if is_masked and f"\n{word}\n" not in self._rules else word

    def _ascii_or_placeholder(self, match: re.Match[str]) -> str:
        """Return a word without its accents, or a placeholder for one that has other letters."""
        word = unified(match.group(), self._accents)
        if not (match.group().isalpha() and word.isalpha()) or _UNSEGMENTED.search(word) or len(word) < 2:
            return match.group()
        return word if word.isascii() else self._placeholder

    def _unsegmented_or_placeholder(self, match: re.Match[str]) -> str:
        word = match.group()
        is_masked = not any(map(str.isdigit, word)) and set(unified(word)).isdisjoint(self._answers)
        return _UNSEGMENTED_PLACEHOLDER if is_masked else word

    @cached_property
    def _number_placeholder(self) -> str | None:
        """Placeholder of numbers: a digit that begins no number of an answer; None if there is none."""
        return next((digit for digit in "896" if not self._may_become_answer(digit)), None)

    @cached_property
    def _inert_words(self) -> re.Pattern[str]:
        """Pattern of a placeholder and words of the rules that mean nothing behind it."""
        words = "|".join(word for word in self._rules.split() if f"\n{word}\n" not in self._first_rules)
        return re.compile(rf"{self._placeholder}(?:[ ,.;!)]+(?:{words}))+(?=[ ,.;!)])")

    @cached_property
    def _behind_plain_words(self) -> bytes:
        """Canonical prefix after words in no answer."""
        return _encoded(f"{self._placeholder} ")

    @cached_property
    def _in_plain_word(self) -> bytes:
        """Canonical prefix within or behind a word in no answer, before a boundary."""
        return _encoded(f"{self._placeholder} {self._placeholder}")

    @cached_property
    def _masks_plain_words(self) -> bool:
        return self._masks_last_word and self._placeholder != ""

    @cached_property
    def _placeholder(self) -> str:
        """Placeholder of words: three letters, the first two in no answer and no rule; empty if there is none."""
        pairs = (first + second for first, second in product("zqxjvkw", repeat=2))
        excluded = f"{self._answers}{_ALL_RULES}"
        return next((f"{pair}{pair[0]}" for pair in pairs if pair not in excluded), "")


def _lines(*words: str) -> str:
    """Return words of answers or rules on a line each, between line breaks."""
    return "\n".join(("", *words, ""))


_ALL_RULES = _lines(*_RULES, *_NUMBER_RULES)
_BEGINNINGS_OF_RULES = frozenset(rule[:length] for rule in _ALL_RULES.split() for length in range(1, len(rule) + 1))


def _lower(text: str) -> str:
    """Return a prefix with ASCII letters in lower case, and signs that normalisation replaces as it writes them."""
    if text.isascii():
        return text.lower().replace("`", "'").replace("&", " and ")
    return text.translate(_LOWER)


def _decoded(text: bytes) -> str:
    """Return a prefix as text, in which surrogates stand for the bytes of incomplete characters."""
    return text.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _readable(text: str) -> str:
    """Return the text of a prefix with U+FFFD for the bytes of incomplete characters."""
    return _encoded(text).decode("utf-8", "replace")
