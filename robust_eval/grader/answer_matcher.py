"""Matcher of accepted answers in replies, and of the next tokens that complete one.

The tree of all answers needs, at every prefix, the tokens (of some 50,000) that end it rightly. Comparing each of them
would take a second. Nearly all tokens change nothing: they are judged together, by one that represents all
continuations of the last word and one that represents all beginnings of another. Only tokens that could complete an
accepted answer, or undo it, are judged one by one, by the rule for whole replies; none is judged after a reply that is
certain to stay right. All prefixes of one :mod:`state <robust_eval.grader.prefix_state>` have the same outcomes, which
are computed once per state.
"""

import bisect
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from robust_eval.grader.accepted_forms import compounds, holds, holds_compound, with_spellings
from robust_eval.grader.letter_filter import NUMBER_OR_MONTH, WORDS_OF_NUMBERS, LetterFilter, is_delicate, letters_of
from robust_eval.grader.prefix_state import PrefixStates
from robust_eval.model.base import TokenVerdict
from robust_eval.model.token_texts import (
    Mask,
    NextTokenOutcomes,
    OutcomeCodes,
    TokenTexts,
    grouped,
    incomplete_bytes,
    is_boundary,
)
from robust_eval.normalization import (
    ARTICLES,
    KEYS,
    MONTH_NAMES,
    UNITS,
    UNSEGMENTED,
    forms,
    has_words,
    normalize,
    unified,
)
from robust_eval.numerals import LARGE_NUMBERS, NUMBERS
from robust_eval.runtime.text import first_line

_LETTER = "\u0298"  # ʘ: represents every letter that continues a word, and is in no accepted answer
_NEXT_WORD = f" {2 * _LETTER}"  # of two letters: one alone may be an initial
_NUMBER_WORDS = frozenset(WORDS_OF_NUMBERS)
_MAY_GO_ON = re.compile(rf"(?:\d|\b(?:{NUMBER_OR_MONTH}|and|a|of|no|minus|negative))\W*[^\W\d_]*$|[-−.$€£¥₹₩₽]$")
_ASCII_ALPHANUMERIC = re.compile("[a-z0-9]")
_ALPHANUMERIC = re.compile(r"[^\W_]+")
_ALPHANUMERIC_RUNS = re.compile(r"[\W_]+")
"""Characters between the letters of a word ("U. S.", "O'Brien", "bee-keeper") and the digits of a number."""
_LETTERS = re.compile(r"(?:^|[^\w.])(?:[^\W\d_](?:\.\s?|\s))*([^\W\d_])?$")  # "U", "U.S" or "J. R. ": may be initials
_MAY_BE_DEGREE = re.compile("º|˚".encode())
"""Signs that later text may make a degree sign."""
_DOCTOR = re.compile(r"(?<![^\W_])ph(?:\.\s?)?$")  # "Ph" or "Ph.", before the "D" or ".D" of an initial
_UNSEGMENTED_END = re.compile(f"[{UNSEGMENTED}\uac00-\ud7a3]\\Z")
_NO_LETTERS = "".join(map(chr, range(48))) + ":;<=>?@[\\]^_`{|}~–—‐’‘“”…"
_UNSEGMENTED = re.compile(f"[{UNSEGMENTED}]")
_FOREIGN_LETTER = re.compile(rf"[{UNSEGMENTED}]|(?![a-z])[^\W\d_]")
_BINDING = r"[+#^/×*·'’.-]"
_BRACKETS = str.maketrans("]}", "))")
_SIGNS_AT_END = r"('s|[ -/:-@[-^`{-~–—]{0,2})"  # few: outcomes are kept for each sequence
_ENDING_IN_WORD = re.compile(rf"((?:.* )?)([a-z]{{3,}}){_SIGNS_AT_END}")
_ENDING_IN_NUMBER = re.compile(rf"[a-z]{{3}} ((?:the )?)([1-9]\d{{0,5}}|{'|'.join(NUMBERS)}){_SIGNS_AT_END}")
_CLOSING = re.compile(r"[;!)]|[.,](?=[^\w^])")
"""Signs that nothing but the parts of dates and initials is joined across."""
_LONG_RUN = re.compile(r"([^\w\s])\1{3,}")


