"""A server of a language whose every probability is known: it answers as llama.cpp's does, for ``scripted_server``.

It shows the ``shown`` largest log-probabilities of each token, rounded to so many ``digits``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scripted_server import Body
from toy_language import PIECES, Table

PROMPT = 1000
"""The id of the one token of every prompt."""


@dataclass
class TableServer:
    """``ids``: it says which tokens it names, and takes them as prompts. ``counts``: it says how many tokens a prompt
    has. ``forgets``: it answers as if nothing had been answered yet. ``after_temperature``: its log-probabilities are
    those after the temperature; ``silent``: it gives none. ``changes_after`` so many requests it is one of these.
    ``fails`` are the numbers of requests that it answers with 500. ``unnamed`` are pieces that it writes as parts of
    characters, and then its log-probabilities go by texts, as vLLM's do.
    """

    table: Table
    shown: int = 5
    digits: int = 6
    ids: bool = True
    counts: bool = True
    after_temperature: bool = False
    silent: bool = False
    forgets: bool = False
    changes_after: tuple[str, int] | None = None
    fails: set[int] = field(default_factory=set)
    pieces: Sequence[bytes] = tuple(PIECES)
    unnamed: Sequence[bytes] = ()
    _asked: int = 0

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        self._asked += 1
        if self._asked in self.fails:
            return 500, {}, {"error": {"message": "down"}}
        if self.changes_after and self._asked > self.changes_after[1]:
            setattr(self, self.changes_after[0], True)
        if "content" in body:
            return (200, {}, {"tokens": [PROMPT]}) if self.ids else (404, {}, {"error": {"message": "not found"}})
        prompt = body["prompt"]
        if isinstance(prompt, str):
            start = prompt.rfind("Answer:") + len("Answer:")
            path, read = self._tokens(prompt[start:].encode()), prompt
        elif self.ids:
            path, read = tuple(prompt[1:]), ""
        else:
            return 400, {}, {"error": {"message": "prompt must be a string"}}
        counted = {"prompt_tokens": 1 + len(path)}
        if self.forgets:
            path = ()
        number = body.get("n", 1)
        choices = [self._choice(body, path, index, read) for index in range(number)]
        counted["completion_tokens"] = len(choices[0]["tokens"])
        for choice in choices:
            choice.pop("tokens")
        return 200, {}, {"choices": choices, "usage": counted if self.counts else {}}

    def _tokens(self, text: bytes) -> tuple[int, ...]:
        """The longest first, as tokenizers that merge do."""
        found: list[int] = []
        while text:
            token = max(
                (t for t, piece in enumerate(self.pieces) if piece and text.startswith(piece)),
                key=lambda t: len(self.pieces[t]),
            )
            found.append(token)
            text = text[len(self.pieces[token]) :]
        return tuple(found)

    def _choice(self, body: Body, path: tuple[int, ...], index: int, read: str) -> dict[str, Any]:
        temperature = body.get("temperature", 1.0)
        random = np.random.default_rng([body.get("seed", 0) + index, *map(int, read.encode()), *path])
        entries, tokens, text, finish = [], [], b"", "length"
        for _ in range(body["max_tokens"]):
            logits = self.table.logits((*path, *tokens)).double()
            logprobs = logits.log_softmax(-1).numpy()
            if temperature == 0:
                token = int(logprobs.argmax())
            else:
                token = int(random.choice(len(self.pieces), p=(logits / temperature).softmax(-1).numpy()))
            shown = (logits / (temperature or 1.0)).log_softmax(-1).numpy() if self.after_temperature else logprobs
            largest = [self._entry(each, shown) for each in np.argsort(-shown)[: self.shown].tolist()]
            entries.append({**self._entry(token, shown), "top_logprobs": largest})
            tokens.append(token)
            text += self.pieces[token]
            if not self.pieces[token]:
                finish = "stop"
                break
        told = _by_texts(entries) if self.unnamed else {"content": entries}
        logprobs = told if "logprobs" in body and not self.silent else None
        return {"index": index, "text": text.decode(), "finish_reason": finish, "logprobs": logprobs, "tokens": tokens}

    def _entry(self, token: int, logprobs: np.ndarray) -> dict[str, Any]:
        piece = self.pieces[token]
        if not piece and not self.ids:
            piece = b"<|im_end|>"
        entry = {"bytes": list(piece), "token": "" if piece in self.unnamed else piece.decode()}
        entry["logprob"] = round(float(logprobs[token]), self.digits)
        return entry | ({"id": token} if self.ids else {})


def _by_texts(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The older format of plain completions: of tokens that are written alike, the last is named."""
    return {
        "tokens": [entry["token"] for entry in entries],
        "token_logprobs": [entry["logprob"] for entry in entries],
        "top_logprobs": [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in entries],
    }
