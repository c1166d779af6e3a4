"""Log-probabilities of tokens in the replies of servers that speak OpenAI's protocol."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_SPECIAL = re.compile(rb"<\|[^|<>]*\|>|</?s>|<(?:bos|eos|pad|start_of_turn|end_of_turn)>")
"""How servers write tokens that write nothing, where they do write them (vLLM)."""

PART = "\ufffd".encode()
"""What is written for a part of a character."""


class Token(NamedTuple):
    """One generated token: its text, its natural log-probability, and the largest ones at its place."""

    text: bytes
    logprob: float
    top: list[float]


class TopKToken(NamedTuple):
    """A token: what it writes, its natural log-probability at temperature 1, and its id, where the server says it."""

    text: bytes
    logprob: float
    id: int | None = None

    @property
    def ends(self) -> bool:
        """Whether it ends an answer wherever it stands: it writes nothing."""
        return not self.text

    @property
    def name(self) -> int | bytes:
        """What tells it from the other tokens of its place."""
        return self.text if self.id is None else self.id

    @property
    def unnamed(self) -> bool:
        """Whether it stands for whatever is no text by itself: where tokens go by their texts (vLLM), several of a
        place are then one, and fewer come than were asked for. What such a one writes is not known.
        """
        return self.id is None and PART in self.text


class Position(NamedTuple):
    """One place of an answer: the token that stands there, and the likeliest ones, the likeliest first."""

    chosen: TopKToken
    largest: Sequence[TopKToken]


def read_tokens(logprobs: Mapping[str, Any] | None) -> list[Token] | None:
    """Return the tokens of a choice; None where the server says nothing of them. Raises TypeError, ValueError, KeyError
    or AttributeError where they are in no known format.

    What is no number and no text is none of a token; whether the numbers can be believed is not asked here.
    """
    if not logprobs or (logprobs.get("content") is None and logprobs.get("tokens") is None):
        return None
    return [
        Token(_text(entry), _logprob(entry), sorted(map(_logprob, largest), reverse=True))
        for entry, largest in _entries(logprobs)
    ]


def read_positions(logprobs: Mapping[str, Any] | None) -> list[Position]:
    """Return the places of a choice with the likeliest tokens at each; raises what :func:`read_tokens` does."""
    return [
        Position(_token(entry), sorted(map(_token, largest), key=lambda token: -token.logprob))
        for entry, largest in _entries(logprobs or {})
    ]


def storable(value: Any) -> str:
    """Return a text that can be stored: half a character, as JSON can spell it, becomes a sign of its own."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _entries(logprobs: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]:
    """Yield each token with the largest at its place as chat completions write them; servers send this format, or the
    older one of plain completions, for both.
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
    if not text and identity is None:  # vLLM writes nothing for a part of a character, but does write what ends
        return TopKToken(PART, _logprob(entry))
    return TopKToken(_SPECIAL.sub(b"", text), _logprob(entry), identity)


def _text(entry: Mapping[str, Any]) -> bytes:
    """Return the bytes of a token, which may be a part of a character."""
    said = entry.get("bytes")
    if said is None:
        return storable(entry["token"]).encode()
    if not isinstance(said, list):  # of a number there would be as many bytes
        raise TypeError(said)
    return bytes(said)


def _logprob(entry: Mapping[str, Any]) -> float:
    value = entry["logprob"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)