class AnswerMatcher:
    """Matcher of the accepted answers to one question, in normalised form; right replies contain one as whole words."""

    def __init__(self, accepted: Sequence[str], accents: str = "fold", lenient: bool = True) -> None:
        accepted = tuple(accepted)
        self._strict = accepted
        self.identity = f"whole words {list(accepted)} accents {accents} {'lenient' if lenient else 'strict'}"
        self._compounds = compounds(accepted) if lenient else ()
        accepted = with_spellings(accepted) if lenient else accepted
        self._accepted = accepted
        self._spaced = [f" {form} " for form in accepted]
        self._accents = accents
        self._stays: dict[str, bool] = {}
        """True for right replies that are certain to stay right, by their canonical form."""
        self._behind_plain_words: dict[str, tuple[bool, bool]] = {}
        """Replies that begin with a word of no answer: is each right, and certain to stay right?"""
        self._plain = [form for form in accepted if not any(map(is_delicate, form.split()))]
        self._delicate = len(self._plain) < len(accepted)
        self._ascii = all(form.isascii() for form in accepted)
        self._signs = {letter for form in accepted for letter in form if not (letter.isalnum() or letter.isspace())}
        self._filter = LetterFilter(accepted, self._compounds)
        self._last_words = self._filter.last_words | ({"sharp"} if "#" in self._signs else set())
        self._completions = (self._last_words, self._compounds, frozenset(self._signs), self._delicate)
        self._last_letters = "".join(sorted({letter for word in self._last_words for letter in unified(word)[-1:]}))

    @cached_property  # most runs use only the identity of a matcher
    def _states(self) -> PrefixStates:
        return PrefixStates(self._accepted, self._accents, self._delicate, self._finds)

    def state(self, prefix: bytes) -> bytes:
        """Return the canonical prefix after which each token has the same outcome as after ``prefix``."""
        return self._states.of(prefix)

    def next_state(self, state: bytes, token: bytes) -> bytes | None:
        """Return the canonical prefix after one more token if it follows from that before; else None."""
        return self._states.next(state, token)

    def right(self, reply: str) -> bool:
        """Return True if the matcher finds an accepted answer in the first line of a reply."""
        for form in forms(reply, self._accents):
            if any(map(f" {form} ".__contains__, self._spaced)) or holds_compound(form, self._compounds):
                return True
            if not self._ascii and holds(form, self._accepted):
                return True
        return False

    def next_tokens(self, prefix: bytes, texts: TokenTexts) -> NextTokenOutcomes:
        """Return the :class:`TokenVerdict` on each token of a vocabulary after ``prefix``, which has no line break."""
        text = prefix.decode("utf-8", "replace")
        start = unified(text)
        verdicts = self._verdicts(prefix, text, start)
        is_whole = not (start.endswith("'") or incomplete_bytes(prefix))
        if any(verdicts) and is_whole and self._judged(prefix, False)[1]:  # no continuation undoes the answer
            return NextTokenOutcomes.of(_lexicon(texts).all_decided, {})
        tokens = self._decisive(prefix, text, start, texts, verdicts)
        to_judge = tokens if any(verdicts) else self._passing(prefix, start, tokens, texts)
        is_settled = any(verdicts) and self._settled(text + _NEXT_WORD)
        usual = _lexicon(texts).usual(verdicts, is_settled, self._delicate)
        judged = self._judged_tokens(prefix, text, to_judge, texts, verdicts)
        for token in self._begun(text, texts):
            if judged.get(token, usual.item(token)) == TokenVerdict.WRONG:
                judged[token] = TokenVerdict.BEGUN
        return NextTokenOutcomes.of(usual, judged)

    def _verdicts(self, prefix: bytes, text: str, start: str) -> "_Verdicts":
        """Return the verdicts on a prefix, of which ``start`` is the unified text."""
        if self._ascii and not _MAY_BE_DEGREE.search(prefix) and not self._filter.passes(start):
            return _Verdicts(False, False, False)
        return _Verdicts(self.right(text), self.right(text + 2 * _LETTER), self.right(text + _NEXT_WORD))

    def _passing(self, prefix: bytes, start: str, tokens: set[int], texts: TokenTexts) -> Iterable[int]:
        """Return those of some tokens that may make a prefix right; ``start`` is its unified text."""
        if not self._ascii:
            return tokens
        lexicon = _lexicon(texts)
        keys = texts.keys
        passing = []
        # the first character of a token may be the rest of the prefix's last one, or make a degree sign of it
        if length := len(prefix) if _MAY_BE_DEGREE.search(prefix) else incomplete_bytes(prefix):
            start, last = unified(prefix[:-length].decode("utf-8", "replace")), prefix[-length:]
            by_letters = grouped((letters_of(_unified_line(last + texts.raw[token])), token) for token in tokens)
        elif start.endswith("'"):  # perhaps a possessive
            by_letters = grouped((letters_of(f"'{keys[token]}"), token) for token in tokens)
        else:
            if lexicon.numeric_ids <= tokens:
                passing = self._filter.passing(start, lexicon.numeric_by_letters)
                tokens = tokens - lexicon.numeric_ids
            by_letters = grouped((letters_of(keys[token]), token) for token in tokens)
        return passing + self._filter.passing(start, by_letters)

    def _judged_tokens(
        self, prefix: bytes, text: str, tokens: Iterable[int], texts: TokenTexts, verdicts: "_Verdicts"
    ) -> dict[int, TokenVerdict]:
        """Return the verdict on each of some tokens."""
        lexicon = _lexicon(texts)
        stand_in = self._stand_in(text) if self._ascii and any(verdicts) else None
        shared = lexicon.shared_verdicts[stand_in, self._accents] if stand_in else {}
        is_in_word = self._states.is_in_plain_word(prefix)
        by_reply = self._behind_plain_words if is_in_word or self._states.is_behind_plain_words(prefix) else {}
        by_end: dict[str | bytes, tuple[bool, bool]] = {}
        shorter = (text.rpartition(" ")[0] if is_in_word else text).removesuffix(" ")
        may_merge_letters = self._ascii and not incomplete_bytes(prefix)

        def may_go_on(key: str) -> bool:
            """Return True if a token can complete an answer only with its last word, and may stop within that word."""
            return not any(verdicts) and key.isascii() and key.removeprefix(" ").isalnum()

        def judge(token: int, key: str, line: bytes, is_ascii: bool) -> tuple[bool, bool]:
            """Return True if a token leaves or makes the reply right, and True if it stays right for certain."""
            if is_in_word and key.isascii() and key.isalnum():  # it continues that word
                return False, False
            is_foreign = may_merge_letters and not is_ascii and token in lexicon.foreign
            is_mixed = not is_foreign or key.isascii()
            end = key if is_ascii else line if is_mixed else _with_like_letters(line, self._accents) or line
            if stand_in and stand_in.serves(key) and (is_ascii or is_foreign):
                if end not in shared:
                    rule = _matcher(stand_in.answer, self._accents)
                    shared[end] = rule._judged(stand_in.prefix.encode() + line, False)
                return shared[end]
            if not is_ascii:  # it may change the previous character
                if end not in by_end:
                    is_unfinished = bool(texts.incomplete[token]) or may_go_on(key)
                    by_end[end] = self._judged(prefix + line, is_unfinished)
                return by_end[end]
            reply = (shorter if key.startswith(" ") else text) + key
            if reply not in by_reply:  # "one", "One" and "ONE" have one key
                by_reply[reply] = self._judged(reply.encode(), may_go_on(key))
            return by_reply[reply]

        judged: dict[int, TokenVerdict] = {}
        space_decides = any(verdicts) and self._judged(f"{text} ".encode(), False)[1]
        decided_key = ""  # of a token that leaves the reply right for certain, as do all that begin with it
        for token in sorted(tokens, key=texts.keys.__getitem__):
            key, line = texts.keys[token], texts.raw[token].split(b"\n", 1)[0]
            is_ascii = key.isascii() and line.isascii()
            begins = decided_key and is_ascii and key.startswith(decided_key)
            if (space_decides and line.startswith(b" ")) or (begins and not key.startswith("'s", len(decided_key) - 1)):
                is_right, stays_right = True, True
            else:
                is_right, stays_right = judge(token, key, line, is_ascii)
                if stays_right and is_ascii and "^" not in key:
                    decided_key = key
            # the text after "^" belongs to the word before it, and an "s" after an apostrophe makes a possessive
            if stays_right and "^" not in key and not key.endswith("'"):
                judged[token] = TokenVerdict.DECIDED
            else:
                judged[token] = TokenVerdict.RIGHT if is_right else TokenVerdict.WRONG
        return judged

    def _stand_in(self, text: str) -> "_StandIn | None":
        """Return the prefix that stands in for ``text``, which ends in an accepted answer; None if it does not."""
        if self._delicate:
            ending = _ENDING_IN_NUMBER.fullmatch(text)
            if ending is None or ending[2] == "zero":  # which is never multiplied
                return None
            if self._accepted != (str(NUMBERS.get(ending[2], ending[2])),) or not self.right(text):
                return None
            return _StandIn.of_number(*ending.groups())
        ending = _ENDING_IN_WORD.fullmatch(text)
        if ending is None or not self._settled(ending[1] + ending[2]) or self._settled(ending[1]):
            return None
        return _StandIn.of_word(ending[3])

    def _finds(self, reply: str) -> bool:
        """Return whether a reply is right, without its normalised form if it lacks letters of every answer."""
        return (not self._ascii or self._filter.passes(unified(first_line(reply)))) and self.right(reply)

    def _judged(self, reply: bytes, is_unfinished: bool) -> tuple[bool, bool]:
        """Return True if a reply is right, and True if every continuation is; ``is_unfinished``: some are not."""
        is_right = self.right(reply.decode("utf-8", "replace"))
        if is_unfinished or not is_right:
            return is_right, False
        text = unified(self._states.of_reply(reply), self._accents).translate(_BRACKETS)
        state = _LONG_RUN.sub(r"\1\1\1", text)
        if self._ascii and not state.isascii():
            state = _FOREIGN_LETTER.sub(lambda match: _like_letter(match.group()), state)
        if not self._ascii:  # with foreign letters, each reply has a form of its own
            return True, self._stays_right(state)
        if state not in self._stays:
            self._stays[state] = self._stays_right(state)
        return True, self._stays[state]

    def _stays_right(self, reply: str) -> bool:
        """Return True if the reply is certain to stay right."""
        if reply.endswith("'s") or _DOCTOR.search(reply):  # "owl's+" has no possessive; "ph. d" is "phd"
            return False
        if self._settled(reply + _LETTER):
            return True
        if self._delicate and any(self._is_closed(reply[: sign.end()]) for sign in _CLOSING.finditer(reply)):
            return True
        return self._delicate and all(
            self.right(reply + more) for more in (_LETTER, _NEXT_WORD, *_continuations(reply))
        )

    def _is_closed(self, reply: str) -> bool:
        """Return True if a reply that ends in a sign of :data:`_CLOSING` is right, also before a date or initials."""
        return self.right(reply) and all(self.right(reply + more) for more in (_NEXT_WORD, " May", " 5", " B."))

    def _settled(self, reply: str) -> bool:
        """Return True if the reply contains an accepted answer that no later word can change."""
        return holds(normalize(reply, self._accents), self._plain)

    def _decisive(self, prefix: bytes, text: str, start: str, texts: TokenTexts, verdicts: "_Verdicts") -> set[int]:
        """Return the tokens that might complete an accepted answer or undo it."""
        lexicon = _lexicon(texts)
        tokens = set(lexicon.completing(*self._completions))
        if self._ascii and (self._states.is_in_plain_word(prefix) or self._states.is_behind_plain_words(prefix)):
            return tokens  # a placeholder begins no answer, number, initial or compound: only whole ones can follow
        end = start[-64:]
        begun = {_last_word(end)}
        if "'" in text or "’" in text:
            begun.add(_last_word(unified(text.replace("'", "").replace("’", "")[-64:])))
        if is_doctor := _DOCTOR.search(end) is not None:
            begun.add("ph")
        survives_letters = verdicts.before_letter
        stays_right = survives_letters or verdicts.at_end
        initials = _LETTERS.search(text)
        if initials and not stays_right and not any(map(str.isalpha, initials.group())):
            initials = None
        if is_doctor or initials:
            for target in self._last_words:
                tokens.update(lexicon.abbreviations(target, True))
        ending = texts.starting_with if survives_letters else texts.starting_with_end
        for word in filter(None, begun):
            for targets in (self._last_words, _NUMBER_WORDS)[: 1 + self._delicate]:
                for rest in _rests(word, targets):
                    tokens.update(ending(rest), lexicon.apostrophe_ids)
        if self._delicate and _MAY_GO_ON.search(end):
            tokens |= lexicon.numeric_ids
        if stays_right and not verdicts.before_word:
            tokens.update(lexicon.wordless_ids)
        if not self._ascii or stays_right:
            tokens.update(lexicon.mark_ids, lexicon.binding_ids)
        if self._compounds:
            tokens.update(self._compounding(text, texts, not survives_letters))
        if incomplete_bytes(prefix):
            tokens.update(lexicon.inside_character_ids)
        if initials:
            tokens.update(lexicon.after_letter_ids)
            tokens.update(lexicon.single_letter_ids if stays_right else lexicon.single_letters(self._last_letters))
            if initials.group(1):
                tokens.update(lexicon.dot_ids)
        return tokens

    def _compounding(self, text: str, texts: TokenTexts, end_word: bool) -> Iterable[int]:
        """Yield tokens that complete an accepted compound, perhaps with spaces; ``end_word``: no letter follows."""
        end = text[-64:]
        written = (_ALPHANUMERIC_RUNS.split(unified(end)), normalize(end, self._accents).split())
        starts = {"".join(words[place:]) for words in written for place in range(len(words))} - {""}
        for word in self._compounds:
            for start in starts:
                if word.startswith(start) and len(start) < len(word):
                    yield from _lexicon(texts).beginning_with(word[len(start) :], end_word)

    def _begun(self, text: str, texts: TokenTexts) -> Sequence[int]:
        """Return tokens that begin or continue an accepted answer without completing it."""
        reply = normalize(text, self._accents)
        rests = [
            form[done:]
            for form in self._strict
            for done in range(1, len(form))
            if reply[-1:] == form[done - 1] and reply.endswith(form[:done]) and reply[:-done][-1:] in ("", " ")
        ]
        return _lexicon(texts).proper_prefixes((*self._strict, *rests))


