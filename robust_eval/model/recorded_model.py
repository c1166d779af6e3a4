"""The model that answered elsewhere: a name for the record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robust_eval.error import UserError
from robust_eval.model.base import LanguageModel


@dataclass
class RecordedModel:
    """A model whose answers are recorded (sampler=recorded)."""

    name: str
    """The name of the model in logs, tables and the tracker."""

    remote = True

    def identity(self) -> Mapping[str, Any]:
        """Nothing is known of it."""
        return {}

    def tokenizer_file(self) -> None:
        """Not known either."""

    def load(self) -> LanguageModel:
        """See ModelConfig."""
        raise UserError(f"the answers of model {self.name} are recorded: there is no model to ask")
