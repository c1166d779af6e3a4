"""Workload of a run: its requests and tokens, their cost at the prices of a service, and the budget."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Any

from robust_eval.model.base import FURTHER_DRAWS, TOKENS_PER_PREFIX, Request, calls
from robust_eval.prompt.prompt import Prompt

MILLION = 1_000_000


@dataclass
class Spending:
    """Spending of a run: token usage, cost reserved for requests in flight, prices and the budget.

    ``prompt_price``, ``completion_price`` and ``cached_price`` (of prompt tokens in the cache of the service) are for a
    million tokens, in US dollars as ``budget``. A price of None is unknown, but that of cached tokens is then the one
    of prompt tokens; a budget of None is no limit. ``share`` is the paid fraction of the prices: batches cost less.

    Raises
    ------
    ValueError
        A price or the budget is negative, or there is a budget without prices.
    """

    prompt_price: float | None
    completion_price: float | None
    budget: float | None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_price: float | None = None
    cached_tokens: int = 0
    """Number of prompt tokens from the cache of the service."""
    share: float = 1.0
    reserved: list[float] = field(default_factory=list)
    """Maximum cost of each request in flight."""

    def __post_init__(self) -> None:
        for name in ("prompt_price", "completion_price", "cached_price", "budget"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be 0 or more, not {value:g}")
        if self.budget is not None and not self.has_prices:
            raise ValueError("budget needs prices: set prompt_price and completion_price")

    @property
    def has_prices(self) -> bool:
        """True if the prices of both prompt and completion tokens are known."""
        return self.prompt_price is not None and self.completion_price is not None

    @property
    def spent(self) -> float:
        """Cost of the tokens used so far; 0 without prices."""
        return self.price(self.prompt_tokens, self.completion_tokens, self.cached_tokens)

    def price(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0) -> float:
        """Return the cost of these tokens; 0 unless both prices are known. ``cached_tokens`` are prompt tokens.

        >>> Spending(0.15, 0.6, None).price(2_000_000, 500_000)
        0.6
        >>> Spending(0.15, 0.6, None, cached_price=0.075, share=0.5).price(2_000_000, 500_000, 1_000_000)
        0.2625
        """
        if self.prompt_price is None or self.completion_price is None:
            return 0.0
        saved = 0.0 if self.cached_price is None else cached_tokens * (self.prompt_price - self.cached_price)
        full = prompt_tokens * self.prompt_price - saved + completion_tokens * self.completion_price
        return self.share * full / MILLION

    def allows(self, price: float) -> bool:
        """Return whether the budget covers the cost so far, the cost reserved and this price."""
        return self.budget is None or self.spent + sum(self.reserved) + price <= self.budget

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        """Add the token counts of a service's response to the usage."""
        self.cached_tokens += min(cached_tokens, prompt_tokens)
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens


_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]|\n+")
_TOKENS_PER_PIECE = 1.1
_BYTES_PER_TOKEN = 6  # maximum: with long words, or without spaces
_TOKENS_PER_MESSAGE = 5


@dataclass(frozen=True)
class Workload:
    """Workload of requests: number of requests, answers and tokens, cost and time."""

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
        pairs = zip(astuple(self), astuple(other), strict=True)
        totals: list[Any] = [None if None in pair else sum(pair) for pair in pairs]
        return Workload(*totals)


@dataclass(frozen=True)
class ServiceLimits:
    """Prices, budget and limits of a model; by default of a local one, without any."""

    chat: bool
    choices: int | None = 1
    """Maximum number of answers of one request; None: unknown."""
    spending: Spending = field(default_factory=lambda: Spending(None, None, None))
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    reply_tokens: Callable[[int], int] = lambda tokens: tokens
    """Maximum number of tokens of a whole reply, with reasoning, from that of the answer."""
    max_concurrency: int | None = None
    """Maximum number of requests in flight; None for a local model."""
    batch: bool = False
    """Requests are sent in batch files."""
    batch_price_share: float = 1.0
    """Price of a batched request, as a fraction of the regular price."""

    def workload(self, requests: Iterable[Request], times: Iterable[int] = repeat(1)) -> Workload:
        """Return the workload of the pending answers to these requests, each repeated ``times`` times."""
        answers = sent = prompt = completion = reasoning = 0
        for request, number in zip(requests, times, strict=False):
            length = number * prompt_tokens(request.prompt, self.chat)
            if request.enumeration is not None:
                requests_of, tokens_of = self._enumerated(request)
                answers, sent = answers + number * request.max_answers, sent + number * requests_of
                prompt, completion = prompt + requests_of * length, completion + number * tokens_of
                continue
            reply = self.reply_tokens(request.max_new_tokens)
            for call in calls(request, self.choices or 1):
                replies = number * len(call.trials)
                answers, sent, prompt = answers + replies, sent + number, prompt + length
                completion += replies * reply
                reasoning += replies * (reply - request.max_new_tokens)
        minutes = [
            number / limit
            for number, limit in ((sent, self.requests_per_minute), (prompt + completion, self.tokens_per_minute))
            if limit is not None
        ]
        cost = self.spending.price(prompt, completion) if self.spending.has_prices else None
        return Workload(answers, sent, prompt, completion, cost, 60 * max(minutes, default=0.0), max(0, reasoning))

    def _enumerated(self, request: Request) -> tuple[int, int]:
        """Return the maximum numbers of requests and of completion tokens for enumerated answers.

        A server gets requests for prefixes, and for draws at all temperatures if the bounds are too wide.
        """
        enumeration = request.enumeration
        assert enumeration is not None
        if self.max_concurrency is None:
            return 1, request.max_answers
        prefixes = 1 if enumeration.choices else enumeration.nodes
        draws = [enumeration.draws] if enumeration.choices else [enumeration.draws, FURTHER_DRAWS * enumeration.draws]
        draw_requests = len(request.temperatures) * sum(math.ceil(number / (self.choices or 1)) for number in draws)
        tokens = len(request.temperatures) * sum(draws) * request.max_new_tokens
        return prefixes + draw_requests, request.max_new_tokens + (prefixes - 1) * TOKENS_PER_PREFIX + tokens


def prompt_tokens(prompt: Prompt, chat: bool) -> int:
    """Estimate the number of tokens of a prompt from its words, digits and signs.

    SmolLM2 has 0.95 to 1.0 times as many for the prompts of the built-in questions.
    """
    if not chat:
        return sum(_tokens(text) for pair in prompt.exemplars for text in pair) + _tokens(prompt.question)
    return sum(_tokens(message["content"]) + _TOKENS_PER_MESSAGE for message in prompt.messages())


@lru_cache(maxsize=10_000)
def _tokens(text: str) -> int:
    pieces = len(_PIECES.findall(text))
    return round(max(_TOKENS_PER_PIECE * pieces, len(text.encode()) / _BYTES_PER_TOKEN))