class _Verdicts(NamedTuple):
    """Verdicts on a prefix: is it right at its end, before a letter that continues its last word, before a word?"""

    at_end: bool
    before_letter: bool
    before_word: bool


class _StandIn(NamedTuple):
    """A prefix that ends in the only accepted ``answer``. It represents all prefixes that end in a similar answer.

    A token without ASCII letters and digits has the same outcome after every word. One without digits has the same
    outcome after all numbers of as many digits that are days of a month, and after all others.
    """

    answer: str
    prefix: str

    @classmethod
    def of_word(cls, signs: str) -> "_StandIn":
        """Return the stand-in for a word of at least three letters and the ``signs`` after it."""
        return cls("vqxj", f"zzz vqxj{signs}")

    @classmethod
    def of_number(cls, article: str, number: str, signs: str) -> "_StandIn":
        """Return the stand-in for a number, without leading zeros or in one word, and the ``signs`` after it."""
        if number in NUMBERS:
            value = NUMBERS[number]
            number = "six" if value < 10 else "sixteen" if value < 20 else "thirty" if value <= 30 else "sixty"
            return cls(str(NUMBERS[number]), f"zzz {article}{number}{signs}")
        answer = "27" if len(number) == 2 and int(number) <= 31 else "7" * len(number)
        return cls(answer, f"zzz {article}{answer}{signs}")

    def serves(self, key: str) -> bool:
        """Return True if a token has the same outcome after all prefixes for which this one stands in."""
        if self.answer.isdecimal():
            return not any(map(str.isdigit, key))
        return _ASCII_ALPHANUMERIC.search(key) is None


