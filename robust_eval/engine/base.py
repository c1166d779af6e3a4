"""What every engine can be asked."""

from collections.abc import Iterator, Sequence, Set
from typing import Protocol

from robust_eval.model.base import Item, LanguageModel, Reply, Request


class Engine(Protocol):
    """A place where the work runs; a dataclass whose fields are its configuration."""

    def prepare(self) -> None:
        """Set what must be set before a model is loaded."""

    def run(
        self, model: LanguageModel, requests: Sequence[Request], missing: Set[Item], stage: str
    ) -> Iterator[list[Reply]]:
        """The replies to the missing requests, a block at a time; see LanguageModel.complete."""
