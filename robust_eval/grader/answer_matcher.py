"""Whether a reply contains an accepted answer, and which next tokens would make it so.

A model that grows the tree of all answers asks, at every prefix, which of some 50,000 tokens end it rightly. Comparing
every one of them would take a second. Nearly all tokens change nothing: they are judged together, by one that stands
for all that go on with the last word and one that stands for all that begin another. Only tokens that could bring an
accepted answer about, or undo it, are judged one by one, and by the same rule as a whole reply.
"""

import bisect
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np

from robust_eval.grader.accepted import compounds, holds_compound, with_spellings
from robust_eval.model.base import NextTokens
from robust_eval.model.token_texts import Ids, Mask, TokenTexts, incomplete_bytes, is_boundary
from robust_eval.normalization import (
    KEYS,
    MONTH_NAMES,
    MONTHS,
    SIGNS,
    UNITS,
    UNSEGMENTED,
    forms,
    normalize,
    unified,
    whole_words,
)
from robust_eval.numerals import LARGE_NUMBERS, NUMBERS, ORDINALS, ROMAN

_LETTER = "\u0298"  # ʘ: a letter that stands for every letter that goes on with a word, and is in no accepted answer
_NEXT_WORD = f" {2 * _LETTER}"  # of two letters: one alone may be an initial
_WORDS_OF_NUMBERS = (*NUMBERS, *LARGE_NUMBERS, *ORDINALS, *ROMAN)
_WORDS_OF_A_NUMBER = "|".join((*_WORDS_OF_NUMBERS, *MONTH_NAMES))
_MAY_GO_ON = re.compile(rf"(?:\d|\b(?:{_WORDS_OF_A_NUMBER}|and|a|of|no|minus|negative))\W*[^\W\d_]*$|[-−.]$")
_NUMBER = re.compile(rf"\d|\b(?:{_WORDS_OF_A_NUMBER})\b")
_DELICATE = re.compile(rf"{_NUMBER.pattern}|(?<!\S)[^\W\d_](?!\S)|[^\w\s]")
"""Forms that later text may change: a number, a single letter, a sign."""
_WHOLE = r"(?<![^\W_])(?:{})(?![^\W_])"  # no letter or digit stands beside it
_NUMBER_WORD = re.compile(rf"\d|{'|'.join(_WORDS_OF_NUMBERS)}")
_WHOLE_NUMBER_WORD = re.compile(rf"\d|{_WHOLE.format('|'.join(_WORDS_OF_NUMBERS))}")
_ALPHANUMERIC = re.compile(r"[^\W_]+")
_ALPHANUMERIC_RUNS = re.compile(r"[\W_]+")
"""Characters between the letters of a word ("U. S.", "O'Brien", "bee-keeper") and the digits of a number."""
_LETTERS = re.compile(r"(?:^|[^\w.])(?:[^\W\d_](?:\.\s?|\s))*([^\W\d_])?$")  # "U", "U.S" or "J. R. ": may be initials
_UNSEGMENTED_END = re.compile(f"[{UNSEGMENTED}\uac00-\ud7a3]\\Z")
_ARTICLE = re.compile(r"(?<![^\W_])(?:a|an|the)(?![^\W_])")
_NO_LETTERS = "".join(map(chr, range(48))) + ":;<=>?@[\\]^_`{|}~–—‐’‘“”…"
_BINDING = r"[+#^/×*·'’.-]"
_SPOKEN = {sign: (*words, *(["cent"] if sign == "%" else [])) for sign, words in SIGNS.items()}


