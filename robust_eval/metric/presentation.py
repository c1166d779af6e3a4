"""Presentation of a score to people, and Markdown of its tables, with untrusted text escaped."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from robust_eval.runtime.text import escaped
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats


@dataclass(frozen=True)
class Column:
    """Metric of each question: a column of the report's table of questions, and perhaps an axis of its scatter plot.

    ``numbers`` (n,) are NaN where undefined, and inf for a breaking temperature that was not found; ``levels`` are the
    values that they may have, if these are few. ``of_known`` says that facts alone have one that the model knows.
    """

    name: str
    label: str
    description: str
    numbers: Floats
    digits: int = 3
    levels: Sequence[float] = ()
    of_known: bool = False


class Cell(NamedTuple):
    """Table cell: a value with its optional interval, answer and verdict."""

    value: str
    interval: str = ""
    answer: str = ""
    verdict: str = ""
    page: Path | None = None
    """Report of the value, if available."""
    question: str = ""
    """Id of the value's question, if it has one."""


class Table(NamedTuple):
    """Table for people; the first ``names`` columns hold words, the others numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    names: int = 1
    note: str = ""
    folded: bool = False
    """True if the page shows it collapsed."""


@dataclass(frozen=True)
class Scale:
    """Scale to present a value between ``low`` and ``high``, with the values of easily imagined models as labelled
    ``anchors``.
    """

    label: str
    value: Estimate
    low: float
    high: float
    anchors: Sequence[tuple[float, str]]

    def at(self, value: float) -> str:
        """Return the place of a value along the scale, in percent."""
        return f"{100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low))):.2f}"

    @property
    def width(self) -> str:
        """Share of the scale inside the interval, in percent."""
        return f"{float(self.at(self.value.high)) - float(self.at(self.value.low)):.2f}"


@dataclass
class Presentation:
    """Text, columns and tables of a score for people.

    ``title`` is the heading of its table; ``sentence`` continues "12 of 20 questions were kept and asked
    again"; of one that begins with "repeatedly", "again" is left out.
    ``claims`` are its findings in a few words each, for readers who do not know the metric: they follow "It" unless
    they begin with a capital. ``scale`` places its main metric. ``columns`` are by default the headline metrics that
    are means over questions. With ``tables_alone`` people are shown its ``tables`` and no other metrics; ``notes``
    follow them; ``left_out`` are sentences on results that the answers did not allow. ``axes`` are the columns of the
    scatter plot: horizontal, vertical, and colour. The first score of a run with a sentence, a scale or axes provides
    them.
    """

    title: str = ""
    sentence: str = ""
    columns: Sequence[Column] | None = None
    axes: Sequence[str] = ()
    claims: Sequence[str] = ()
    scale: Scale | None = None
    tables: Sequence[Table] = field(default_factory=list)
    tables_alone: bool = False
    notes: Sequence[str] = ()
    left_out: Sequence[str] = ()


def markdown_lines(table: Table) -> list[str]:
    """Return the lines of a table in Markdown: header, rule, and rows."""
    rule = ["---"] * table.names + ["---:"] * (len(table.header) - table.names)
    return [_line(table.header), "| " + " | ".join(rule) + " |", *(_line(map(_words, row)) for row in table.rows)]


def markdown_section(table: Table) -> list[str]:
    """Return the paragraphs of a table in Markdown under its title: the lines and, if any, the note."""
    text = "\n".join([f"## {escaped(table.title)}", "", *markdown_lines(table)])
    return [text, escaped(table.note)] if table.note else [text]


def _words(cell: Cell) -> str:
    value = f"{cell.value} ({cell.interval})" if cell.interval else cell.value
    return " ".join(filter(None, [value, cell.answer, cell.verdict]))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"
