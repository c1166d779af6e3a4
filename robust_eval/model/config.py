"""The settings from which a model is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from robust_eval.model.base import LanguageModel, Request, Temperatures
from robust_eval.model.workload import ServiceLimits

PROMPT_STYLES = ("plain", "chat")
"""How a model is prompted: with text that it continues, or with messages of a conversation."""


class Shards(NamedTuple):
    """Requests in blocks, each of which can be answered by itself, on another machine, with the same numbers.

    ``batch_context`` is what the numbers of a block depend on besides its own requests: something small, which
    LanguageModel.complete is given with each.
    """

    blocks: list[list[Request]]
    batch_context: Any


class ModelConfig(Protocol):
    """Settings from which a model is loaded; a dataclass whose fields are its configuration.

    A class that names this one as its base has to say what it is called, its ``identity`` and how it is loaded. The
    rest has a default.
    """

    name: str
    """What the model is called in logs, tables and the tracker."""

    @property
    def remote(self) -> bool:
        """Whether the model computes somewhere else, so that this machine need not be prepared for it."""
        return False

    @property
    def recorded(self) -> bool:
        """Whether its answers were collected elsewhere, so that it cannot be asked."""
        return False

    def identity(self) -> Mapping[str, Any]:
        """Return everything that determines the answers and is not part of a request; the model is not loaded for it.

        Raises UserError where there is no such model.
        """

    def load(self) -> LanguageModel:
        """Load the model; UserError if that is not possible."""

    def service_limits(self) -> ServiceLimits:
        """Return prices and limits; by default it costs nothing but time."""
        return ServiceLimits(chat=False)

    def temperatures(self, wanted: float) -> Temperatures | None:
        """Return which temperatures the model takes; None where only the loaded model knows. By default all.

        ``wanted`` is the highest that matters.
        """
        return Temperatures()

    def tokenizer_file(self) -> Path | None:
        """Return the file of its tokenizer, in the format of the library tokenizers, if it is on this machine."""
        return None

    def shard(self, requests: Sequence[Request]) -> Shards:
        """Divide requests, at least one, among several processes that have loaded the model.

        The model is not loaded for it. By default each request is a block of its own. Raises UserError if the requests
        cannot be divided.
        """
        return Shards([[request] for request in requests], None)

    def for_probabilities(self) -> "ModelConfig":
        """Return the settings for runs that measure the model's probabilities, which rounded numbers would move."""
        return self

    def on(self, device: str) -> "ModelConfig":
        """Return the settings with this device (``cpu`` or ``cuda``), where they leave the device open."""
        return self
