"""How the records of a data set are arranged in its files, and what each of them asks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from robust_eval.dataset.record import Record
from robust_eval.question import Question


def as_they_are(records: Iterator[Record], file: Path | None) -> Iterator[Record]:
    """Return the records as they are: each is one record of the data set."""
    return records


@dataclass(frozen=True)
class Layout:
    """What a data set looks like, on the hub and as its authors published it."""

    question: Callable[[Record], Question]
    """The question that a record asks, its id empty where the source gives none; raises Unusable where it asks none."""
    arrange: Callable[[Iterator[Record], Path | None], Iterator[Record]] = as_they_are
    """The records of the data set from those of a source: nested ones unfolded, rows of one question joined. The file
    is None for the hub."""
    header: tuple[str, ...] = ()
    """Names of the columns of a CSV or TSV file that does not name them."""
    quoted: bool = True
    """Whether cells of a CSV or TSV file may stand in quotes."""
    encoding: str = "utf-8"
    """Of files of text."""
    subsets: tuple[str, ...] = ()
    """The subsets there are, where a question belongs to that of its category; any may be asked for in one run."""
