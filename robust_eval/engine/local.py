"""Local engine: models, and clients of servers, run in this process."""

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from robust_eval.engine.base import AdaptiveRequests, ModelRunner, adaptive_progress
from robust_eval.error import UserError
from robust_eval.model.base import Item, KeyValueStore, LanguageModel, Request, Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.reply_tables import ReplyTables, tables_of
from robust_eval.runtime.console import progress


@dataclass
class Local:
    """Local engine (engine=local): requests go to the model in this process, block by block."""

    threads: int | None = None
    """Number of torch's CPU threads; null: the fastest number on this machine, measured once. Set it if several runs
    share a machine."""

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Restore torch's number of threads when the local engine closes, if it loaded a model."""
        self._threads_before: int | None = None
        try:
            yield
        finally:
            if self._threads_before is not None:
                import torch

                torch.set_num_threads(self._threads_before)

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the settings of a model as they are: the local engine decides none."""
        return config

    def load(self, config: ModelConfig) -> "LocalRunner":
        """Load the model in this process, after setting torch's number of threads for one that uses torch."""
        if config.uses_torch:
            import torch

            from robust_eval.engine.thread_count import fastest_threads

            if getattr(self, "_threads_before", None) is None:  # before the first model of the run
                self._threads_before = torch.get_num_threads()
            torch.set_num_threads(self.threads or fastest_threads())
        model = config.load()
        if not callable(getattr(model, "complete", None)):
            raise UserError(f"{type(config).__qualname__}.load() must return a LanguageModel, not {model!r:.60}")
        return LocalRunner(model)


class LocalRunner(ModelRunner):
    """Runner of the local engine: the model is in this process."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def check(self, requests: Sequence[Request]) -> None:
        self._model.check(requests)

    def temperatures(self, highest: float) -> Temperatures:
        return self._model.temperatures(highest)

    def answers(self, requests: Sequence[Request], missing: Set[Item], stage: str) -> Iterator[list[ReplyTables]]:
        with progress(stage, total=len(missing), unit="prompts") as advance:
            for replies in self._model.complete(requests, missing):
                yield tables_of(replies)
                advance(sum(reply.share for reply in replies), self._model.status())

    def complete_adaptively(
        self, requests: Sequence[Request], adaptive: AdaptiveRequests, stage: str, items: int
    ) -> Iterator[list[ReplyTables]]:
        with adaptive_progress(stage, adaptive, items) as advance:
            for replies in self._model.complete_adaptively(requests, adaptive.next):
                yield tables_of(replies)
                advance(self._model.status())

    def attach_store(self, store: KeyValueStore) -> None:
        self._model.attach_store(store)

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        return self._model.cancel(requests)

    def description(self) -> dict[str, Any]:
        return self._model.description()
