"""Models on record that cannot be asked: one that answered elsewhere, and an object of a Python program."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from omegaconf import MISSING

from robust_eval.error import UserError
from robust_eval.model.base import LanguageModel
from robust_eval.model.config import PROMPT_STYLES, ModelConfig
from robust_eval.model.workload import ServiceLimits


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

    def service_limits(self) -> ServiceLimits:
        """Return limits without prices; see ModelConfig."""
        return ServiceLimits(chat=self.prompt_style == "chat")

    def load(self) -> LanguageModel:
        """See ModelConfig."""
        raise UserError(f"the answers of model {self.name} are recorded: there is no model to ask")


@dataclass
class InMemoryModel(ModelConfig):
    """An object of a Python program, by its name, its class and those of its settings that are plain values.

    It stands in the configuration of a run in place of the object, and cannot be asked.
    """

    name: str = MISSING
    kind: str = MISSING
    settings: Any = None
    prompt_style: str = "plain"
    """plain | chat: how the object is asked."""

    def service_limits(self) -> ServiceLimits:
        """See ModelConfig; only the prompt style of the object is on record."""
        return ServiceLimits(chat=self.prompt_style == "chat")

    def identity(self) -> Mapping[str, Any]:
        """Raise UserError: the object is gone with its program."""
        self._refuse()

    def load(self) -> NoReturn:
        """Raise UserError: the object is gone with its program."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError(
            f"model {self.name} was an object of a Python program ({self.kind}), and cannot be loaded from a "
            "configuration: give it to robust_eval.run(model=…) again"
        )
