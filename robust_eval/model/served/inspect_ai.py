"""Model of a provider of inspect_ai: Anthropic, Google, Bedrock, Mistral, …"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robust_eval.error import UserError
from robust_eval.model.served.service_settings import ServiceSettings, refuse_secrets

if TYPE_CHECKING:
    from robust_eval.model.served.served_model import ServedModel
    from robust_eval.model.served.transport.inspect_service import InspectService

log = logging.getLogger(__name__)


@dataclass
class InspectAI(ServiceSettings):
    """Model with inspect_ai's name PROVIDER/NAME.

    The provider reads its key from its documented environment variable; the key is written nowhere.
    """

    base_url: str | None = None
    """Address of the provider; null: the provider's own, or that of its environment variable."""
    model_args: Any = None
    """Additional arguments of inspect_ai for the provider (its option -M), for example {responses_api: false}."""

    def __post_init__(self) -> None:
        if self.prompt_style != "chat":
            raise ValueError(f"prompt_style must be chat, not {self.prompt_style}: inspect_ai sends messages")
        if "/" not in self.model:
            raise ValueError(f"model must be PROVIDER/NAME, such as anthropic/claude-opus-5, not {self.model}")
        if self.base_url is not None and not {"@", "?", "#"}.isdisjoint(self.base_url):
            raise ValueError(
                "base_url must not contain a secret: the provider reads its key from an environment variable"
            )
        refuse_secrets("model_args", self.model_args, "name it as the provider documents it")
        if reserved := [name for name in _RESERVED if name in (self.model_args or {})]:
            raise ValueError(f"model_args must not set {reserved[0]}, which other settings determine: remove it")
        super().__post_init__()

    @property
    def server(self) -> str:
        """Provider of inspect_ai and its model: PROVIDER/NAME."""
        return self.model

    def identity(self) -> dict[str, Any]:
        """Return the provider of inspect_ai, its model, and the prompt style."""
        provider = {"server": "inspect_ai", "base_url": self.base_url, "model_args": self.model_args or {}}
        return super().identity() | provider

    def service(self, key: str | None) -> "InspectService":
        """Return a client of the provider, which reads its key itself; see ServiceSettings."""
        from robust_eval.model.served.transport.inspect_service import InspectService

        return InspectService(self.model, self.base_url, self.model_args or {}, self.max_concurrency)

    def load(self) -> "ServedModel":
        """Return a client of the provider, which loads nothing; UserError if inspect_ai is not installed."""
        try:
            import inspect_ai  # noqa: F401
        except ImportError as problem:
            raise UserError(
                "model=inspect needs inspect_ai, which is not installed: pip install 'robust_eval[inspect]'"
            ) from problem
        from robust_eval.model.served.served_model import ServedModel

        if self.batch:
            log.warning(
                "model.batch=true: inspect_ai keeps batches in this process, so a run that is killed pays for their "
                "requests again"
            )
        return ServedModel(self, None)


_RESERVED = ("model", "role", "default", "config", "base_url", "memoize", "max_retries", "custom_outputs")
"""Arguments of a provider that other settings determine."""
