"""Texts of the tokens of a vocabulary, with an index for look-ups.

The module does not need torch, so that answers can be read without a model.
"""

import bisect
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robust_eval.normalization import UNSEGMENTED, unified

Ids = NDArray[np.intp]
Mask = NDArray[np.bool_]
OutcomeCodes = NDArray[np.uint8]

_REPLACEMENT = "\ufffd"
_UNSEGMENTED = re.compile(f"[{UNSEGMENTED}]")
_ASCII_PIECES = re.compile(r"[^\s!-/:-@[-`{-~]+|.", re.DOTALL)
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class NextTokenOutcomes(NamedTuple):
    """Outcome of each token of a vocabulary, as a number.

    ``usual`` (V,), which others share, has the outcomes of nearly all tokens; ``tokens`` (m,), ascending, have
    ``outcomes`` (m,) instead.
    """

    usual: OutcomeCodes
    tokens: Ids
    outcomes: OutcomeCodes

    @classmethod
    def of(cls, usual: OutcomeCodes, exceptions: Mapping[int, int]) -> "NextTokenOutcomes":
        """Return the usual outcomes of a vocabulary's tokens, except those of some tokens."""
        tokens = np.array(sorted(exceptions), dtype=np.intp)
        outcomes = np.fromiter(map(exceptions.__getitem__, tokens.tolist()), dtype=np.uint8, count=len(tokens))
        differs = outcomes != usual[tokens]
        return cls(usual, tokens[differs], outcomes[differs])

    def all(self) -> OutcomeCodes:
        """Return the outcomes (V,) of all tokens of the vocabulary."""
        outcomes = self.usual.copy()
        outcomes[self.tokens] = self.outcomes
        return outcomes

    def at(self, token: int) -> int:
        """Return the outcome of one token of the vocabulary."""
        place = int(np.searchsorted(self.tokens, token))
        is_exception = place < len(self.tokens) and self.tokens[place] == token
        return int(self.outcomes[place] if is_exception else self.usual[token])


class TokenTexts:
    """Texts of a vocabulary's tokens: the bytes that each adds, in order of the ids; empty for tokens without text.

    Tokens are compared by their *key*: the text up to a line break, :func:`unified`. Incomplete characters count as
    U+FFFD.
    """

    def __init__(self, raw: Sequence[bytes]) -> None:
        self.raw = list(raw)
        heads = [token.split(b"\n", 1)[0] for token in self.raw]
        self.keys = [unified(head.decode("utf-8", "replace")) for head in heads]
        self.breaks_line = np.array([b"\n" in token for token in self.raw], dtype=bool)
        self.incomplete = np.array([incomplete_bytes(head) > 0 for head in heads], dtype=bool)
        """Mask of tokens that end within a character."""
        self.inside_character = np.array([bool(head) and 0x80 <= head[0] < 0xC0 for head in heads], dtype=bool)
        """Mask of tokens that begin within a character."""

    def __len__(self) -> int:
        return len(self.raw)

    @cached_property
    def continues_word(self) -> Mask:
        """Mask of tokens whose text continues a word: its first character is no boundary."""
        return self._those(lambda key: key != "" and not is_boundary(key[0]))

    @cached_property
    def empty(self) -> Mask:
        """Mask of tokens whose text adds nothing to the line."""
        return self._those(lambda key: key == "")

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """Return the mask of the tokens whose key matches the pattern at its start."""
        return self._those(lambda key: pattern.match(key) is not None)

    def starting_with(self, text: str) -> list[int]:
        """Return the ids of the tokens whose key starts with a text."""
        keys, ids = self._sorted
        low = bisect.bisect_left(keys, text)
        high = bisect.bisect_left(keys, text + "\U0010ffff", lo=low)
        return ids[low:high]

    def starting_with_end(self, text: str) -> list[int]:
        """Return the ids of the tokens whose key starts with ``text`` as the end of a word: no ASCII letter or digit
        follows it.
        """
        keys, ids = self._sorted
        low = bisect.bisect_left(keys, text)
        high = bisect.bisect_left(keys, text + "\U0010ffff", lo=low)
        digits, behind_digits, letters, behind_letters = (
            bisect.bisect_left(keys, text + limit, low, high) for limit in ("0", ":", "a", "{")
        )
        return ids[low:digits] + ids[behind_digits:letters] + ids[behind_letters:high]

    def equal_to(self, text: str) -> tuple[int, ...]:
        """Return the ids of the tokens whose key is this text."""
        return self._ids_with_key.get(text, ())

    def with_word(self, word: str) -> tuple[int, ...]:
        """Return the ids of the tokens whose key contains a word between boundaries or its own ends, ascending."""
        pieces = _pieces(word)
        ids = self._ids_with_piece.get(max(pieces, key=len), ())
        if pieces == [word] and not is_boundary(word[0]):
            return ids
        return tuple(token for token in ids if _has_word(self.keys[token], word))

    @cached_property
    def _sorted(self) -> tuple[list[str], list[int]]:
        ids = sorted(range(len(self.keys)), key=self.keys.__getitem__)
        return [self.keys[token] for token in ids], ids

    @cached_property
    def _ids_with_key(self) -> dict[str, tuple[int, ...]]:
        """The ids of the tokens by their keys."""
        return grouped((key, token) for token, key in enumerate(self.keys))

    @cached_property
    def _ids_with_piece(self) -> dict[str, tuple[int, ...]]:
        """The ids of the tokens by the :func:`_pieces` of their keys."""
        return grouped((piece, token) for token, key in enumerate(self.keys) for piece in {*_pieces(key)})

    def _those(self, condition: Any) -> Mask:
        return np.fromiter((condition(key) for key in self.keys), dtype=bool, count=len(self.keys))


