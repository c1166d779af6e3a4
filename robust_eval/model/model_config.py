"""Protocol of the configuration of a model, and configurations of models that are only on record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from robust_eval.error import UserError
from robust_eval.model.base import LanguageModel, Request, Temperatures
from robust_eval.model.workload import ServiceLimits

PROMPT_STYLES = ("plain", "chat")
"""Prompt styles: text to continue, or messages of a conversation."""


class Shards(NamedTuple):
    """Requests in blocks that can be answered separately, on other machines, with the same numbers.

    ``batch_context`` is a small summary of all requests on which the numbers of a block depend;
    LanguageModel.complete gets it with each block.
    """

    blocks: list[list[Request]]
    batch_context: Any


class ModelConfig(Protocol):
    """Configuration of a model: a dataclass whose fields are its settings.

    A subclass defines its ``name``, ``identity`` and ``load``. The rest has a default.

    >>> from robust_eval import FunctionModel
    >>> @dataclass
    ... class Roman(ModelConfig):
    ...     name: str = "roman"
    ...     def identity(self):
    ...         return {"kind": "roman"}
    ...     def load(self):
    ...         return FunctionModel(lambda prompts: ["Rome"] * len(prompts), self.name).load()
    >>> Roman().load().description()["name"]
    'roman'
    """

    name: str
    """Name of the model in logs, tables and the tracker."""

    @property
    def remote(self) -> bool:
        """True if the model of this configuration runs elsewhere, so that this machine needs no preparation."""
        return False

    @property
    def uses_torch(self) -> bool:
        """True if torch runs the model of this configuration, which then answers all of a request anew."""
        return False

    @property
    def seedless_greedy(self) -> bool:
        """True if the configured model's answers at temperature 0 do not depend on the seed of a request."""
        return False

    @property
    def recorded(self) -> bool:
        """True if the configuration stands for recorded answers of a model, which cannot be queried."""
        return False

    def identity(self) -> Mapping[str, Any]:
        """Return everything outside a request that determines the answers, without loading the model.

        Raises UserError if the model does not exist.
        """

    def load(self) -> LanguageModel:
        """Load the model of this configuration; UserError if that fails."""

    def service_limits(self) -> ServiceLimits:
        """Return prices and limits of the model of this configuration; by default there are none."""
        return ServiceLimits(chat=False)

    def temperatures(self, highest: float) -> Temperatures | None:
        """Return temperatures that the configured model supports (default: all); None if only the loaded model knows.

        ``highest`` is the highest one that the run needs.
        """
        return Temperatures()

    def described_temperatures(self, description: Mapping[str, Any], highest: float) -> Temperatures | None:
        """Return the temperatures that the configured model supports by its stored ``description``; None if that does
        not cover ``highest``.
        """
        return None

    def tokenizer_file(self) -> Path | None:
        """Return the file of the model's tokenizer, in the format of the library tokenizers, if this machine has it."""
        return None

    def shard(self, requests: Sequence[Request]) -> Shards:
        """Divide requests, at least one, among processes that have loaded the configured model; it is not loaded here.

        By default each request is a block. Raises UserError if the requests cannot be divided.
        """
        return Shards([[request] for request in requests], None)

    def for_probabilities(self) -> "ModelConfig":
        """Return the configuration for runs that measure probabilities, which lower precision would change."""
        return self

    def on(self, device: str) -> "ModelConfig":
        """Return the model's configuration with this device (``cpu`` or ``cuda``) if its own is ``auto``."""
        return self


@dataclass
class RecordedModel(ModelConfig):
    """Configuration of a model whose answers are recorded (sampler=recorded)."""

    name: str
    """The name of the model in logs, tables and the tracker."""
    prompt_style: str = "plain"
    """plain | chat: the format of the prompts, which selects the reader of the replies, unless the file records it."""

    remote = True
    recorded = True

    def identity(self) -> Mapping[str, Any]:
        """Return nothing: the model of recorded answers is unknown."""
        return {}

    def __post_init__(self) -> None:
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")

    def service_limits(self) -> ServiceLimits:
        """Return limits without prices for a model of recorded answers; see ModelConfig."""
        return ServiceLimits(chat=self.prompt_style == "chat")

    def load(self) -> LanguageModel:
        """Raise UserError: a model of recorded answers cannot be loaded."""
        raise UserError(f"model {self.name} has only recorded answers: set sampler=recorded, or choose another model")


@dataclass
class InMemoryModel(ModelConfig):
    """Record of a model object of a Python program: its name, its class and its plain settings.

    It replaces the object in the configuration of a run, and cannot be loaded.
    """

    name: str = "???"  # must be given (omegaconf.MISSING, which grading one reply does not import)
    kind: str = "???"
    settings: Any = None
    prompt_style: str = "plain"
    """plain | chat: the format of its prompts."""

    def service_limits(self) -> ServiceLimits:
        """Return limits without prices, for the prompt style on record; see ModelConfig."""
        return ServiceLimits(chat=self.prompt_style == "chat")

    def identity(self) -> Mapping[str, Any]:
        """Raise UserError: the model object ended with its program."""
        self._refuse()

    def load(self) -> NoReturn:
        """Raise UserError: the model object on record ended with its program."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError(
            f"model {self.name} was an object of a Python program ({self.kind}), which no configuration can load: pass "
            "it to robust_eval.run(model=…)"
        )
