"""The protocols of engines and of the runners of a model."""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from robust_eval.model.base import Item, KeyValueStore, Request, Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.reply_tables import Arrived
from robust_eval.runtime.console import progress


class AdaptiveRequests(Protocol):
    """Requests that follow from the answers to others."""

    @property
    def settled(self) -> int:
        """Number of the items that need no more answers."""

    def next(self) -> list[Request]:
        """Return the requests that follow from the answers that were taken since the call before."""


class ModelRunner(Protocol):
    """Runner of a :class:`robust_eval.model.base.LanguageModel`, in this process or in several others."""

    def check(self, requests: Sequence[Request]) -> None:
        """See LanguageModel; of a model that is loaded elsewhere, UserError may come with its first answers instead."""

    def temperatures(self, wanted: float) -> Temperatures:
        """See LanguageModel."""

    def answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[Arrived]]:
        """Yield the answers to the missing items as they arrive; the progress bar is named ``stage``."""

    def complete_adaptively(
        self, requests: Sequence[Request], adaptive: AdaptiveRequests, stage: str, items: int
    ) -> Iterator[list[Arrived]]:
        """Yield the answers to the requests, and to all that follow from them; there are ``items`` to be settled."""

    def attach_store(self, store: KeyValueStore) -> None:
        """See LanguageModel."""

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """See LanguageModel."""

    def description(self) -> dict[str, Any]:
        """See LanguageModel."""


class Engine(Protocol):
    """A place where the work runs; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager[None]:
        """Return a context manager inside which models can be loaded."""

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the settings of a model, with those that the engine decides filled in."""

    def load(self, config: ModelConfig) -> ModelRunner:
        """Load the model, or have it loaded when the first answers are wanted; UserError if that is not possible."""


@contextmanager
def settling(stage: str, adaptive: AdaptiveRequests, items: int) -> Iterator[Callable[[str], None]]:
    """Show how many of the items are settled; what is yielded advances the bar, with the text behind it."""
    shown = adaptive.settled
    with progress(stage, total=items - shown, unit="prompts") as advance:

        def show(status: str) -> None:
            nonlocal shown
            advance(adaptive.settled - shown, status)
            shown = adaptive.settled

        yield show
