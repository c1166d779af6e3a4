"""The tokens that a server names at each place of an answer: which they are, what they write, how likely they were."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_SPECIAL = re.compile(rb"<\|[^|<>]*\|>|</?s>|<(?:bos|eos|pad|start_of_turn|end_of_turn)>")
"""How servers write tokens that write nothing, where they do write them (vLLM)."""

PART = "\ufffd".encode()
"""What is written for a part of a character."""


class SeenToken(NamedTuple):
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


def unnamed(token: SeenToken) -> bool:
    """Tell whether a token stands for whatever is no text by itself: where tokens go by their texts (vLLM), several of
    a place are then one, and fewer come than were asked for. What such a one writes is not known.
    """
    return token.id is None and PART in token.text


class Position(NamedTuple):
    """One place of an answer: the token that stands there, and the likeliest ones, the likeliest first."""

    chosen: SeenToken
    largest: Sequence[SeenToken]


def seen_positions(logprobs: Mapping[str, Any] | None) -> list[Position]:
    """Read the format of chat completions, or the older one of plain completions; TypeError, ValueError or KeyError
    where it is neither.
    """
    if not logprobs:
        return []
    if logprobs.get("content") is not None:
        return [
            Position(_token(entry), _sorted([_token(top) for top in entry.get("top_logprobs") or ()]))
            for entry in logprobs["content"]
        ]
    tops = logprobs.get("top_logprobs") or [{}] * len(logprobs["tokens"])
    return [
        Position(_named(_bytes(text), value), _sorted([_named(_bytes(each), p) for each, p in (top or {}).items()]))
        for text, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"], tops, strict=True)
    ]


def _token(entry: Mapping[str, Any]) -> SeenToken:
    said, identity = entry.get("bytes"), entry.get("id")
    text = _bytes(entry["token"]) if said is None else bytes(list(said))
    if identity is not None and type(identity) is not int:
        raise TypeError(identity)
    if identity is None:
        return _named(text, float(entry["logprob"]))
    return SeenToken(_SPECIAL.sub(b"", text), float(entry["logprob"]), identity)


def _named(text: bytes, logprob: float) -> SeenToken:
    """Return a token that goes by its text; vLLM writes nothing for a part of a character, but does write what ends."""
    return SeenToken(_SPECIAL.sub(b"", text) if text else PART, float(logprob))


def _bytes(text: str) -> bytes:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _sorted(tokens: list[SeenToken]) -> list[SeenToken]:
    return sorted(tokens, key=lambda token: -token.logprob)