@lru_cache(maxsize=1 << 6)
def _matcher(answer: str, accents: str) -> AnswerMatcher:
    return AnswerMatcher((answer,), accents)


class _Lexicon:
    """Lexicon: classes of the tokens of one vocabulary, for the comparison of answers."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self.shared_verdicts: dict[tuple[_StandIn, str], dict[str | bytes, tuple[bool, bool]]] = defaultdict(dict)
        """Outcomes of tokens, right and certain to stay right, by prefix, treatment of accents, and text."""
        # per instance: there may be a vocabulary for each position of an answer, which the cache must not outlive
        self.abbreviations = lru_cache(maxsize=1 << 14)(self._abbreviations)
        self.completing = lru_cache(maxsize=1 << 7)(self._completing)
        self.proper_prefixes = lru_cache(maxsize=1 << 10)(self._proper_prefixes)
        self.usual = lru_cache(maxsize=1 << 5)(self._usual)
        self.containing = lru_cache(maxsize=1 << 10)(self._containing)
        self.single_letters = lru_cache(maxsize=1 << 10)(self._single_letters)
        self.beginning_with = lru_cache(maxsize=1 << 14)(self._beginning_with)

    def _usual(self, verdicts: _Verdicts, is_settled: bool, delicate: bool) -> OutcomeCodes:
        """Return the :class:`TokenVerdict` (V,) on nearly all tokens after a prefix with these verdicts.

        ``is_settled``: another word leaves it right for good. ``delicate``: a number, a letter or a sign may change it.
        """
        texts = self._texts
        usual = np.zeros(len(texts), dtype=np.uint8)
        if any(verdicts):
            right = np.where(texts.continues_word, verdicts.before_letter, verdicts.before_word)
            right[texts.empty] = verdicts.at_end
            decided = self.safe & is_settled
            if delicate:
                decided |= right & self.safe & ~self.unsettling
            usual[right] = TokenVerdict.RIGHT
            usual[decided & ~self.power] = TokenVerdict.DECIDED
        usual.flags.writeable = False  # others share it
        return usual

    @cached_property
    def all_decided(self) -> OutcomeCodes:
        """The :class:`TokenVerdict` (V,) on all tokens after a reply that is certain to stay right."""
        verdicts = np.full(len(self._texts), TokenVerdict.DECIDED, dtype=np.uint8)
        verdicts[self.power] = TokenVerdict.RIGHT
        verdicts.flags.writeable = False
        return verdicts

    @cached_property
    def unsettling(self) -> Mask:
        """Tokens after which a number, a letter or a sign before them may not have ended."""
        words = (*WORDS_OF_NUMBERS, *MONTH_NAMES, *KEYS, *ARTICLES, "and", "of", "x")
        continuing = re.compile(rf"[^\w]*(?:\d|(?:{'|'.join(words)})(?![^\W\d_])|[^\W\d_](?![^\W\d_]))|{_BINDING}")
        starts = {word[:length] for word in words for length in range(2, len(word) + 1)}
        mask = self._texts.matching(continuing)
        for token, key in enumerate(self._texts.keys):
            begun = re.match(r"[\W_]*([^\W\d_]*)$", key)  # a boundary, then a possibly incomplete word
            if begun and (len(begun.group(1)) < 2 or begun.group(1) in starts):
                mask[token] = True
        return mask

    @cached_property
    def power(self) -> Mask:
        """Tokens with the sign of a power, ``^``."""
        return np.array(["^" in key for key in self._texts.keys], dtype=bool)

    @cached_property
    def foreign(self) -> frozenset[int]:
        """Tokens of complete characters, at least one of them not ASCII."""
        heads = enumerate(raw.split(b"\n", 1)[0].decode("utf-8", "replace") for raw in self._texts.raw)
        return frozenset(token for token, head in heads if not head.isascii() and "\ufffd" not in head)

    @cached_property
    def binding_ids(self) -> list[int]:
        """Tokens that begin with a sign that belongs to the word before it."""
        return _ids(self._texts.matching(re.compile(_BINDING)))

    def _beginning_with(self, text: str, end_word: bool) -> list[int]:
        """Return the tokens that begin with a text after any signs; ``end_word``: no letter or digit follows it."""
        keys, ids = self._bare
        first, last = bisect.bisect_left(keys, text), bisect.bisect_left(keys, text + "\U0010ffff")
        return [
            ids[place]
            for place in range(first, last)
            if not (end_word and _ASCII_ALPHANUMERIC.match(keys[place], len(text)))
        ]

    @cached_property
    def _bare(self) -> tuple[list[str], list[int]]:
        bare = sorted((key.lstrip(_NO_LETTERS), token) for token, key in enumerate(self._texts.keys))
        return [key for key, _ in bare], [token for _, token in bare]

    @cached_property
    def apostrophe_ids(self) -> list[int]:
        """Tokens that begin with an apostrophe, which is optional in an answer."""
        return self._texts.starting_with("'")

    @cached_property
    def unit_ids(self) -> list[int]:
        """Tokens that are a unit after a number, or the end of one."""
        ends = {unit[place:] for unit in UNITS for place in range(len(unit))}
        keys, starting_with_end = self._texts.keys, self._texts.starting_with_end
        return [token for end in ends for token in starting_with_end(end) if not keys[token][len(end) :][:1].isalnum()]

    @cached_property
    def numeric_ids(self) -> frozenset[int]:
        """Tokens that are, or continue, a number or a unit."""
        return frozenset((*self.number_ids, *self.unit_ids))

    @cached_property
    def numeric_by_letters(self) -> dict[str, tuple[int, ...]]:
        return grouped((letters_of(self._texts.keys[token]), token) for token in self.numeric_ids)

    @cached_property
    def after_letter_ids(self) -> list[int]:
        """Tokens that make a name of the letter before them, as in "A minor"."""
        return _ids(self._texts.matching(re.compile(rf"\W*(?:{'|'.join(KEYS)})(?![^\W\d_])")))

    def _containing(self, text: str) -> list[int]:
        return self._those(lambda key: text in key)

    @cached_property
    def number_ids(self) -> list[int]:
        """Tokens that are a number, or continue one."""
        words = rf"(?:{NUMBER_OR_MONTH})(?![^\W\d_])"
        return _ids(self._texts.matching(re.compile(rf"[^\w]*(?:(?:[ex][+-]?)?\d|{words})")))

    def numbers_with(self, word: str) -> Iterable[int]:
        """Return the tokens of :attr:`number_ids` whose normalised form, alone or after letters, has a word ("x-4")."""
        if word.isascii():
            return self._numbers_by_word.get(word, ())
        found = (tokens for form, tokens in self._numbers_by_word.items() if has_words(form, word))
        return chain.from_iterable(found)

    @cached_property
    def _numbers_by_word(self) -> dict[str, list[int]]:
        """Tokens of :attr:`number_ids` by the words of their normalised forms, alone and after a letter."""
        by_word: dict[str, list[int]] = defaultdict(list)
        for token in self.number_ids:
            for start in ("", 2 * _LETTER):
                for word in normalize(start + self._texts.keys[token]).split():
                    by_word[word].append(token)
        return {**by_word}

    @cached_property
    def wordless_ids(self) -> list[int]:
        """Tokens without words, or with articles alone. After any other token, the answer "A" is read as an article."""
        return self._those(lambda key: ARTICLES.issuperset(_ALPHANUMERIC.findall(key)))

    @cached_property
    def mark_ids(self) -> list[int]:
        """Tokens that begin with a combining mark."""
        return self._those(lambda key: key != "" and _is_mark(key[0]))

    @cached_property
    def inside_character_ids(self) -> list[int]:
        return _ids(self._texts.inside_character)

    @cached_property
    def dot_ids(self) -> list[int]:
        return self._texts.starting_with(".")

    @cached_property
    def single_letter_ids(self) -> list[int]:
        """Tokens that begin with a single letter."""
        return _ids(self._texts.matching(re.compile(r"\s?[^\W\d_](?![^\W_])")))

    def _single_letters(self, letters: str) -> list[int]:
        """Return the tokens of :attr:`single_letter_ids` that contain one of some letters."""
        return [token for token in self.single_letter_ids if not set(letters).isdisjoint(self._texts.keys[token])]

    @cached_property
    def safe(self) -> Mask:
        """Tokens that certainly end the word before them; an incomplete character may become a letter."""
        part = np.array([token[:1] >= b"\xc0" for token in self._texts.raw], dtype=bool) & self._texts.incomplete
        return np.asarray(~self._texts.continues_word & ~self._texts.empty & ~part)

    @cached_property
    def _dotted(self) -> list[tuple[int, str]]:
        dotted = re.compile(r".*(?<![^\W\d_])[^\W\d_]\.|.*\.[^\W\d_](?![^\W\d_])")
        ids = _ids(self._texts.matching(dotted))
        return [(token, "".join(filter(str.isalpha, self._texts.keys[token]))) for token in ids]

    def _completing(
        self, last_words: frozenset[str], compounds: tuple[str, ...], signs: frozenset[str], numbers: bool
    ) -> frozenset[int]:
        """Return tokens that might complete an answer after any prefix: with a last word, a compound, or a sign.

        ``numbers``: also tokens that are a number whose normalised form has a last word.
        """
        tokens: set[int] = set()
        for word in last_words:
            tokens.update(self._texts.with_word(word), self.abbreviations(word, False))
            if _UNSEGMENTED_END.search(word):
                tokens.update(self.containing(word[-1]))
            if numbers:
                tokens.update(self.numbers_with(word))
        tokens.update(chain.from_iterable(map(self._texts.with_word, compounds)))
        tokens.update(chain.from_iterable(map(self.containing, signs)))
        return frozenset(tokens)

    def _abbreviations(self, word: str, begun: bool) -> list[int]:
        """Return tokens with dotted letters that might abbreviate a word, or its end if dotted letters have begun."""
        return [t for t, letters in self._dotted if word in letters or (begun and word.endswith(letters))]

    def _proper_prefixes(self, answers: tuple[str, ...]) -> Sequence[int]:
        """Return tokens that are a proper prefix of one of some texts, with or without a leading space."""
        equal_to = self._texts.equal_to
        starts = {text[:length] for text in answers for length in range(1, len(text))}
        return [token for start in starts for token in (*equal_to(start), *equal_to(f" {start}"))]

    def _those(self, condition: Callable[[str], bool]) -> list[int]:
        return [token for token, key in enumerate(self._texts.keys) if condition(key)]


@lru_cache(maxsize=4)
def _lexicon(texts: TokenTexts) -> _Lexicon:
    """Return the lexicon of a vocabulary, built once."""
    return _Lexicon(texts)


def _like_letter(letter: str) -> str:
    """Return the letter that represents all of a script outside ASCII, with or without spaces between words."""
    return "\u3005" if _UNSEGMENTED.match(letter) else _LETTER


@lru_cache(maxsize=1 << 16)
def _with_like_letters(line: bytes, accents: str) -> str:
    """Return a token with one or two letters that represent its script; empty unless it is a word outside ASCII.

    All words of a script have the same outcome but single letters, which may be initials.
    """
    text = unified(line.decode(), accents)
    word = text.removeprefix(" ")
    letters = {*map(_like_letter, word)}
    is_word = word[:1].isalpha() and all(letter.isalpha() or _is_mark(letter) for letter in word)
    if not is_word or len(letters) > 1 or _ASCII_ALPHANUMERIC.search(word):
        return ""
    return f"{text[: -len(word)]}{letters.pop() * min(len(word), 2)}"


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter)[0] == "M"


@lru_cache(maxsize=1 << 14)
def _unified_line(text: bytes) -> str:
    return unified(text.split(b"\n", 1)[0].decode("utf-8", "replace"))


def _ids(mask: Mask) -> list[int]:
    return np.flatnonzero(mask).tolist()


@lru_cache(maxsize=1 << 12)
def _rests(begun: str, words: frozenset[str]) -> tuple[str, ...]:
    """Return what completes a begun word to one of some longer words."""
    return tuple(word[len(begun) :] for word in words if word.startswith(begun) and word != begun)


def _last_word(key: str) -> str:
    """Return the last word of a unified text, perhaps unfinished; empty after a boundary."""
    start = len(key)
    while start and not is_boundary(key[start - 1]):
        start -= 1
    return key[start:]


_CONTINUATIONS = (
    *("0", "00", "000", "5", ".5", ",000", " 000 000", "-one", " one", " hundred", " million", " and one", " thousand"),
    *("^2", "e5", "/2", "/999", "1/2", " 1/2", "10^3", " × 10^3", " x 10^3", "th", " first", " of May", " May", ". B."),
    *(" B.", " B C", ".B", " D", "+", "#", "-", " sharp", " flat", "'s", "\u0301"),
)


_NEXT_NUMBERS = (*("one", "ten", "twenty", "first", "tenth", "twentieth", "ii", "hundredth"), *LARGE_NUMBERS)
"""One of each kind of number words."""


def _continuations(reply: str) -> Iterable[str]:
    """Yield continuations that may undo a match: of a number, a letter or a sign at the end of a reply."""
    word = _last_word(unified(reply[-64:]))
    yield from _CONTINUATIONS
    for number in (*WORDS_OF_NUMBERS, *MONTH_NAMES) if word else _NEXT_NUMBERS:
        if number.startswith(word):
            yield number[len(word) :]
            yield number[len(word) :] + " one"
