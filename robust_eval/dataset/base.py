"""Protocol of data sets."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from robust_eval.question import Question


class Questions(list[Question]):
    """The questions of a data set, in the order in which they are asked, and what is to be known of them besides.

    ``edition`` says which of several editions of the same data they are (hub, subset, split, revision; empty for a
    file), ``unusable`` how many records were left out, by reason.
    """

    def __init__(self, questions: Iterable[Question], edition: str, unusable: Mapping[str, int]) -> None:
        super().__init__(questions)
        self.edition = edition
        self.unusable = unusable

    def description(self) -> dict[str, Any]:
        """Return what is put on record, under flat names."""
        counts = {f"unusable.{reason.replace(' ', '_')}": number for reason, number in self.unusable.items()}
        return counts | ({"edition": self.edition} if self.edition else {})


class Dataset(Protocol):
    """A set of questions; a dataclass whose fields are its configuration."""

    name: str

    @property
    def source(self) -> str:
        """The source of the questions, for the record: a file, a folder, or the address of a hub's data set."""

    def load(self) -> Questions:
        """Return all questions asked for; UserError where the source is empty or broken."""
