"""Protocols of engines and of model runners."""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from robust_eval.model.base import Item, KeyValueStore, Request, Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.reply_tables import ReplyTables
from robust_eval.runtime.console import progress

ATTEMPTS = 3
"""Maximum number of attempts at a block or a part in other processes; then the answers of a block are errors, which the
next run requests again."""


class AdaptiveRequests(Protocol):
    """Protocol of requests that depend on the answers to others."""

    @property
    def finished(self) -> int:
        """Number of items of adaptive requests that need no more answers."""

    def next(self) -> list[Request]:
        """Return the adaptive requests that depend on the answers since the last call."""


class ModelRunner(Protocol):
    """Protocol of runners of a :class:`robust_eval.model.base.LanguageModel`, in this process or in others."""

    def check(self, requests: Sequence[Request]) -> None:
        """Check requests to the model; one in other processes may raise UserError only with its first answers."""

    def temperatures(self, highest: float) -> Temperatures:
        """Return the temperatures of the engine's model; see LanguageModel."""

    def answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[ReplyTables]]:
        """Yield the model's answers to the missing items as they arrive; the progress bar is named ``stage``."""

    def complete_adaptively(
        self, requests: Sequence[Request], adaptive: AdaptiveRequests, stage: str, items: int
    ) -> Iterator[list[ReplyTables]]:
        """Yield the model's answers to requests, and to all that depend on them, until all ``items`` are finished."""

    def attach_store(self, store: KeyValueStore) -> None:
        """Let the engine's model use this store; see LanguageModel."""

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """Cancel batches of the engine's model; see LanguageModel."""

    def description(self) -> dict[str, Any]:
        """Return the metadata of the engine's model; see LanguageModel."""


class Engine(Protocol):
    """Protocol of engines that run models; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager[None]:
        """Return a context in which the engine can load models."""

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the settings of a model, completed with those that the engine decides."""

    def load(self, config: ModelConfig) -> ModelRunner:
        """Return the runner of a model, loaded now or before its first answers; UserError if that is not possible."""


@contextmanager
def adaptive_progress(stage: str, adaptive: AdaptiveRequests, items: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of the finished items of adaptive requests; yield a function that updates it with a status text."""
    shown = adaptive.finished
    with progress(stage, total=items - shown, unit="prompts") as advance:

        def show(status: str) -> None:
            nonlocal shown
            advance(adaptive.finished - shown, status)
            shown = adaptive.finished

        yield show
