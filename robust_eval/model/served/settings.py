"""The settings of a model behind a server, and what is refused of them."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from robust_eval.model.config import PROMPT_STYLES
from robust_eval.model.generation import Generation
from robust_eval.model.spending import Spending
from robust_eval.runtime.secret_names import secret_setting

VERSION = 1
"""To be raised with a change that gives other answers to the same request: stored ones then count no longer."""


@dataclass
class ServerSettings:
    """Where the model is served, and how fast, how often and for how much it may be asked.

    The key is read from the environment only, when the first question is asked, and is written nowhere.
    """

    name: str
    """The name of the model in logs, tables and the tracker."""
    model: str
    """The name of the model on the server."""
    base_url: str = "https://api.openai.com/v1"
    """Address of the server, up to what stands before /chat/completions."""
    key_variable: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; null: the server wants none."""
    prompt_style: str = "chat"
    """chat: messages. plain: completions of "Question: … Answer:", of which an answer is the first line."""
    generation: Generation = field(default_factory=Generation)
    """Truncation is turned off wherever the server lets it be; preset repository leaves it to the server."""
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
    max_completion_tokens: int | None = None
    """Tokens of a reply, reasoning and answer together; null: those that the sampler allows an answer."""
    reasoning_effort: str | None = None
    """How much a reasoning model thinks, as the service calls it: low, medium, high, …; null: its own default."""
    thinking_token_budget: int | None = None
    """Tokens of reasoning after which a server that knows this setting (vLLM) lets the model answer; the answer has
    its own beside them."""
    at_once: int = 64
    """Requests in flight at most; there are fewer while the server does not keep up."""
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    """Limits of the service, prompt and completion together; null: none."""
    request_seconds: float = 120.0
    """What one request may take."""
    answer_seconds: float = 1800.0
    """What an answer may take with all its repetitions."""
    retries: int = 10
    """Repetitions of a request that the server did not answer."""
    max_error_rate: float = 0.1
    """Share of questions of which an answer may fail after all repetitions; the run stops beyond that, and can be
    continued."""
    prompt_price: float | None = None
    completion_price: float | None = None
    """Of a million tokens; null: not known."""
    cached_price: float | None = None
    """Of a million prompt tokens that the service had in its cache; null: what other prompt tokens cost."""
    batch: bool = False
    """Send what is asked in files, which the service answers within a day for a part of the price."""
    batch_price_share: float = 0.5
    """What a batch costs, as a share of the prices."""
    poll_seconds: float = 300.0
    """The longest wait between two looks at a batch; the first are shorter."""
    budget: float | None = None
    """What a run may cost at most, in the currency of the prices; it stops before that, and can be continued."""

    remote = True

    def __post_init__(self) -> None:
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")
        if not {"@", "?", "#"}.isdisjoint(self.base_url):
            raise ValueError("base_url must not hold a secret: name the variable with the key in key_variable")
        if not _is_address(self.base_url):
            raise ValueError(f"base_url must be an address such as http://localhost:8000/v1, not {self.base_url}")
        if self.generation.preset == "library_defaults":
            raise ValueError("generation.preset=library_defaults is for models that are loaded here")
        if self.extra_body is not None and not isinstance(self.extra_body, dict):
            raise ValueError(f"extra_body must be a mapping, not {self.extra_body}")
        if secret := secret_setting(self.extra_body or {}):
            raise ValueError(
                f"extra_body.{secret} must not hold a secret, because all settings are written down with the run: put "
                "the key into an environment variable, and name that in key_variable"
            )
        if own := [name for name in _OWN if name in (self.extra_body or {})]:
            raise ValueError(f"extra_body must not hold {own[0]}, which follows from other settings")
        for name in ("max_completion_tokens", "thinking_token_budget", "top_logprobs"):
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
        if not 0 <= self.batch_price_share <= 1:
            raise ValueError(f"batch_price_share must lie between 0 and 1, not {self.batch_price_share:g}")
        self.spending()

    def spending(self) -> Spending:
        """Return what nothing has been spent of yet; ValueError where prices and budget make no sense."""
        share = self.batch_price_share if self.batch else 1.0
        return Spending(
            self.prompt_price, self.completion_price, self.budget, cached_price=self.cached_price, share=share
        )

    def identity(self) -> dict[str, Any]:
        """Return the server, what it calls the model, and how it is prompted."""
        return {
            "version": VERSION,
            "server": self.base_url.rstrip("/"),
            "model": self.model,
            "prompt_style": self.prompt_style,
            "generation": asdict(self.generation),
            "extra_body": self.extra_body or {},
            **{name: value for name in (*_THINKING, "top_logprobs") if (value := getattr(self, name)) is not None},
        }

    def reply_tokens(self, max_new_tokens: int) -> int:
        """Return how many tokens a reply has at most whose answer may have ``max_new_tokens``."""
        return self.max_completion_tokens or max_new_tokens + (self.thinking_token_budget or 0)


_ABOVE_0 = ("at_once", "request_seconds", "answer_seconds", "poll_seconds", "requests_per_minute", "tokens_per_minute")
_THINKING = ("max_completion_tokens", "reasoning_effort", "thinking_token_budget")
"""Settings that change answers, and are part of the identity where they are given."""
_OWN = (
    *_THINKING,
    *("model", "messages", "prompt", "n", "best_of", "stream", "seed", "temperature", "top_p", "stop"),
    *("max_tokens", "logprobs", "top_logprobs"),
)
"""What the program itself says in the body of a request."""


def _is_address(url: str) -> bool:
    try:
        address = urlsplit(url)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # of the port
        return False
