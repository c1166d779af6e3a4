"""Anyone's own questions: a table of any columns, and what they mean."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from robust_eval.dataset.file_formats import data_files, read_records
from robust_eval.dataset.record import (
    MALFORMED,
    NO_QUESTION,
    NO_RIGHT_CHOICE,
    Record,
    Unusable,
    answers,
    as_found,
    choices,
    items,
    letter_position,
    listed,
    optional,
    position,
    several,
    text,
)
from robust_eval.dataset.selection import Selection
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question

COLUMNS = ("question", "answers", "choices", "correct", "context", "category", "group", "id")
"""What a column can be."""
CORRECT = ("letter", "from_0", "from_1", "text")
"""How the right choice can be named: by its letter, by its number from 0 or from 1, or by its text."""
_SEPARATORS = ";|"
"""What parts several texts in one cell most often, and hardly stands in a single one."""
_FIRST = 100
"""Records that are looked at to know which columns there are: one of JSON need not have all."""


@dataclass
class Table(Selection):
    """Questions in a CSV, TSV, JSON, JSON Lines or Parquet file whose columns have any names."""

    path: str
    """The file, or a folder of files."""
    columns: Any = None
    """What the file calls our columns where it calls them otherwise, for example {question: prompt, choices: [a, b]};
    null: nowhere."""
    correct: str = "letter"
    """How the column correct names the right choice: letter, from_0, from_1 (its number), or text."""
    separator: str | None = None
    """What parts the answers or choices in one cell, ";" for example; null: a cell is one answer, or a list of JSON or
    Python. It must be given where half of the cells hold a ; or a |."""
    encoding: str = "utf-8"
    """Of a file of text: latin-1, cp1252 and so on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns = {} if self.columns is None else self.columns
        if not isinstance(self.columns, dict):
            raise ValueError(f"columns must be a mapping such as {{question: prompt}}, not {self.columns!r}")
        for name, theirs in self.columns.items():
            if name not in COLUMNS:
                raise ValueError(f"columns: {name} is none of {', '.join(COLUMNS)}")
            several = isinstance(theirs, list) and name in ("answers", "choices") and theirs
            if not all(isinstance(entry, str) and entry for entry in (theirs if several else [theirs])):
                lists = ", or a list of such names" if name in ("answers", "choices") else ""
                raise ValueError(f"columns: {name} must be the name of a column{lists}, not {theirs!r}")
        if self.correct not in CORRECT:
            raise ValueError(f"correct must be one of {', '.join(CORRECT)}, not {self.correct}")
        if self.separator == "":
            raise ValueError("separator must not be empty; null is none")
        try:
            "".encode(self.encoding)
        except LookupError as problem:
            raise ValueError(f"encoding {self.encoding} is not known; utf-8, latin-1, cp1252 are") from problem

    @property
    def source(self) -> str:
        """The file or folder."""
        return self.path

    def read(self) -> Iterator[Question | Unusable]:
        """Yield a question, or why there is none, for each record; UserError where the columns do not fit, and at the
        end where cells have been taken for one text each that look like several.
        """
        cells = {name: _Cells() for name in ("answers", "choices")}
        for file in data_files(Path(self.path)):
            records = read_records(file, self.encoding)
            first = list(islice(records, _FIRST))
            names = self._names(file, list(dict.fromkeys(chain.from_iterable(first)))) if first else {}
            for record in chain(first, records):
                for name, seen in cells.items():
                    seen.add(record.get(names[name]) if isinstance(names.get(name), str) else None)
                try:
                    if not record:
                        raise Unusable(MALFORMED)
                    yield self._question(record, names)
                except Unusable as problem:
                    yield Unusable(problem.reason, record, problem.found)
        if self.separator is None:
            for name, seen in cells.items():
                seen.check(name, self.path)

    def _names(self, file: Path, there: Sequence[str]) -> dict[str, Any]:
        """Return what the file calls each of our columns that it has; UserError where one is missing."""
        taken = {
            theirs for named in self.columns.values() for theirs in (named if isinstance(named, list) else [named])
        }
        names: dict[str, Any] = {name: name for name in COLUMNS if name in there and name not in taken}
        names |= self.columns
        wanted = ["question", *self.columns] + ([] if "choices" in names or "answers" in names else ["answers"])
        if "choices" in names and "answers" not in names:
            wanted.append("correct")
        for name in wanted:
            named = names.get(name, name)
            for theirs in named if isinstance(named, list) else [named]:
                if theirs not in there:
                    raise UserError(
                        f"{file} has no column {theirs!r} for {name}, but {listed(there)}: name the right "
                        f"one, dataset.columns={{{name}: …}}"
                    )
        return names

    def _question(self, record: Record, names: Mapping[str, Any]) -> Question:
        def value(name: str) -> Any:
            return record.get(names[name]) if name in names else None

        given = self._several(record, names.get("choices"))
        shown = choices(given) if given else ()
        accepted = self._several(record, names.get("answers"))
        return Question(
            id=optional(value("id")),
            text=text(value("question"), NO_QUESTION),
            answers=several(accepted) if shown else answers(accepted),
            choices=shown,
            correct=self._position(value("correct"), shown) if shown else None,
            context=optional(value("context")),
            category=optional(value("category")),
            group=optional(value("group")),
        )

    def _several(self, record: Record, named: Any) -> list[Any]:
        """Return what stands in a column that may hold several texts, or in several columns, the last of them empty."""
        if isinstance(named, list):
            found = [record.get(name) for name in named]
            while found and not optional(found[-1]):
                found.pop()
            return found
        cell = record.get(named) if named else None
        if isinstance(cell, str) and self.separator is not None:
            return cell.removesuffix(self.separator.rstrip()).split(self.separator)
        return items(cell) or ([cell] if optional(cell) else [])

    def _position(self, right: Any, shown: Sequence[str]) -> int:
        try:
            return _position(right, shown, self.correct)
        except Unusable as problem:
            others = " or ".join(f"dataset.correct={other}" for other in CORRECT if _reads(other, right, shown))
            reads = f"which {others} reads" if others else f"and dataset.correct={self.correct}"
            raise Unusable(problem.reason, found=f"{problem.found}, {reads}") from problem


