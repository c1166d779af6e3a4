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
    """Requests that depend on the answers to others."""

    @property
    def finished(self) -> int:
        """Number of items that need no more answers."""

    def next(self) -> list[Request]:
        """Return the requests that depend on the answers since the last call."""


class ModelRunner(Protocol):
    """Runner of a :class:`robust_eval.model.base.LanguageModel`, in this process or in others."""

    def check(self, requests: Sequence[Request]) -> None:
        """See LanguageModel; a model in other processes may raise UserError with its first answers instead."""

    def temperatures(self, highest: float) -> Temperatures:
        """See LanguageModel."""

    def answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[ReplyTables]]:
        """Yield the answers to the missing items as they arrive; the progress bar is named ``stage``."""

    def complete_adaptively(
        self, requests: Sequence[Request], adaptive: AdaptiveRequests, stage: str, items: int
    ) -> Iterator[list[ReplyTables]]:
        """Yield the answers to the requests, and to all that depend on them, until all ``items`` are finished."""

    def attach_store(self, store: KeyValueStore) -> None:
        """See LanguageModel."""

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """See LanguageModel."""

    def description(self) -> dict[str, Any]:
        """See LanguageModel."""


class Engine(Protocol):
    """Engine that runs models; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager[None]:
        """Return a context in which models can be loaded."""

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the settings of a model, completed with those that the engine decides."""

    def load(self, config: ModelConfig) -> ModelRunner:
        """Load the model, now or before its first answers; UserError if that is not possible."""


@contextmanager
def adaptive_progress(stage: str, adaptive: AdaptiveRequests, items: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of the finished items; yield a function that updates it with a status text."""
    shown = adaptive.finished
    with progress(stage, total=items - shown, unit="prompts") as advance:

        def show(status: str) -> None:
            nonlocal shown
            advance(adaptive.finished - shown, status)
            shown = adaptive.finished

        yield show
