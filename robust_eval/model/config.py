"""The settings from which a model is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from robust_eval.model.base import LanguageModel, Request
from robust_eval.model.workload import Terms


class Division(NamedTuple):
    """Requests in blocks, each of which can be answered by itself, on another machine, with the same numbers.

    ``beside`` is what the numbers of a block depend on besides its own requests: something small, which
    LanguageModel.complete is given with each.
    """

    blocks: list[list[Request]]
    beside: Any


class ModelConfig(Protocol):
    """Settings from which a model is loaded; a dataclass whose fields are its configuration."""

    name: str

    @property
    def remote(self) -> bool:
        """Whether the model computes somewhere else, so that this machine need not be prepared for it."""

    def terms(self) -> Terms:
        """On which terms it answers."""

    def identity(self) -> Mapping[str, Any]:
        """Everything that determines the answers and is not part of a request, found without loading the model.

        UserError where there is no such model.
        """

    def tokenizer_file(self) -> Path | None:
        """The file of its tokenizer in the format of the library tokenizers, if it is on this machine."""

    def divide(self, requests: Sequence[Request]) -> Division:
        """How requests, at least one, can be divided among several that have loaded the model; it is not loaded for
        that. UserError if that is not possible.
        """

    def load(self) -> LanguageModel:
        """Load the model; UserError if that is not possible."""
