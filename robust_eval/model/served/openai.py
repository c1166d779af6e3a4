"""Model behind a server with OpenAI's protocol: OpenAI, vLLM, llama.cpp, the server of an institute."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from robust_eval.error import UserError
from robust_eval.model.served.service_settings import ServiceSettings

if TYPE_CHECKING:
    from robust_eval.model.served.served_model import ServedModel
    from robust_eval.model.served.transport.service import Service


@dataclass
class OpenAI(ServiceSettings):
    """Model of a server with OpenAI's protocol, which answers HTTP requests or batches of them.

    The key is read from the environment before the first request, and is written nowhere.
    """

    base_url: str = "https://api.openai.com/v1"
    """Address of the server, up to the part before /chat/completions."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Environment variable that contains the key; null: the server needs none."""
    thinking_token_budget: int | None = None
    """Maximum number of reasoning tokens, for servers with this setting (vLLM); the tokens of the answer are
    additional."""
    poll_seconds: float = 300.0
    """Maximum interval between polls of a batch, in seconds; the first intervals are shorter."""

    takes_thinking_tokens = True  # of vLLM

    def __post_init__(self) -> None:
        if not {"@", "?", "#"}.isdisjoint(self.base_url):
            raise ValueError(
                "base_url must not contain a secret: set api_key_env to the name of the environment variable that "
                "holds the key"
            )
        if not _is_address(self.base_url):
            raise ValueError(f"base_url must be an address such as http://localhost:8000/v1, not {self.base_url}")
        if self.thinking_token_budget is not None and self.thinking_token_budget < 1:
            raise ValueError(f"thinking_token_budget must be at least 1, not {self.thinking_token_budget}")
        if not self.poll_seconds > 0:
            raise ValueError(f"poll_seconds must be above 0, not {self.poll_seconds:g}")
        super().__post_init__()

    @property
    def server(self) -> str:
        """Address of the server."""
        return self.base_url

    def identity(self) -> dict[str, Any]:
        """Return the address of the server, its name for the model, and the prompt style."""
        return super().identity() | {"server": self.base_url.rstrip("/")}

    def thinking(self) -> dict[str, Any]:
        """Return the fields of a request's body that set the reasoning budget; see ServiceSettings."""
        budget = self.thinking_token_budget
        return super().thinking() | ({} if budget is None else {"thinking_token_budget": budget})

    def reply_tokens(self, max_new_tokens: int) -> int:
        """Return the maximum number of tokens of a reply, with its reasoning; see ServiceSettings."""
        return self.max_completion_tokens or max_new_tokens + (self.thinking_token_budget or 0)

    def service(self, key: str | None) -> "Service":
        """Return a client of the server; see ServiceSettings."""
        from robust_eval.model.served.transport.service import Service

        return Service(self.base_url, self.model, key, self.chat, self.max_concurrency)

    def exact_refusal(self) -> str | None:
        """Return the reason why these settings exclude sampler=exact, with an alternative; None if they do not."""
        if self.batch:
            return (
                "sampler=exact needs each response for its next request, and a batch takes up to a day: set "
                "model.batch=false"
            )
        if self.generation.changes_distribution:
            return (
                "sampler=exact needs the whole distribution of a served model, and model.generation truncates it: "
                "remove model.generation, or choose sampler=temperature_sweep"
            )
        if self.thinking_token_budget or self.reasoning_effort or self.max_completion_tokens:
            return (
                "sampler=exact needs answers without reasoning: remove model.thinking_token_budget, "
                "model.reasoning_effort and model.max_completion_tokens, or choose sampler=temperature_sweep"
            )
        return None

    def load(self) -> "ServedModel":
        """Return a client of the server, which loads nothing; UserError if the key is missing."""
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else None
        if key == "":
            raise UserError(
                f"the environment variable {self.api_key_env} is not set: set it to the key for {self.base_url}, or "
                "set model.api_key_env=null if the server needs none"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise UserError(
                f"the environment variable {self.api_key_env} contains no key: only printable ASCII is valid"
            )
        from robust_eval.model.served.served_model import ServedModel

        return ServedModel(self, key, self.poll_seconds if self.batch else None)


def _is_address(url: str) -> bool:
    """Return whether a URL is the address of a server: scheme, host, and a valid port."""
    try:
        address = urlsplit(url)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # of the port
        return False
