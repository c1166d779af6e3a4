"""Settings of every service: model, limits, retries, prices and budget."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from robust_eval.model.base import Reasoning, Request, Temperatures
from robust_eval.model.generation import Generation
from robust_eval.model.model_config import PROMPT_STYLES, ModelConfig
from robust_eval.model.workload import ServiceLimits, Spending
from robust_eval.runtime.cache import cached_choice
from robust_eval.runtime.text import secret_setting

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from robust_eval.model.served.probe import Capabilities
    from robust_eval.model.served.transport.service import Answering

VERSION = 1
"""Version of the requests. A change that gives other answers to the same request raises it; stored answers of other
versions are not used."""
BATCH_TIMEOUT = 26 * 3600.0
"""Minimum timeout of a request in a batch, which services answer or drop within a day."""


@dataclass
class ServiceSettings(ModelConfig):
    """Settings of a service: its model, and the limits, retries, prices and budget of its requests."""

    name: str
    """The name of the model in logs, tables and the tracker."""
    model: str
    """The service's name for the model."""
    prompt_style: str = "chat"
    """chat: messages. plain (not with model=inspect): completions of "Question: … Answer:", whose first line is the
    answer."""
    generation: Generation = field(default_factory=Generation)
    """Truncation is turned off if the service allows it; preset repository leaves it to the service."""
    top_logprobs: int | None = None
    """Maximum number of log-probabilities per token; null: 20, the maximum of a vLLM server without --max-logprobs."""
    extra_body: Any = None
    """Additional settings in the body of every request, for example {chat_template_kwargs: {enable_thinking:
    false}}."""
    takes_temperature: bool | None = None
    """false: the service ignores the temperature (some servers drop it silently); null: a probe detects it."""
    highest_temperature: float | None = None
    """Temperature at which the service silently caps higher ones; null: a probe detects it."""
    deterministic: bool = False
    """true: the service gives the same reply to a prompt for any seed; a run may then request only one reply to each
    prompt, at one temperature."""
    max_completion_tokens: int | None = None
    """Maximum number of tokens of reasoning and answer together; null: the sampler's maximum for an answer."""
    reasoning_effort: str | None = None
    """Reasoning effort level of the service: low, medium, high, …; null: the service's default."""
    max_concurrency: int = 64
    """Maximum number of concurrent requests, reduced while the service is overloaded."""
    requests_per_minute: float | None = None
    """Rate limit of the service; null: none."""
    tokens_per_minute: float | None = None
    """Rate limit of the service for prompts and completions together; null: none."""
    timeout: float = 120.0
    """Timeout of one request, in seconds."""
    total_timeout: float = 1800.0
    """Time limit for one answer, in seconds, including all retries, but not the wait for the rate limits."""
    retries: int = 10
    """Maximum number of retries of a request."""
    max_error_rate: float = 0.1
    """Maximum share of questions whose answer fails after all retries; a run above it stops, and can be resumed."""
    prompt_price: float | None = None
    """Price of a million tokens of prompts, in US dollars; null: unknown."""
    completion_price: float | None = None
    """Price of a million tokens of completions, in US dollars; null: unknown."""
    cached_price: float | None = None
    """Price of a million cached prompt tokens, in US dollars; null: the price of other prompt tokens."""
    budget: float | None = None
    """Maximum cost of a run, in US dollars. A run stops before it would exceed this, and can be resumed."""
    batch: bool = False
    """Send requests in batches, which the service answers within a day for a fraction of the price."""
    batch_price_share: float = 0.5
    """Price of a batched request, as a fraction of the regular price."""

    remote = True
    takes_thinking_tokens = False  # it accepts a reasoning budget in tokens

    def __post_init__(self) -> None:
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")
        if self.generation.preset == "library_defaults":
            raise ValueError("generation.preset=library_defaults needs a local model: choose full or repository")
        refuse_secrets("extra_body", self.extra_body)
        if reserved := [name for name in _RESERVED if name in (self.extra_body or {})]:
            raise ValueError(f"extra_body must not set {reserved[0]}, which other settings determine: remove it")
        for name in ("max_completion_tokens", "top_logprobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name in _ABOVE_0:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value:g}")
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, not {self.retries}")
        if not 0 <= self.max_error_rate <= 1:
            raise ValueError(f"max_error_rate must be between 0 and 1, not {self.max_error_rate:g}")
        if not 0 <= self.batch_price_share <= 1:
            raise ValueError(f"batch_price_share must be between 0 and 1, not {self.batch_price_share:g}")
        self.spending()

    @property
    def chat(self) -> bool:
        """True if prompts are sent to the service as messages."""
        return self.prompt_style == "chat"

    @property
    @abstractmethod
    def server(self) -> str:
        """Name of the service in messages and in the record of a run."""

    @abstractmethod
    def service(self, key: str | None) -> "AbstractAsyncContextManager[Answering]":
        """Return a client of the service, for one event loop."""

    def exact_refusal(self) -> str | None:
        """Return the reason why sampler=exact cannot use this service, with an alternative; None if it can."""
        return (
            f"sampler=exact needs next-token probabilities after a partial answer, and {self.server} returns none: "
            "choose sampler=temperature_sweep, or a local model"
        )

    def thinking(self) -> dict[str, Any]:
        """Return those settings of a request that set the service's reasoning budget."""
        return {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}

    def reasoning_refusal(self, budgets: Sequence[Reasoning]) -> str | None:
        """Return the reason why requests to the service cannot set these reasoning budgets; None if they can."""
        if names := ", ".join(f"model.{name}" for name in self.thinking()):
            return f"sampler=thinking sets the reasoning budget of each request: remove {names}"
        if any(budget.tokens is not None for budget in budgets):
            return f"{self.server} cannot continue a reasoning trace: choose a local model"
        if any(isinstance(budget.most, int) for budget in budgets) and not self.takes_thinking_tokens:
            return (
                f"{self.server} accepts only reasoning effort levels: set sampler.thinking.budgets to levels of its "
                "API, such as [low,medium,high]"
            )
        if any(isinstance(budget.most, str) for budget in budgets) and self.max_completion_tokens is None:
            return (
                "sampler.thinking.budgets are effort levels, which do not limit the length of a reply: set "
                "model.max_completion_tokens, which limits reasoning and answer together"
            )
        return None

    def reasoning_parameter(self, request: Request) -> dict[str, Any]:
        """Return the reasoning budget of a request as settings of its body."""
        if request.reasoning is None:
            return {}
        name = "reasoning_effort" if isinstance(request.reasoning.most, str) else "thinking_token_budget"
        return {name: request.reasoning.most}

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the service's answers, such as its model and the prompt style."""
        limits = {name: getattr(self, name) for name in ("max_completion_tokens", "top_logprobs")}
        return {
            "version": VERSION,
            "server": self.server,
            "model": self.model,
            "prompt_style": self.prompt_style,
            "generation": asdict(self.generation),
            "extra_body": self.extra_body or {},
            **{name: value for name, value in limits.items() if value is not None},
            **self.thinking(),
        }

    def reply_tokens(self, max_new_tokens: int) -> int:
        """Return the maximum number of tokens of a reply, with reasoning, whose answer may have ``max_new_tokens``."""
        return self.max_completion_tokens or max_new_tokens

    def spending(self) -> Spending:
        """Return the prices and the budget of the service; ValueError if they are invalid."""
        share = self.batch_price_share if self.batch else 1.0
        return Spending(
            self.prompt_price, self.completion_price, self.budget, cached_price=self.cached_price, share=share
        )

    def service_limits(self) -> ServiceLimits:
        """Return the service's prices and limits, with the number of answers to a request if it was probed today."""
        capabilities = self._probed_today()
        return ServiceLimits(
            chat=self.chat,
            choices=capabilities.choices if capabilities else None,
            reply_tokens=self.reply_tokens,
            spending=self.spending(),
            requests_per_minute=None if self.batch else self.requests_per_minute,
            tokens_per_minute=None if self.batch else self.tokens_per_minute,
            max_concurrency=self.max_concurrency,
            batch=self.batch,
            batch_price_share=self.batch_price_share,
        )

    @property
    def answer_timeout(self) -> float:
        """Timeout of a request for an answer, in seconds; at least :data:`BATCH_TIMEOUT` in a batch."""
        return max(self.timeout, BATCH_TIMEOUT) if self.batch else self.timeout

    def temperatures(self, highest: float) -> Temperatures | None:
        """Return the service's temperatures in the settings, or those of today's probe; see ModelConfig."""
        if self.takes_temperature is False:
            return Temperatures(greedy=False, default_only=True)
        capabilities = self._probed_today()
        if capabilities is None or not capabilities.covers(highest) or not capabilities.faithful:
            return None
        return capabilities.temperatures(self.highest_temperature)

    def described_temperatures(self, description: Mapping[str, Any], highest: float) -> Temperatures | None:
        """Return the temperatures of the service by the probe in a stored ``description``; see ModelConfig."""
        from robust_eval.model.served.probe import Capabilities

        can = Capabilities.of_description(description)
        return can.temperatures(self.highest_temperature) if can is not None and can.covers(highest) else None

    def _probed_today(self) -> "Capabilities | None":
        """Return the cached capabilities of the service; None if it was not probed today."""
        from robust_eval.model.served.probe import CACHE, Capabilities, daily_cache_key

        return Capabilities.from_text(cached_choice(CACHE, daily_cache_key(self.identity())) or "")


def refuse_secrets(
    name: str, settings: Mapping[str, Any] | None, instead: str = "name the variable in api_key_env"
) -> None:
    """Raise ValueError unless the free-form settings ``name`` are a mapping without a secret, or None."""
    if settings is not None and not isinstance(settings, dict):
        raise ValueError(f"{name} must be a mapping, not {settings}")
    if secret := secret_setting(settings or {}):
        raise ValueError(
            f"{name}.{secret} must not contain a secret, because a run records all settings: put the key into an "
            f"environment variable, and {instead}"
        )


_ABOVE_0 = (
    *("max_concurrency", "timeout", "total_timeout", "requests_per_minute", "tokens_per_minute"),
    "highest_temperature",
)
_RESERVED = (
    *("max_completion_tokens", "reasoning_effort", "thinking_token_budget"),
    *("model", "messages", "prompt", "n", "best_of", "stream", "seed", "temperature", "top_p", "stop"),
    *("max_tokens", "logprobs", "top_logprobs", "batch"),
)
"""Fields of the body of a request that follow from other settings."""
