"""The model that answered elsewhere: a name for the record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robust_eval.error import UserError
from robust_eval.model.base import LanguageModel
from robust_eval.model.config import ModelConfig
from robust_eval.model.workload import Terms


@dataclass
class RecordedModel(ModelConfig):
    """A model whose answers are recorded (sampler=recorded)."""

    name: str
    """The name of the model in logs, tables and the tracker."""

    remote = True
    recorded = True

    def identity(self) -> Mapping[str, Any]:
        """Return nothing: the model is not known."""
        return {}

    def terms(self) -> Terms:
        """Nothing is asked; what was recorded is read as replies of a conversation, which most are."""
        return Terms(chat=True)

    def load(self) -> LanguageModel:
        """See ModelConfig."""
        raise UserError(f"the answers of model {self.name} are recorded: there is no model to ask")
