"""What every data set brings."""

from pathlib import Path
from typing import Protocol

from robust_eval.question import Question


class Dataset(Protocol):
    """A set of questions; a dataclass whose fields are its configuration."""

    name: str

    @property
    def file(self) -> Path:
        """Where the questions are read from, for the record."""

    def load(self) -> list[Question]:
        """All questions asked for; UserError where the source is empty or broken."""
