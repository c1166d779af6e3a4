"""A server that draws from a distribution that it shows, and servers that draw otherwise than they are asked to.

with scripted_server(DrawingServer(cap=1.0), honest=False) as server: …

It answers the built-in facts and two words after that, and anything else by sixteen words; every word is a token.
"""

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dialects import ANSWERS
from fading_server import asked_of
from scripted_server import SYLLABLES, Body

WORDS = [first + second for first in SYLLABLES for second in SYLLABLES[:5]]
SHOWN = 20


@dataclass
class DrawingServer:
    """Draws by the seed where it ``takes_seeds``, or else at random, and shows the log-probabilities of the model's own
    distribution where it ``shows`` them.

    ``deterministic``: it says the same whatever the seed; of ``asked`` facts alone: it keeps replies to facts only.
    ``ignores``: it draws at temperature 1. ``cap``: at that instead of any higher one. ``copies``: all of one request
    are the first. ``noise``: the share of tokens at which a greedy reply takes the second best, by chance.
    """

    takes_seeds: bool = True
    shows: bool = False
    deterministic: bool = False
    caches_facts: bool = False
    ignores: bool = False
    cap: float = math.inf
    copies: bool = False
    noise: float = 0.0
    sure: float = 4.0
    """How much likelier what is right is than any other word, as a logarithm."""
    requests: "itertools.count[int]" = field(default_factory=itertools.count)

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        question, number = asked_of(body), next(self.requests)
        prompt = str(body["messages"][-1]["content"])
        heat = 1.0 if self.ignores else min(body.get("temperature", 1.0), self.cap)
        choices = []
        for index in range(body.get("n", 1)):
            drawn = body["seed"] + index if self.takes_seeds and "seed" in body else 10**6 * number + index
            drawn -= index if self.copies else 0
            same = self.deterministic or (self.caches_facts and question is not None)
            random = np.random.default_rng([zlib.crc32(prompt.encode()), 0 if same else drawn])
            tokens = self.tokens(body, question, prompt, heat, random)
            content = [entry | {"top_logprobs": top} for entry, top in tokens]
            message = {"role": "assistant", "content": "".join(entry["token"] for entry, _ in tokens)}
            shown = {"content": content} if self.shows and body.get("logprobs") else None
            choices.append({"index": index, "finish_reason": "stop", "message": message, "logprobs": shown})
        return 200, {}, {"choices": choices, "usage": {"prompt_tokens": 9, "completion_tokens": 3}}

    def tokens(
        self, body: Body, question: str | None, prompt: str, heat: float, random: np.random.Generator
    ) -> list[tuple[Body, Sequence[Body]]]:
        found = []
        for place in range(min(16 if question is None else 3, body.get("max_tokens", 16))):
            words, separator = list(WORDS), " " if place else ""
            logits = np.random.default_rng([zlib.crc32(prompt.encode()), place]).normal(size=len(words))
            if question is not None and place == 0:
                words[0], logits[0] = ANSWERS[question], logits.max() + self.sure
            separator = "\n" if question is not None and place == 1 else separator
            logprobs = logits - np.log(np.exp(logits).sum())
            order = np.argsort(-logprobs)
            if heat == 0:
                token = int(order[1 if random.random() < self.noise else 0])
            else:
                weights = np.exp((logits - logits.max()) / heat)
                token = int(random.choice(len(words), p=weights / weights.sum()))
            entries = [
                {"token": separator + words[each], "logprob": float(logprobs[each]), "bytes": None}
                for each in (token, *order[:SHOWN])
            ]
            found.append((entries[0], entries[1:]))
        return found
