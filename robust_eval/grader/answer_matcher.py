"""Whether a reply contains an accepted answer, and which next tokens would make it so.

A model that grows the tree of all answers asks, at every prefix, which of some 50,000 tokens end it rightly. Comparing
every one of them would take a second. Nearly all tokens change nothing: they are judged together, by one that stands
for all that go on with the last word and one that stands for all that begin another. Only tokens that could bring an
accepted answer about, or undo it, are judged one by one, and by the same rule as a whole reply.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np

from robust_eval.model.base import NextTokens
from robust_eval.model.token_texts import Ids, Mask, TokenTexts, incomplete_bytes, is_boundary
from robust_eval.normalization import LARGE_NUMBERS, NUMBER_WORDS, NUMBERS, normalize, unified

_LETTER = "\u0298"  # ʘ: a letter that stands for every letter that goes on with a word, and is in no accepted answer
_NEXT_WORD = f" {_LETTER}"
_NUMBER_MAY_GO_ON = re.compile(rf"(?:\d|\b(?:{'|'.join(NUMBER_WORDS)}|and|a))\W*[^\W\d_]*$|[-−.]$")
_NUMBER = re.compile(rf"\d|\b(?:{'|'.join(NUMBER_WORDS)})\b")
_WHOLE = r"(?<![^\W_])(?:{})(?![^\W_])"  # no letter or digit stands beside it
_NUMBER_WORD = re.compile("|".join(NUMBER_WORDS))
_WHOLE_NUMBER_WORD = re.compile(_WHOLE.format("|".join(NUMBER_WORDS)))
_ALPHANUMERIC = re.compile(r"[^\W_]+")
_LEFT_OUT = str.maketrans("", "", ".,")
"""What a normal form leaves out between letters ("U.S.") and between digits ("1,000")."""
_DOTTED = re.compile(r"(?:^|[^\w.])(?:[^\W\d_]\.)*([^\W\d_])?$")  # "U", "U.S" or "U.S.": may become an abbreviation


class AnswerMatcher:
    """The accepted answers to one question, as normal forms; a reply is right if it contains one as whole words."""

    def __init__(self, accepted: Sequence[str]) -> None:
        self.identity = f"whole words {list(accepted)}"
        self._accepted = accepted
        self._without_number = [form for form in accepted if not _NUMBER.search(form)]
        self._numeric = len(self._without_number) < len(accepted)
        self._ascii = all(form.isascii() for form in accepted)
        self._last_words = {form.split()[-1] for form in accepted}
        # of each last word the longest run of letters and digits, and a number also in words: no right reply lacks all
        self._needed = {max(_ALPHANUMERIC.findall(word), key=len, default="") for word in self._last_words}
        self._needed |= {word for word, value in NUMBERS.items() if str(value) in self._needed}

    @cached_property  # most runs ask a matcher for no more than its identity
    def _pattern(self) -> re.Pattern[str]:
        return whole_words(*self._accepted)

    @cached_property
    def _needed_pattern(self) -> re.Pattern[str]:
        return re.compile(_WHOLE.format("|".join(map(re.escape, self._needed))))

    @cached_property
    def _words_pattern(self) -> re.Pattern[str]:
        return whole_words(*self._without_number) if self._without_number else re.compile(r"(?!)")

    def right(self, reply: str) -> bool:
        """Tell whether the first line of a reply contains an accepted answer."""
        return self._pattern.search(normalize(reply)) is not None

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
            if self._numeric:
                closed |= right & lexicon.safe & ~lexicon.number
        begun = unified(text)
        judged: dict[str, tuple[bool, bool]] = {}
        for token in self._decisive(prefix, text, texts):
            key = texts.keys[token]
            if not key.isascii():  # it may change the character before it
                whole = (prefix + texts.raw[token].split(b"\n", 1)[0]).decode("utf-8", "replace")
                right[token], stays = self._judged(whole)
                closed[token] = stays and not texts.incomplete[token]
                continue
            if key not in judged:  # "one", "One" and "ONE" say the same
                possible = self._possible(begun + key)
                judged[key] = self._judged(text + key) if possible else (False, False)
            right[token], closed[token] = judged[key]
        return NextTokens(right, closed, self._begun(text, texts))

    def _possible(self, text: str) -> bool:
        """Return False where a reply cannot be right, as is told at once: no word of it is the last of an answer."""
        if "." in text or "," in text:  # they may be left out between letters ("U.S.") and between digits ("1,000")
            letters = text.translate(_LEFT_OUT)
            number = self._numeric and _NUMBER_WORD.search(letters) is not None
            return number or any(word in letters for word in self._needed)
        if self._needed_pattern.search(text):
            return True
        numbers = _WHOLE_NUMBER_WORD.findall(text) if self._numeric else []
        return len(numbers) > 1 or not LARGE_NUMBERS.keys().isdisjoint(numbers)

    def _judged(self, reply: str) -> tuple[bool, bool]:
        """Return whether a reply is right, and whether it stays so whatever follows."""
        right = self.right(reply)
        return right, right and self._stays_right(reply)

    def _stays_right(self, reply: str) -> bool:
        """Tell whether the reply is right whatever follows; False also where that cannot be told so simply."""
        if self._settled(reply + _LETTER):
            return True
        return self._numeric and all(self.right(reply + more) for more in (_LETTER, *_number_goes_on(reply)))

    def _settled(self, reply: str) -> bool:
        """Tell whether the reply contains an accepted answer without a number: a number may go on beyond a boundary."""
        return self._words_pattern.search(normalize(reply)) is not None

    def _decisive(self, prefix: bytes, text: str, texts: TokenTexts) -> set[int]:
        """Return the tokens that might bring an accepted answer about or undo it."""
        lexicon = _lexicon(texts)
        word = _last_word(text)
        dotted = _DOTTED.search(text)
        tokens: set[int] = set()
        for target in self._last_words:
            tokens.update(texts.with_word(target))
            tokens.update(lexicon.abbreviations(target, dotted is not None))
        targets = [*self._last_words, *(NUMBER_WORDS if self._numeric else ())]
        for target in targets if word else ():
            if len(word) < len(target) and target.startswith(word):
                tokens.update(texts.starting_with(target[len(word) :]))
        if self._numeric and _NUMBER_MAY_GO_ON.search(unified(text[-64:])):
            tokens.update(lexicon.number_ids)
        elif self._numeric:
            for target in self._last_words:
                tokens.update(lexicon.numbers_with(target))
        if not self._ascii or self.right(text) or self.right(text + 2 * _LETTER):
            tokens.update(lexicon.mark_ids)
        if incomplete_bytes(prefix):
            tokens.update(lexicon.inside_character_ids)
        if dotted:
            if dotted.group(1):
                tokens.update(lexicon.dot_ids)
            elif text.endswith("."):
                tokens.update(lexicon.single_letter_ids)
        return tokens

    def _begun(self, text: str, texts: TokenTexts) -> Ids:
        """Return tokens that begin an accepted answer or go on with one without ending it: the likeliest to end
        rightly.
        """
        reply = normalize(text)
        tokens: set[int] = set()
        for form in self._accepted:
            tokens.update(_lexicon(texts).beginning(form))
            for done in range(1, len(form)):
                if reply.endswith(form[:done]) and reply[:-done][-1:] in ("", " "):
                    tokens.update(_lexicon(texts).beginning(form[done:]))
        return np.array(sorted(tokens), dtype=np.intp)


@lru_cache(maxsize=1 << 14)
def whole_words(*forms: str) -> re.Pattern[str]:
    """Finds any of some normal forms in another, as whole words."""
    return re.compile("|".join(rf"(?<!\S){re.escape(form)}(?!\S)" for form in forms))


class _Lexicon:
    """Kinds of tokens in one vocabulary that matter to the comparison of answers."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        # of this vocabulary alone: there may be one for each place of an answer, which must not outlive it
        self.numbers_with = lru_cache(maxsize=1 << 14)(self._numbers_with)
        self.abbreviations = lru_cache(maxsize=1 << 14)(self._abbreviations)
        self.beginning = lru_cache(maxsize=1 << 14)(self._beginning)

    @cached_property
    def number(self) -> Mask:
        """Tokens after which a number before them may not have ended."""
        words = "|".join(NUMBER_WORDS)
        continuing = re.compile(rf"[^\w]*(?:\d|(?:{words}|and)(?![^\W\d_]))")
        mask = self._texts.matching(continuing)
        for token, key in enumerate(self._texts.keys):
            begun = re.match(r"[\W_]*([^\W\d_]*)$", key)  # a boundary, then a word that may not be whole
            if begun and any(word.startswith(begun.group(1)) for word in (*NUMBER_WORDS, "and")):
                mask[token] = True
        return mask

    @cached_property
    def number_ids(self) -> list[int]:
        """Tokens that go on with a number, or are one."""
        words = "|".join(NUMBER_WORDS)
        return _ids(self._texts.matching(re.compile(rf"[^\w]*(?:\d|(?:{words})(?![^\W\d_]))")))

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
        return _ids(self._texts.matching(re.compile(r"[^\W\d_](?![^\W_])")))

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


def _number_goes_on(reply: str) -> Iterable[str]:
    """Yield continuations that would make another number of one at the end of a reply."""
    word = _last_word(reply)
    yield from ("0", ".5", ",000", "-one", " one", " hundred", " million", " and one", " thousand")
    for number in NUMBER_WORDS:
        if number.startswith(word):
            yield number[len(word) :]
            yield number[len(word) :] + " one"
