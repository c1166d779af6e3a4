"""Model of recorded answers: a name for the record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robust_eval.error import UserError
from robust_eval.model.base import LanguageModel
from robust_eval.model.config import PROMPT_STYLES, ModelConfig
from robust_eval.model.workload import Terms


@dataclass
class RecordedModel(ModelConfig):
    """Model whose answers are recorded (sampler=recorded)."""

    name: str
    """The name of the model in logs, tables and the tracker."""
    prompt_style: str = "plain"
    """plain | chat: how it was prompted, and so how its replies are read, unless a file that a run left says so."""

    remote = True
    recorded = True

    def identity(self) -> Mapping[str, Any]:
        """Return nothing: the model is unknown."""
        return {}

    def __post_init__(self) -> None:
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")

    def terms(self) -> Terms:
        """Return limits without prices; see ModelConfig."""
        return Terms(chat=self.prompt_style == "chat")

    def load(self) -> LanguageModel:
        """See ModelConfig."""
        raise UserError(f"the answers of model {self.name} are recorded: there is no model to ask")