def _position(right: Any, shown: Sequence[str], correct: str) -> int:
    if correct == "letter":
        return letter_position(right, LETTERS[: len(shown)])
    if correct != "text":
        return position(right, len(shown), first=int(correct == "from_1"))
    if shown.count(optional(right)) != 1:
        raise Unusable(NO_RIGHT_CHOICE, found=as_found(right))
    return shown.index(optional(right))


def _reads(correct: str, right: Any, shown: Sequence[str]) -> bool:
    try:
        _position(right, shown, correct)
    except Unusable:
        return False
    return True


class _Cells:
    """How many cells of a column hold something, and how many of them one text with what may part several."""

    def __init__(self) -> None:
        self.number = 0
        self.holding: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, cell: Any) -> None:
        shown = cell.strip() if isinstance(cell, str) else cell
        self.number += shown not in (None, "")
        if isinstance(shown, str) and not shown.startswith("["):
            for separator in _SEPARATORS:
                if separator in shown:
                    self.holding[separator] += 1
                    self.examples.setdefault(separator, listed([shown]))

    def check(self, name: str, path: str) -> None:
        """UserError where half of the cells or more look like several texts."""
        (separator, times), *_ = self.holding.most_common(1) or [("", 0)]
        if times and 2 * times >= self.number:
            raise UserError(
                f"{times:,} of the {self.number:,} cells of {path} with {name} hold a {separator!r}, for example "
                f"{self.examples[separator]!r}: add 'dataset.separator={separator}' where it parts several {name}, or "
                'write a cell that holds only one as a list, ["…"]'
            )
