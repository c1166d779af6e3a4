"""Local engine: models, and clients of servers, run in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from robust_eval.error import UserError
from robust_eval.model.base import LanguageModel
from robust_eval.model.model_config import ModelConfig


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

    def load(self, config: ModelConfig) -> LanguageModel:
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
        return model
