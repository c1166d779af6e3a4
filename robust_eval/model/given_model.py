"""Record of a model object from a Python program: ``robust_eval.run(model=…)``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from omegaconf import MISSING

from robust_eval.error import UserError
from robust_eval.model.config import ModelConfig
from robust_eval.model.workload import Terms


@dataclass
class GivenModel(ModelConfig):
    """Object of a Python program, by its name, its class and those of its settings that are plain values.

    It replaces the object in the configuration of a run, and cannot be queried.
    """

    name: str = MISSING
    kind: str = MISSING
    settings: Any = None
    prompt_style: str = "plain"
    """plain | chat: how the object is asked."""

    def terms(self) -> Terms:
        """See ModelConfig; only the prompt style of the object is on record."""
        return Terms(chat=self.prompt_style == "chat")

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
