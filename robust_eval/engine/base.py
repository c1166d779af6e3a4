"""Protocol of engines."""

from contextlib import AbstractContextManager
from typing import Protocol

from robust_eval.model.base import LanguageModel
from robust_eval.model.model_config import ModelConfig

ATTEMPTS = 3
"""Maximum number of attempts at a block or a part in other processes; then the answers of a block are errors, which the
next run requests again."""


class Engine(Protocol):
    """Protocol of engines that run models; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager[None]:
        """Return a context in which the engine can load models."""

    def place(self, config: ModelConfig) -> ModelConfig:
        """Return the settings of a model, completed with those that the engine decides."""

    def load(self, config: ModelConfig) -> LanguageModel:
        """Return a model, loaded now or before its first answers; UserError if that is not possible."""