class AnswerMatcher:
    """The accepted answers to one question, as normal forms; a reply is right if it contains one as whole words."""

    def __init__(self, accepted: Sequence[str], accents: str = "fold", lenient: bool = True) -> None:
        accepted = tuple(accepted)
        self._strict = accepted
        self.identity = f"whole words {list(accepted)} accents {accents} {'lenient' if lenient else 'strict'}"
        self._compounds = compounds(accepted) if lenient else ()
        accepted = with_spellings(accepted) if lenient else accepted
        self._accepted = accepted
        self._accents = accents
        self._plain = [form for form in accepted if not _DELICATE.search(form)]
        self._delicate = len(self._plain) < len(accepted)
        self._ascii = all(form.isascii() for form in accepted)
        self._signs = {letter for form in accepted for letter in form if not (letter.isalnum() or letter.isspace())}
        ends = {form.split()[-1] for form in accepted}
        spoken = {word for end in ends for word in (*_SPOKEN.get(end, ()), *_abbreviations_of(end))}
        spoken |= {word for word, value in (*ROMAN.items(), ("i", 1)) if str(value) in ends}
        self._last_words = ends | spoken | ({"sharp"} if "#" in self._signs else set())
        # of each last word the longest run of letters and digits, and a number also in words: no right reply lacks all
        self._needed = {max(_ALPHANUMERIC.findall(unified(word)), key=len, default="") for word in self._last_words}
        self._needed |= {word for word, value in NUMBERS.items() if str(value) in self._needed}

    @cached_property  # most runs ask a matcher for no more than its identity
    def _pattern(self) -> re.Pattern[str]:
        return whole_words(*self._accepted)

    @cached_property
    def _needed_pattern(self) -> re.Pattern[str]:
        return re.compile(_WHOLE.format("|".join(map(re.escape, self._needed))))

    @cached_property
    def _plain_pattern(self) -> re.Pattern[str]:
        return whole_words(*self._plain) if self._plain else re.compile(r"(?!)")

    def right(self, reply: str) -> bool:
        """Return whether the first line of a reply contains an accepted answer."""
        return any(
            self._pattern.search(form) is not None or holds_compound(form, self._compounds)
            for form in forms(reply, self._accents)
        )

    def next_tokens(self, prefix: bytes, texts: TokenTexts) -> NextTokens:
        """Return what each token of a vocabulary makes of the reply that begins with ``prefix`` (no line
        break in it).
        """
        text = prefix.decode("utf-8", "replace")
        right, closed = np.zeros((2, len(texts)), dtype=bool)
        if self.right(text) or self.right(text + 2 * _LETTER) or self.right(text + _NEXT_WORD):
            lexicon = _lexicon(texts)
            right = np.where(texts.goes_on, self.right(text + 2 * _LETTER), self.right(text + _NEXT_WORD))
            right[texts.empty] = self.right(text)
            closed = lexicon.safe & self._settled(text + _NEXT_WORD)
            if self._delicate:
                closed |= right & lexicon.safe & ~lexicon.unsettling
        begun = unified(text)
        judged: dict[str, tuple[bool, bool]] = {}
        for token in self._decisive(prefix, text, texts):
            key = texts.keys[token]
            if not (key.isascii() and texts.raw[token].isascii()):  # it may change the character before it
                whole = (prefix + texts.raw[token].split(b"\n", 1)[0]).decode("utf-8", "replace")
                right[token], stays = self._judged(whole)
                closed[token] = stays and not texts.incomplete[token]
                continue
            if key not in judged:  # "one", "One" and "ONE" say the same
                possible = self._possible(begun + key)
                judged[key] = self._judged(text + key) if possible else (False, False)
            right[token], closed[token] = judged[key]
        closed &= ~_lexicon(texts).power  # what stands behind "^" is a part of the word before it
        return NextTokens(right, closed, self._begun(text, texts))

    def _possible(self, text: str) -> bool:
        """Return False where a reply cannot be right because no word of it is the last of an answer."""
        if self._needed_pattern.search(text) or not text.isascii():
            return True
        if self._delicate and _WHOLE_NUMBER_WORD.search(text):
            return True
        letters = _ALPHANUMERIC_RUNS.sub("", text)  # of a word, signs and spaces may be left out
        number = self._delicate and _NUMBER_WORD.search(letters) is not None
        if number or any(word in letters for word in (*self._needed, *self._compounds)):
            return True
        if not (self._compounds and _ARTICLE.search(text)):
            return False
        joined = normalize(text, self._accents).replace(" ", "")
        return any(word in joined for word in self._compounds)

    def _judged(self, reply: str) -> tuple[bool, bool]:
        """Return whether a reply is right, and whether it stays so whatever follows."""
        right = self.right(reply)
        return right, right and self._stays_right(reply)

    def _stays_right(self, reply: str) -> bool:
        """Return whether the reply is certain to stay right."""
        if self._settled(reply + _LETTER):
            return True
        return self._delicate and all(self.right(reply + more) for more in (_LETTER, _NEXT_WORD, *_goes_on(reply)))

    def _settled(self, reply: str) -> bool:
        """Return whether the reply contains an accepted answer that no later word changes."""
        return self._plain_pattern.search(normalize(reply, self._accents)) is not None

    def _decisive(self, prefix: bytes, text: str, texts: TokenTexts) -> set[int]:
        """Return the tokens that might bring an accepted answer about or undo it."""
        lexicon = _lexicon(texts)
        begun = {_last_word(text), _last_word(text.replace("'", "").replace("’", ""))}
        letters = _LETTERS.search(text)
        tokens: set[int] = set()
        for target in self._last_words:
            tokens.update(texts.with_word(target))
            tokens.update(lexicon.abbreviations(target, letters is not None))
            if _UNSEGMENTED_END.search(target):
                tokens.update(lexicon.containing(target[-1]))
        targets = [*self._last_words, *(_WORDS_OF_NUMBERS if self._delicate else ())]
        for word in filter(None, begun):
            for target in targets:
                if len(word) < len(target) and target.startswith(word):
                    tokens.update(texts.starting_with(target[len(word) :]))
                    tokens.update(lexicon.apostrophe_ids)
        if self._delicate and _MAY_GO_ON.search(unified(text[-64:])):
            tokens.update(lexicon.number_ids)
            tokens.update(lexicon.unit_ids)
        elif self._delicate:
            for target in self._last_words:
                tokens.update(lexicon.numbers_with(target))
        if not self._ascii or self.right(text) or self.right(text + 2 * _LETTER):
            tokens.update(lexicon.mark_ids)
            tokens.update(lexicon.binding_ids)
        tokens.update(self._compounding(text, texts))
        for sign in self._signs:
            tokens.update(lexicon.containing(sign))
        if incomplete_bytes(prefix):
            tokens.update(lexicon.inside_character_ids)
        if letters:
            tokens.update(lexicon.single_letter_ids)
            tokens.update(lexicon.after_letter_ids)
            if letters.group(1):
                tokens.update(lexicon.dot_ids)
        return tokens

    def _compounding(self, text: str, texts: TokenTexts) -> Iterable[int]:
        """Yield the tokens that end a word which may be written with spaces inside."""
        end = text[-64:]
        written = {_ALPHANUMERIC_RUNS.sub("", unified(end)), normalize(end, self._accents).replace(" ", "")}
        for word in self._compounds:
            yield from texts.with_word(word)
            for length in range(1, len(word)):
                if any(each.endswith(word[:length]) for each in written):
                    yield from _lexicon(texts).beginning_with(word[length:])

    def _begun(self, text: str, texts: TokenTexts) -> Ids:
        """Return tokens that begin an accepted answer or go on with one without ending it: the likeliest to end
        rightly.
        """
        reply = normalize(text, self._accents)
        tokens: set[int] = set()
        for form in self._strict:
            tokens.update(_lexicon(texts).beginning(form))
            for done in range(1, len(form)):
                if reply.endswith(form[:done]) and reply[:-done][-1:] in ("", " "):
                    tokens.update(_lexicon(texts).beginning(form[done:]))
        return np.array(sorted(tokens), dtype=np.intp)


