"""Log-probabilities of tokens in the replies of servers with OpenAI's protocol."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_SPECIAL = re.compile(rb"<\|[^|<>]*\|>|</?s>|<(?:bos|eos|pad|start_of_turn|end_of_turn)>")
"""Texts of special tokens, which some servers write (vLLM)."""

_BYTE_TOKEN = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
"""Name of a byte in a vocabulary with byte fallback, which some servers write in place of the byte."""

_NOT_ALPHANUMERIC = re.compile("[^a-zA-Z0-9]+")

PART = "\ufffd".encode()
"""Text in place of a part of a character."""


class Token(NamedTuple):
    """Generated token: its text, its natural log-probability, the largest log-probabilities at its position, and the
    text of the likeliest.
    """

    text: bytes
    logprob: float
    top: list[float]
    likeliest: bytes = b""


class TopKToken(NamedTuple):
    """Top-k token: its text, its natural log-probability at temperature 1, and its id, if the server gives it."""

    text: bytes
    logprob: float
    id: int | None = None

    @property
    def ends(self) -> bool:
        """True if a top-k token ends an answer at any position: it has no text."""
        return not self.text

    @property
    def name(self) -> int | bytes:
        """Identifier among the top-k tokens of its position."""
        return self.text if self.id is None else self.id

    @property
    def unnamed(self) -> bool:
        """True if a token stands for any part of a character, so that its text is unknown: servers that identify tokens
        by their texts (vLLM) merge several such tokens of a position, and return fewer than requested.
        """
        return self.id is None and PART in self.text


class Position(NamedTuple):
    """Position of an answer with log-probabilities: its token, and the top-k tokens in descending order."""

    chosen: TopKToken
    largest: Sequence[TopKToken]


def read_tokens(logprobs: Mapping[str, Any] | None) -> list[Token] | None:
    """Return the tokens of a choice with log-probabilities; None if there are none. Raises TypeError, ValueError,
    KeyError or AttributeError for an unknown format, and checks no values.
    """
    if not logprobs or (logprobs.get("content") is None and logprobs.get("tokens") is None):
        return None
    return [
        Token(
            _text(entry),
            _logprob(entry),
            sorted(map(_logprob, largest), reverse=True),
            _text(max(largest, key=_logprob)) if largest else b"",
        )
        for entry, largest in _entries(logprobs)
    ]


def drawn_tokens(tokens: Sequence[Token], text: str, greedy: bool = False) -> Sequence[Token] | None:
    """Return the tokens that were drawn for a reply; None if the tokens with log-probabilities do not spell its text
    (only ASCII letters and digits are compared).

    The server of MLX names another top-k token in place of each drawn one. In a ``greedy`` reply that is the likeliest.
    """
    if _spell(tokens, text):
        return tokens
    likeliest = [Token(token.likeliest, token.top[0], token.top) for token in tokens if token.top] if greedy else []
    return likeliest if likeliest and _spell(likeliest, text) else None


def _spell(tokens: Sequence[Token], text: str) -> bool:
    named = b"".join(token.text for token in tokens).decode("utf-8", "replace")
    return _NOT_ALPHANUMERIC.sub("", text) in _NOT_ALPHANUMERIC.sub("", named)


def read_positions(logprobs: Mapping[str, Any] | None) -> list[Position]:
    """Return the positions of a choice with their top-k tokens; raises the errors of :func:`read_tokens`."""
    return [
        Position(_token(entry), sorted(map(_token, largest), key=lambda token: -token.logprob))
        for entry, largest in _entries(logprobs or {})
    ]


def storable(value: Any) -> str:
    """Return a server's text so that it can be stored: half a character, which JSON allows, is replaced."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _entries(logprobs: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]:
    """Yield each token with the top-k ones in the format of chat completions; servers send it, or the older one of
    plain completions, for both.
    """
    if not logprobs:
        return
    if logprobs.get("content") is not None:
        for entry in logprobs["content"]:
            yield entry, entry.get("top_logprobs") or ()
        return
    texts, chosen = logprobs["tokens"], logprobs["token_logprobs"]
    tops = logprobs.get("top_logprobs") or [{}] * len(texts)
    for text, logprob, top in zip(texts, chosen, tops, strict=True):
        largest = [{"token": each, "logprob": value} for each, value in (top or {}).items()]
        yield {"token": text, "logprob": logprob}, largest


def _token(entry: Mapping[str, Any]) -> TopKToken:
    text, identity = _text(entry), entry.get("id")
    if identity is not None and type(identity) is not int:
        raise TypeError(identity)
    if not text and identity is None:  # vLLM: a part of a character; end tokens have a text
        return TopKToken(PART, _logprob(entry))
    return TopKToken(_SPECIAL.sub(b"", text), _logprob(entry), identity)


def _text(entry: Mapping[str, Any]) -> bytes:
    """Return the bytes of a token's text, which may be a part of a character."""
    values = entry.get("bytes")
    if values is None:
        text = storable(entry["token"]).encode()
        byte = _BYTE_TOKEN.fullmatch(text)
        return bytes.fromhex(byte[1].decode()) if byte else text
    if not isinstance(values, list):  # bytes(number) would make as many
        raise TypeError(values)
    return bytes(values)


def _logprob(entry: Mapping[str, Any]) -> float:
    value = entry["logprob"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def logprob_fields(chat: bool, number: int) -> dict[str, Any]:
    """Return the fields of a request for so many log-probabilities a token."""
    return {"logprobs": True, "top_logprobs": number} if chat else {"logprobs": number}