@lru_cache(maxsize=1 << 12)
def is_boundary(character: str) -> bool:
    """Return whether a character ends a word: white space, punctuation, a symbol, or one of a script without spaces."""
    return (
        character.isspace()
        or unicodedata.category(character)[0] in "PS"
        or (not character.isascii() and _UNSEGMENTED.match(character) is not None)
    )


def grouped(tokens: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the ids of tokens by text. Tuples of integers, unlike lists, cost the garbage collector nothing."""
    ids: dict[str, list[int]] = defaultdict(list)
    for text, token in tokens:
        ids[text].append(token)
    return {text: tuple(same) for text, same in ids.items()}


def _pieces(key: str) -> list[str]:
    """Return the parts of a key: each boundary, and each longest run of characters without one."""
    if key.isascii():
        return _ASCII_PIECES.findall(key)
    runs = ((ends, "".join(run)) for ends, run in groupby(key, is_boundary))
    return [piece for ends, run in runs for piece in (run if ends else (run,))]


def _has_word(key: str, word: str) -> bool:
    """Return whether a key contains a word between boundaries or the ends of the key."""
    ends = (place + len(word) for place in range(len(key)) if key.startswith(word, place))
    return any(
        is_boundary(key[end - len(word) - 1 : end - len(word)] or " ") and is_boundary(key[end : end + 1] or " ")
        for end in ends
    )


def incomplete_bytes(text: bytes) -> int:
    """Return the number of bytes of an incomplete character at the end of a text.

    >>> incomplete_bytes("é".encode()[:1]), incomplete_bytes("é".encode())
    (1, 0)
    """
    for back in range(1, min(4, len(text) + 1)):
        byte = text[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < length and byte < 0xF8 else 0
        if byte < 0x80:
            return 0
    return 0


def token_texts(tokenizer: Any, size: int, ends: Iterable[int] = ()) -> TokenTexts:
    """Return the texts of the tokens of a transformers tokenizer; ``size`` counts the logits, some without a token.

    The tokens ``ends`` end a text and add nothing to it. ValueError if the tokenizer's decoder is unknown, or the texts
    do not add up to the decoded ones.
    """
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ValueError("the texts of its tokens are unknown: its tokenizer is Python code, without a tokenizer.json")
    decoder = json.dumps(json.loads(tokenizer.backend_tokenizer.to_str())["decoder"])
    written: Callable[[str], bytes]
    literal: Callable[[str], bytes]
    if "ByteLevel" in decoder:
        written, literal = _byte_level_bytes, lambda content: content.encode()
    elif "\\u2581" in decoder:
        written, literal = _sentencepiece_bytes, _sentencepiece_bytes
    else:
        raise ValueError("the texts of its tokens are unknown: its decoder is neither byte-level nor SentencePiece's")
    pieces = tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer)))))
    added = {i: b"" if token.special else literal(token.content) for i, token in tokenizer.added_tokens_decoder.items()}
    added |= dict.fromkeys(tokenizer.all_special_ids, b"")
    raw = [added[index] if index in added else written(piece or "") for index, piece in enumerate(pieces)]
    _check(tokenizer, raw)
    raw += [b""] * (size - len(raw))
    for token in ends:
        raw[token] = b""
    return TokenTexts(raw)


def _check(tokenizer: Any, raw: Sequence[bytes]) -> None:
    """Raise ValueError unless the texts of tokens add up to what the tokenizer decodes."""
    random = np.random.default_rng(0)
    for _ in range(100):
        ids = random.integers(0, len(raw), size=6).tolist()
        joined = b"".join(raw[token] for token in ids).decode("utf-8", "replace")
        decoded = tokenizer.decode(ids, skip_special_tokens=True)
        if joined.replace(_REPLACEMENT, "").strip() != decoded.replace(_REPLACEMENT, "").strip():
            raise ValueError(f"its tokens are ambiguous: {ids} have the texts {joined!r} and decode to {decoded!r}")


def _byte_level_bytes(piece: str) -> bytes:
    letters = _byte_letters()
    if any(letter not in letters for letter in piece):
        return piece.encode()  # as the library does
    return bytes(letters[letter] for letter in piece)


@cache
def _byte_letters() -> dict[str, int]:
    """Return the bytes by their letters in byte-level vocabularies (Radford et al. 2019)."""
    printable: Iterable[int] = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in printable}
    unprintable = [byte for byte in range(256) if byte not in letters.values()]
    return letters | {chr(256 + index): byte for index, byte in enumerate(unprintable)}


def _sentencepiece_bytes(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte.group(1), 16)]) if byte else piece.replace("\u2581", " ").encode()
