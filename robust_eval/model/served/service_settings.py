"""The settings of every service that is asked for answers: how fast, how often and for how much."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from robust_eval.error import UserError
from robust_eval.model.base import Request, Temperatures, Thought
from robust_eval.model.config import PROMPT_STYLES, ModelConfig
from robust_eval.model.generation import Generation
from robust_eval.model.spending import Spending
from robust_eval.model.workload import ServiceLimits
from robust_eval.runtime.measured_choices import cached_choice
from robust_eval.runtime.text import secret_setting

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from robust_eval.model.served.transport.service import Answering, Service

VERSION = 1
"""To be raised with a change that gives other answers to the same request: stored ones then count no longer."""


@dataclass
class ServiceSettings(ModelConfig):
    """Which model a service is asked for, and how fast, how often and for how much it may be asked."""

    name: str
    """The name of the model in logs, tables and the tracker."""
    model: str
    """The name of the model, as the service calls it."""
    prompt_style: str = "chat"
    """chat: messages. plain: completions of "Question: … Answer:", of which an answer is the first line."""
    generation: Generation = field(default_factory=Generation)
    """Truncation is turned off wherever the service lets it be; preset repository leaves it to the service."""
    top_logprobs: int | None = None
    """Log-probabilities a token that are asked for at most; null: 20, more than which vLLM gives only if it is started
    with --max-logprobs."""
    extra_body: Any = None
    """More settings for the body of every request, for example {chat_template_kwargs: {enable_thinking: false}}."""
    takes_temperature: bool | None = None
    """false: the model answers at a temperature of its own, whatever it is sent (some servers drop it in silence);
    null: found by asking."""
    highest_temperature: float | None = None
    """Of a service that takes higher ones and makes this of them in silence; null: found by asking."""
    deterministic: bool = False
    """true: the service gives one reply to a prompt, whatever the seed, and is asked once at one temperature."""
    max_completion_tokens: int | None = None
    """Tokens of a reply, reasoning and answer together; null: those that the sampler allows an answer."""
    reasoning_effort: str | None = None
    """How much a reasoning model thinks, as the service calls it: low, medium, high, …; null: its own default."""
    max_concurrency: int = 64
    """Requests in flight at most; there are fewer while the service does not keep up."""
    requests_per_minute: float | None = None
    """Limit of the service; null: none."""
    tokens_per_minute: float | None = None
    """Limit of the service, prompt and completion together; null: none."""
    timeout: float = 120.0
    """What one request may take."""
    total_timeout: float = 1800.0
    """What an answer may take with all its repetitions."""
    retries: int = 10
    """Repetitions of a request that the service did not answer."""
    max_error_rate: float = 0.1
    """Share of questions of which an answer may fail after all repetitions; the run stops beyond that, and can be
    continued."""
    prompt_price: float | None = None
    """Of a million tokens of prompts; null: not known."""
    completion_price: float | None = None
    """Of a million tokens of completions; null: not known."""
    cached_price: float | None = None
    """Of a million prompt tokens that the service had in its cache; null: what other prompt tokens cost."""
    budget: float | None = None
    """What a run may cost at most, in the currency of the prices; it stops before that, and can be continued."""

    remote = True

    def __post_init__(self) -> None:
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")
        if self.generation.preset == "library_defaults":
            raise ValueError("generation.preset=library_defaults is for models that are loaded here")
        refuse_secrets("extra_body", self.extra_body)
        if own := [name for name in _OWN if name in (self.extra_body or {})]:
            raise ValueError(f"extra_body must not hold {own[0]}, which follows from other settings")
        for name in ("max_completion_tokens", "top_logprobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.highest_temperature is not None and not 0 < self.highest_temperature < math.inf:
            raise ValueError(f"highest_temperature must be above 0, not {self.highest_temperature:g}")
        for name in _ABOVE_0:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value:g}")
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, not {self.retries}")
        if not 0 <= self.max_error_rate <= 1:
            raise ValueError(f"max_error_rate must lie between 0 and 1, not {self.max_error_rate:g}")
        self.spending()

    @property
    @abstractmethod
    def server(self) -> str:
        """What the service is called in messages and in the record of a run."""

    @abstractmethod
    def service(self, key: str | None) -> "AbstractAsyncContextManager[Answering]":
        """Return the way to the service, for one event loop; ``key`` is the one that settings name."""

    def exact_refusal(self) -> str | None:
        """Say why sampler=exact cannot ask this service; None where nothing keeps it from that."""
        return (
            f"sampler=exact asks what is likely after the beginning of an answer, which {self.server} does not say: "
            "choose sampler=temperature_sweep, or a model that is loaded here"
        )

    def openai_service(self, key: str | None) -> "Service":
        """Return the way to a server that speaks OpenAI's protocol: continuations of answers and batches need it."""
        raise UserError(self.exact_refusal() or self.server)

    def thinking(self) -> dict[str, Any]:
        """Return how much the model is to think, as far as that is set, as a request says it."""
        return {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}

    def thought_refusal(self, thoughts: Sequence[Thought]) -> str | None:
        """Say why requests cannot say so what the model thinks before it answers; None where they can."""
        if self.thinking():
            said = ", ".join(f"model.{name}" for name in self.thinking())
            return f"sampler=thinking says itself how much the model thinks: leave out {said}"
        if any(thought.tokens is not None for thought in thoughts):
            return f"{self.server} answers behind thoughts of its own alone"
        if any(isinstance(thought.most, int) for thought in thoughts) and not self.takes_thinking_tokens:
            return (
                f"{self.server} is told in a word how much to think: sampler.thinking.budgets=[low,medium,high], with "
                "the words that it knows"
            )
        if any(isinstance(thought.most, str) for thought in thoughts) and self.max_completion_tokens is None:
            return (
                "sampler.thinking.budgets are words, which do not say how long a reply is: set "
                "model.max_completion_tokens, of reasoning and answer together"
            )
        return None

    @property
    def takes_thinking_tokens(self) -> bool:
        """Whether the service may be told in tokens how much the model thinks."""
        return False

    def thought(self, request: Request) -> dict[str, Any]:
        """Return how much the model is to think before it answers a request, as the request says it."""
        if request.thought is None:
            return {}
        name = "reasoning_effort" if isinstance(request.thought.most, str) else "thinking_token_budget"
        return {name: request.thought.most}

    def identity(self) -> dict[str, Any]:
        """Return the service, what it calls the model, and how it is prompted."""
        given = {name: getattr(self, name) for name in ("max_completion_tokens", "top_logprobs")}
        return {
            "version": VERSION,
            "server": self.server,
            "model": self.model,
            "prompt_style": self.prompt_style,
            "generation": asdict(self.generation),
            "extra_body": self.extra_body or {},
            **{name: value for name, value in given.items() if value is not None},
            **self.thinking(),
        }

    def reply_tokens(self, max_new_tokens: int) -> int:
        """Return how many tokens a reply has at most whose answer may have ``max_new_tokens``."""
        return self.max_completion_tokens or max_new_tokens

    def spending(self) -> Spending:
        """Return what nothing has been spent of yet; ValueError where prices and budget make no sense."""
        return Spending(self.prompt_price, self.completion_price, self.budget, cached_price=self.cached_price)

    def service_limits(self) -> ServiceLimits:
        """Prices and limits, and how many answers a request brings if the service was asked that today."""
        from robust_eval.model.served.probe import CACHE, Capabilities, daily_cache_key

        known = Capabilities.from_text(cached_choice(CACHE, daily_cache_key(self.identity())) or "")
        return ServiceLimits(
            chat=self.prompt_style == "chat",
            choices=known.choices if known else None,
            reply_tokens=self.reply_tokens,
            prompt_price=self.prompt_price,
            completion_price=self.completion_price,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            budget=self.budget,
            max_concurrency=self.max_concurrency,
        )

    def temperatures(self, wanted: float) -> Temperatures | None:
        """Return what the settings say, or the service if it was asked that today; see ModelConfig."""
        if self.takes_temperature is False:
            return Temperatures(greedy=False, default_only=True)
        from robust_eval.model.served.probe import CACHE, Capabilities, daily_cache_key

        known = Capabilities.from_text(cached_choice(CACHE, daily_cache_key(self.identity())) or "")
        if known is None or not known.tells_of(wanted) or not known.faithful:
            return None
        return known.temperatures(self.highest_temperature)


def refuse_secrets(name: str, settings: Mapping[str, Any] | None, instead: str = "name that in api_key_env") -> None:
    """ValueError unless settings that may hold anything are a mapping without a secret, or None."""
    if settings is not None and not isinstance(settings, dict):
        raise ValueError(f"{name} must be a mapping, not {settings}")
    if secret := secret_setting(settings or {}):
        raise ValueError(
            f"{name}.{secret} must not hold a secret, because all settings are written down with the run: put "
            f"the key into an environment variable, and {instead}"
        )


_ABOVE_0 = ("max_concurrency", "timeout", "total_timeout", "requests_per_minute", "tokens_per_minute")
_OWN = (
    *("max_completion_tokens", "reasoning_effort", "thinking_token_budget"),
    *("model", "messages", "prompt", "n", "best_of", "stream", "seed", "temperature", "top_p", "stop"),
    *("max_tokens", "logprobs", "top_logprobs"),
)
"""What the program itself says in the body of a request."""
