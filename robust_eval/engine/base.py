"""What every engine can be asked."""

from collections.abc import Sequence
from typing import Protocol

from robust_eval.answer import AnswerLog, Answers
from robust_eval.model.base import LanguageModel, Request


class Engine(Protocol):
    """A place where the work runs; a dataclass whose fields are its configuration."""

    def prepare(self) -> None:
        """Set what must be set before a model is loaded."""

    def run(self, model: LanguageModel, requests: Sequence[Request], log: AnswerLog, stage: str) -> Answers:
        """The answers to all requests, in their order; each is in the log as soon as it is there."""
