"""A model behind any server that speaks OpenAI's protocol: OpenAI, vLLM, llama.cpp, the server of an institute."""

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from robust_eval.error import UserError
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.spending import Spending
from robust_eval.model.workload import ServiceLimits

if TYPE_CHECKING:
    from robust_eval.model.served.served_model import ServedModel
    from robust_eval.model.served.transport.service import Service


@dataclass
class OpenAI(ServiceSettings):
    """Model that a server names, asked over HTTP, one request at a time or in batches.

    The key is read from the environment only, when the first question is asked, and is written nowhere.
    """

    base_url: str = "https://api.openai.com/v1"
    """Address of the server, up to what stands before /chat/completions."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; null: the server wants none."""
    thinking_token_budget: int | None = None
    """Tokens of reasoning after which a server that knows this setting (vLLM) lets the model answer; the answer has
    its own beside them."""
    batch: bool = False
    """Send what is asked in files, which the service answers within a day for a part of the price."""
    batch_price_share: float = 0.5
    """What a batch costs, as a share of the prices."""
    poll_seconds: float = 300.0
    """The longest wait between two looks at a batch; the first are shorter."""

    def __post_init__(self) -> None:
        if not {"@", "?", "#"}.isdisjoint(self.base_url):
            raise ValueError("base_url must not hold a secret: name the variable with the key in api_key_env")
        if not _is_address(self.base_url):
            raise ValueError(f"base_url must be an address such as http://localhost:8000/v1, not {self.base_url}")
        if self.thinking_token_budget is not None and self.thinking_token_budget < 1:
            raise ValueError(f"thinking_token_budget must be at least 1, not {self.thinking_token_budget}")
        if not self.poll_seconds > 0:
            raise ValueError(f"poll_seconds must be above 0, not {self.poll_seconds:g}")
        if not 0 <= self.batch_price_share <= 1:
            raise ValueError(f"batch_price_share must lie between 0 and 1, not {self.batch_price_share:g}")
        super().__post_init__()

    @property
    def server(self) -> str:
        """The address."""
        return self.base_url

    def identity(self) -> dict[str, Any]:
        """Return the server, what it calls the model, and how it is prompted."""
        return super().identity() | {"server": self.base_url.rstrip("/")}

    def thinking(self) -> dict[str, Any]:
        """See ServiceSettings."""
        budget = self.thinking_token_budget
        return super().thinking() | ({} if budget is None else {"thinking_token_budget": budget})

    @property
    def takes_thinking_tokens(self) -> bool:
        """See ServiceSettings; vLLM does."""
        return True

    def reply_tokens(self, max_new_tokens: int) -> int:
        """See ServiceSettings."""
        return self.max_completion_tokens or max_new_tokens + (self.thinking_token_budget or 0)

    def spending(self) -> Spending:
        """See ServiceSettings; batches cost less."""
        return replace(super().spending(), share=self.batch_price_share if self.batch else 1.0)

    def service_limits(self) -> ServiceLimits:
        """See ServiceSettings; batches have limits of their own."""
        terms = replace(super().service_limits(), batch=self.batch, batch_price_share=self.batch_price_share)
        return replace(terms, requests_per_minute=None, tokens_per_minute=None) if self.batch else terms

    def service(self, key: str | None) -> "Service":
        """See ServiceSettings."""
        from robust_eval.model.served.transport.service import Service

        return Service(self.base_url, self.model, key, self.prompt_style == "chat", self.max_concurrency)

    def openai_service(self, key: str | None) -> "Service":
        """See ServiceSettings."""
        return self.service(key)

    def exact_refusal(self) -> str | None:
        """See ServiceSettings: settings that keep it from all probabilities of the model."""
        own = self.generation
        if self.batch:
            return (
                "sampler=exact asks for what follows from the answers before, and batches take a day: model.batch=false"
            )
        if own.preset != "full" or own.truncates or own.repetition_penalty != 1:
            return (
                "sampler=exact computes with all of the distribution of a model behind a server, and model.generation "
                "truncates it: leave that out, or choose sampler=temperature_sweep"
            )
        if self.thinking_token_budget or self.reasoning_effort or self.max_completion_tokens:
            return (
                "sampler=exact needs the probabilities of answers whatever the model thinks before: leave out "
                "model.thinking_token_budget, model.reasoning_effort and model.max_completion_tokens, or choose "
                "sampler=temperature_sweep"
            )
        return None

    def load(self) -> "ServedModel":
        """Return a client of the server, which loads nothing; UserError where the key is missing."""
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else None
        if key == "":
            raise UserError(
                f"the environment variable {self.api_key_env} is not set: it holds the key for {self.base_url} "
                "(model.api_key_env=null where the server wants none)"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise UserError(f"the environment variable {self.api_key_env} holds no key: it has other characters")
        from robust_eval.model.served.served_model import ServedModel

        return ServedModel(self, key, self.poll_seconds if self.batch else None)


def _is_address(url: str) -> bool:
    """Tell whether this is the address of a server: scheme, host, and a port that may be one."""
    try:
        address = urlsplit(url)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # of the port
        return False
