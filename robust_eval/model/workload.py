"""What it takes to answer requests, as far as it can be told before anything is asked."""

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
_BYTES_PER_TOKEN = 6  # at most: where words are long, or not parted by spaces
_TOKENS_PER_MESSAGE = 5


@dataclass(frozen=True)
class Workload:
    """How much is asked, and what it costs."""

    answers: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    """About."""
    completion_tokens: int = 0
    """At most."""
    cost: float | None = 0.0
    """At most, about; None where prices are not known."""
    seconds: float = 0.0
    """At least, by the limits of the service; 0 where it has none."""
    reasoning_tokens: int = 0
    """Those of the completion tokens that are left for reasoning."""

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
    """On which terms a model answers; by default one that is loaded here.

    Prices are of a million tokens, limits of a minute; None where there is none.
    """

    chat: bool
    choices: int | None = 1
    """Answers that one request brings at most; None: not known."""
    prompt_price: float | None = None
    completion_price: float | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: float | None = None
    reply_tokens: Callable[[int], int] = lambda most: most
    """Tokens of a whole reply at most, from those that the answer may have: what a model thinks comes on top."""
    at_once: int | None = None
    """Requests in flight at most; None for a model that is loaded here."""
    batch: bool = False
    """Whether they are sent in files."""
    batch_price_share: float = 1.0
    """What a batch costs, as a share of the prices."""

    def workload(self, requests: Iterable[Request], times: Iterable[int] = repeat(1)) -> Workload:
        """Return what it takes to answer what is not known of these requests, each as often as ``times`` says."""
        answers = sent = prompt = completion = thought = 0
        for request, number in zip(requests, times, strict=False):
            length = number * prompt_tokens(request.prompt, self.chat)
            if request.enumeration is not None:
                requests_of, tokens_of = self._enumerated(request)
                answers, sent = answers + number * request.answers, sent + number * requests_of
                prompt, completion = prompt + requests_of * length, completion + number * tokens_of
                continue
            reply = self.reply_tokens(request.max_new_tokens)
            for call in calls(request, self.choices or 1):
                came = number * len(call.trials)
                answers, sent, prompt = answers + came, sent + number, prompt + length
                completion += came * reply
                thought += came * (reply - request.max_new_tokens)
        share = self.batch_price_share if self.batch else 1.0
        spending = Spending(self.prompt_price, self.completion_price, None, share=share)
        minutes = [
            number / limit
            for number, limit in ((sent, self.requests_per_minute), (prompt + completion, self.tokens_per_minute))
            if limit is not None
        ]
        cost = spending.price(prompt, completion) if spending.known else None
        return Workload(answers, sent, prompt, completion, cost, 60 * max(minutes, default=0.0), max(0, thought))

    def _enumerated(self, request: Request) -> tuple[int, int]:
        """Return how many requests and tokens enumerated answers take at most: of a server, beginnings of answers are
        asked for, and answers are drawn at all temperatures if that says too little.
        """
        enumeration = request.enumeration
        assert enumeration is not None
        if self.at_once is None:
            return 1, request.answers
        beginnings = 1 if enumeration.choices else enumeration.nodes
        draws = [enumeration.draws] if enumeration.choices else [enumeration.draws, FURTHER_DRAWS * enumeration.draws]
        drawn = len(request.temperatures) * sum(math.ceil(number / (self.choices or 1)) for number in draws)
        tokens = len(request.temperatures) * sum(draws) * request.max_new_tokens
        return beginnings + drawn, request.max_new_tokens + (beginnings - 1) * LEVELS + tokens


def prompt_tokens(prompt: Prompt, chat: bool) -> int:
    """Return about how many tokens a prompt has, by its words, digits and signs: models cut text into tokens
    differently.

    Of the prompts of the built-in questions, SmolLM2 makes 0.95 to 1.0 times as many.
    """
    if not chat:
        return sum(_tokens(text) for pair in prompt.exemplars for text in pair) + _tokens(prompt.question)
    return sum(_tokens(message["content"]) + _TOKENS_PER_MESSAGE for message in prompt.messages())


@lru_cache(maxsize=10_000)
def _tokens(text: str) -> int:
    pieces = len(_PIECES.findall(text))
    return round(max(_TOKENS_PER_PIECE * pieces, len(text.encode()) / _BYTES_PER_TOKEN))