def _abbreviations_of(word: str) -> list[str]:
    """Return what a month is abbreviated to."""
    return [name for name, month in MONTH_NAMES.items() if month == word and name not in MONTHS]


class _Lexicon:
    """Kinds of tokens in one vocabulary that matter to the comparison of answers."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        # of this vocabulary alone: there may be one for each place of an answer, which must not outlive it
        self.numbers_with = lru_cache(maxsize=1 << 14)(self._numbers_with)
        self.abbreviations = lru_cache(maxsize=1 << 14)(self._abbreviations)
        self.beginning = lru_cache(maxsize=1 << 14)(self._beginning)
        self.containing = lru_cache(maxsize=1 << 10)(self._containing)

    @cached_property
    def unsettling(self) -> Mask:
        """Tokens after which a number, a letter or a sign before them may not have ended."""
        words = (*_WORDS_OF_NUMBERS, *MONTH_NAMES, *KEYS, "and", "of", "x")
        continuing = re.compile(rf"[^\w]*(?:\d|(?:{'|'.join(words)})(?![^\W\d_])|[^\W\d_](?![^\W\d_]))|{_BINDING}")
        mask = self._texts.matching(continuing)
        for token, key in enumerate(self._texts.keys):
            begun = re.match(r"[\W_]*([^\W\d_]*)$", key)  # a boundary, then a word that may not be whole
            if begun and (len(begun.group(1)) < 2 or any(word.startswith(begun.group(1)) for word in words)):
                mask[token] = True
        return mask

    @cached_property
    def power(self) -> Mask:
        """Tokens that hold the sign of a power."""
        return np.array(["^" in key for key in self._texts.keys], dtype=bool)

    @cached_property
    def binding_ids(self) -> list[int]:
        """Tokens that begin with a sign that belongs to the word before it."""
        return _ids(self._texts.matching(re.compile(_BINDING)))

    def beginning_with(self, text: str) -> list[int]:
        """Return the tokens whose first letters and digits are a text, whatever stands before them."""
        keys, ids = self._bare
        return ids[bisect.bisect_left(keys, text) : bisect.bisect_left(keys, text + "\U0010ffff")]

    @cached_property
    def _bare(self) -> tuple[list[str], list[int]]:
        bare = sorted((key.lstrip(_NO_LETTERS), token) for token, key in enumerate(self._texts.keys))
        return [key for key, _ in bare], [token for _, token in bare]

    @cached_property
    def apostrophe_ids(self) -> list[int]:
        """Tokens that begin with an apostrophe, which may be left out."""
        return self._texts.starting_with("'")

    @cached_property
    def unit_ids(self) -> list[int]:
        """Tokens that are a unit behind a number, or the end of one."""
        ends = {unit[place:] for unit in UNITS for place in range(len(unit))}
        return _ids(self._texts.matching(re.compile(rf"(?:{'|'.join(ends)})(?![^\W_])")))

    @cached_property
    def after_letter_ids(self) -> list[int]:
        """Tokens that make a name of the letter before them, as in "A minor"."""
        return _ids(self._texts.matching(re.compile(rf"\W*(?:{'|'.join(KEYS)})(?![^\W\d_])")))

    def _containing(self, text: str) -> list[int]:
        return self._those(lambda key: text in key)

    @cached_property
    def number_ids(self) -> list[int]:
        """Tokens that go on with a number, or are one."""
        return _ids(self._texts.matching(re.compile(rf"[^\w]*(?:\d|(?:{_WORDS_OF_A_NUMBER})(?![^\W\d_]))")))

    def _numbers_with(self, word: str) -> list[int]:
        """Return those of the tokens that go on with a number, or are one, that bring a word about by themselves."""
        pattern = whole_words(word)
        return [token for token in self.number_ids if pattern.search(normalize(self._texts.keys[token]))]

    @cached_property
    def mark_ids(self) -> list[int]:
        """Tokens that begin with a mark that is combined with the letter before it."""
        return self._those(lambda key: key != "" and unicodedata.category(key[0])[0] == "M")

    @cached_property
    def inside_character_ids(self) -> list[int]:
        return _ids(self._texts.inside_character)

    @cached_property
    def dot_ids(self) -> list[int]:
        return self._texts.starting_with(".")

    @cached_property
    def single_letter_ids(self) -> list[int]:
        """Tokens that begin with one letter by itself."""
        return _ids(self._texts.matching(re.compile(r"\s?[^\W\d_](?![^\W_])")))

    @cached_property
    def safe(self) -> Mask:
        """Tokens that surely end the word before them; a part of a character may turn out to be a letter."""
        part = np.array([token[:1] >= b"\xc0" for token in self._texts.raw], dtype=bool) & self._texts.incomplete
        return np.asarray(~self._texts.goes_on & ~self._texts.empty & ~part)

    @cached_property
    def _dotted(self) -> list[tuple[int, str]]:
        dotted = re.compile(r".*(?<![^\W\d_])[^\W\d_]\.|.*\.[^\W\d_](?![^\W\d_])")
        ids = _ids(self._texts.matching(dotted))
        return [(token, "".join(filter(str.isalpha, self._texts.keys[token]))) for token in ids]

    def _abbreviations(self, word: str, begun: bool) -> list[int]:
        """Return tokens with dotted letters that might stand for a word, or for its end where dotted letters have
        begun.
        """
        return [t for t, letters in self._dotted if word in letters or (begun and word.endswith(letters))]

    def _beginning(self, text: str) -> list[int]:
        """Return tokens that are the beginning of a text, but not all of it, with or without a space before."""
        starts = [text[:length] for length in range(1, len(text))]
        return [
            token for start in starts for token in (*self._texts.equal_to(start), *self._texts.equal_to(f" {start}"))
        ]

    def _those(self, condition: Callable[[str], bool]) -> list[int]:
        return [token for token, key in enumerate(self._texts.keys) if condition(key)]


@lru_cache(maxsize=4)
def _lexicon(texts: TokenTexts) -> _Lexicon:
    """Return the lexicon of a vocabulary, made once."""
    return _Lexicon(texts)


def _ids(mask: Mask) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _last_word(text: str) -> str:
    """Return the word that the text ends in the middle of, or at the end of; empty after a boundary."""
    key = unified(text[-64:])
    start = len(key)
    while start and not is_boundary(key[start - 1]):
        start -= 1
    return key[start:]


def _goes_on(reply: str) -> Iterable[str]:
    """Yield continuations that would make something else of a number, a letter or a sign at the end of a reply."""
    word = _last_word(reply)
    yield from (
        "0",
        "5",
        ".5",
        ",000",
        " 000 000",
        "-one",
        " one",
        " hundred",
        " million",
        " and one",
        " thousand",
        " first",
    )
    yield from (
        "^2",
        "e5",
        "/2",
        " 1/2",
        " × 10^3",
        " x 10^3",
        "th",
        " of May",
        " May",
        ". B.",
        " B C",
        ".B",
        "+",
        "#",
        "-",
    )
    yield from (" sharp", " flat", "'s", "\u0301")
    for number in _WORDS_OF_NUMBERS:
        if number.startswith(word):
            yield number[len(word) :]
            yield number[len(word) :] + " one"
