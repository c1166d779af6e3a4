"""Estimates of tokens, cost and time before a run."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

from robust_eval.model.base import FURTHER_DRAWS, LEVELS, Request, calls
from robust_eval.model.spending import Spending
from robust_eval.prompt.prompt import Prompt

_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]|\n+")
_TOKENS_PER_PIECE = 1.1
_BYTES_PER_TOKEN = 6  # maximum: with long words, or without spaces
_TOKENS_PER_MESSAGE = 5


@dataclass(frozen=True)
class Workload:
    """Number of requests, answers and tokens, cost and time."""

    answers: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    """Estimate."""
    completion_tokens: int = 0
    """Upper bound."""
    cost: float | None = 0.0
    """Estimated upper bound; None without prices."""
    seconds: float = 0.0
    """Lower bound by the rate limits of the service; 0 without limits."""
    reasoning_tokens: int = 0
    """Completion tokens of the reasoning budget."""

    def __add__(self, other: "Workload") -> "Workload":
        return Workload(
            self.answers + other.answers,
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
            self.seconds + other.seconds,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True)
class ServiceLimits:
    """Prices and limits of a model; by default of a local one.

    Prices are per million tokens, limits per minute; None without.
    """

    chat: bool
    choices: int | None = 1
    """Maximum number of answers of one request; None: unknown."""
    prompt_price: float | None = None
    completion_price: float | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: float | None = None
    reply_tokens: Callable[[int], int] = lambda tokens: tokens
    """Maximum number of tokens of a whole reply, with reasoning, from that of the answer."""
    max_concurrency: int | None = None
    """Maximum number of requests in flight; None for a local model."""
    batch: bool = False
    """Whether requests are sent in batch files."""
    batch_price_share: float = 1.0
    """Price of a batch, as a fraction of the prices."""

    def workload(self, requests: Iterable[Request], times: Iterable[int] = repeat(1)) -> Workload:
        """Return the workload of the pending answers to these requests, each repeated ``times`` times."""
        answers = sent = prompt = completion = reasoning = 0
        for request, number in zip(requests, times, strict=False):
            length = number * prompt_tokens(request.prompt, self.chat)
            if request.enumeration is not None:
                requests_of, tokens_of = self._enumerated(request)
                answers, sent = answers + number * request.answers, sent + number * requests_of
                prompt, completion = prompt + requests_of * length, completion + number * tokens_of
                continue
            reply = self.reply_tokens(request.max_new_tokens)
            for call in calls(request, self.choices or 1):
                replies = number * len(call.trials)
                answers, sent, prompt = answers + replies, sent + number, prompt + length
                completion += replies * reply
                reasoning += replies * (reply - request.max_new_tokens)
        share = self.batch_price_share if self.batch else 1.0
        spending = Spending(self.prompt_price, self.completion_price, None, share=share)
        minutes = [
            number / limit
            for number, limit in ((sent, self.requests_per_minute), (prompt + completion, self.tokens_per_minute))
            if limit is not None
        ]
        cost = spending.price(prompt, completion) if spending.has_prices else None
        return Workload(answers, sent, prompt, completion, cost, 60 * max(minutes, default=0.0), max(0, reasoning))

    def _enumerated(self, request: Request) -> tuple[int, int]:
        """Return the maximum number of requests and tokens of enumerated answers.

        A server gets requests for prefixes, and for draws at all temperatures if the bounds are too wide.
        """
        enumeration = request.enumeration
        assert enumeration is not None
        if self.max_concurrency is None:
            return 1, request.answers
        prefixes = 1 if enumeration.choices else enumeration.nodes
        draws = [enumeration.draws] if enumeration.choices else [enumeration.draws, FURTHER_DRAWS * enumeration.draws]
        draw_requests = len(request.temperatures) * sum(math.ceil(number / (self.choices or 1)) for number in draws)
        tokens = len(request.temperatures) * sum(draws) * request.max_new_tokens
        return prefixes + draw_requests, request.max_new_tokens + (prefixes - 1) * LEVELS + tokens


def prompt_tokens(prompt: Prompt, chat: bool) -> int:
    """Return an estimate of the number of tokens of a prompt, by its words, digits and signs.

    SmolLM2 has 0.95 to 1.0 times as many for the prompts of the built-in questions.
    """
    if not chat:
        return sum(_tokens(text) for pair in prompt.exemplars for text in pair) + _tokens(prompt.question)
    return sum(_tokens(message["content"]) + _TOKENS_PER_MESSAGE for message in prompt.messages())


@lru_cache(maxsize=10_000)
def _tokens(text: str) -> int:
    pieces = len(_PIECES.findall(text))
    return round(max(_TOKENS_PER_PIECE * pieces, len(text.encode()) / _BYTES_PER_TOKEN))
