"""Questions in a user's table, whose columns have any names."""

import logging
import re
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
    UnreadableListError,
    Unusable,
    answers,
    as_found,
    choices,
    letter_position,
    missing_column,
    optional,
    position,
    printed_list,
    refuse_misspelt,
    several,
    text,
)
from robust_eval.dataset.selection import Selection
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.text import enumerated

log = logging.getLogger(__name__)

UNREADABLE_LIST = "unreadable list"
NO_VALUE = "placeholder for a missing value"
NO_TEXT = "neither text, number nor list"
_NO_VALUE = frozenset(
    {
        *("#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!", "#ERROR!", "#SPILL!", "#CALC!"),
        *("NA", "<NA>", "nan", "NaN", "NaT", "NULL", r"\N"),
    }
)
"""Errors of spreadsheets, and missing values of R, pandas and SQL."""
_PLACEHOLDER = re.compile(rf"""\s*(\["\s*)?({"|".join(map(re.escape, _NO_VALUE))})(\s*"\])?\s*""")
"""Placeholder, or the list that marks it as text."""
_LINE_BREAK = "\n"
_SEPARATORS = {
    **{sign: re.compile(re.escape(sign)) for sign in (";", "|", "；", "｜", "／")},
    "/": re.compile(r"\s/\s|[^\W\d_]{2}/[^\W\d_]{2}"),  # neither m/s nor 1/2
    _LINE_BREAK: re.compile(r"[\r\n]"),
}
"""Separators of several texts in a cell, which hardly occur in a single text."""


def cell_texts(cell: Any, separator: str | None) -> list[Any]:
    """Return the texts of a cell: the entries of a list, the parts between separators, or the cell itself.

    A blank cell has none. Raises Unusable for an unreadable list, for a placeholder (:data:`_NO_VALUE`), and for a
    value that is neither text, number nor list.
    """
    if isinstance(cell, str) and cell.strip() in _NO_VALUE:
        raise Unusable(NO_VALUE, found=f'{as_found(cell)}; if it is meant as text, write ["{cell.strip()}"]')
    if isinstance(cell, bool) or not isinstance(cell, str | int | float | list | tuple | None):
        raise Unusable(NO_TEXT, found=f"{as_found(cell)}; write a string, or a list of strings")
    texts = _texts(cell, separator)
    if any(isinstance(text, bool) or not isinstance(text, str | int | float | None) for text in texts):
        raise _unreadable(cell)
    return texts


def _texts(cell: Any, separator: str | None) -> list[Any]:
    if isinstance(cell, list | tuple):
        return list(cell)
    if not optional(cell):
        return []
    if not isinstance(cell, str):
        return [cell]
    is_divided = separator is not None and separator.strip(" ") in cell
    try:
        entries = printed_list(cell)
    except UnreadableListError as problem:
        if not is_divided:
            raise _unreadable(cell) from problem
        entries = None
    if entries is not None:
        return entries
    if separator is None:
        return [cell]
    return cell.splitlines() if separator == _LINE_BREAK else cell.removesuffix(separator.rstrip()).split(separator)


def _choice(cell: Any) -> Any:
    """Return the choice in a cell that holds one, even if its text looks like a list; Unusable as by
    :func:`cell_texts`.
    """
    if isinstance(cell, str) and not _PLACEHOLDER.fullmatch(cell):
        return cell
    (only,) = cell_texts(cell if isinstance(cell, str) else [cell], None)
    return only


def _unreadable(cell: Any) -> Unusable:
    return Unusable(UNREADABLE_LIST, found=f'{as_found(cell)}; write a list as ["…", "…"]')


class Separators:
    """Counts of the cells in a table's column that are one text with a possible separator."""

    def __init__(self) -> None:
        self._filled = 0
        self._holding: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, cell: Any, texts: list[Any]) -> None:
        """Count a cell of the column with its texts."""
        self._filled += bool(texts)
        if isinstance(cell, str) and texts == [cell]:
            text = cell.strip()
            for separator, pattern in _SEPARATORS.items():
                if pattern.search(text):
                    self._holding[separator] += 1
                    self._examples.setdefault(separator, text[:40])

    def check(self, name: str, path: str) -> None:
        """Raise UserError if half of the cells look like several texts, or one has a line break; warn of fewer."""
        for separator, cells in sorted(self._holding.items(), key=lambda item: (item[0] != _LINE_BREAK, -item[1])):
            sign = "line break" if separator == _LINE_BREAK else repr(separator)
            setting = r'"\n"' if separator == _LINE_BREAK else separator
            contain = (
                f"{cells:,} of the {self._filled:,} cells with {name} in {path} contain{'s' if cells == 1 else ''} "
                f"a {sign}, for example {self._examples[separator]!r}"
            )
            if 2 * cells >= self._filled or separator == _LINE_BREAK:
                raise UserError(
                    f"{contain}: add 'dataset.separator={setting}' if it separates {name}, or write each cell as a "
                    'list, ["…"]'
                )
            log.warning("%s: each cell is read as one value; set 'dataset.separator=%s' to split it", contain, setting)


COLUMNS = ("question", "answers", "choices", "correct", "context", "category", "group", "id")
"""Columns of a table of questions."""
CORRECT = ("letter", "from_0", "from_1", "text")
"""Notations of the right choice: its letter, its number from 0 or from 1, or its text."""
_FIRST = 100
"""Number of records that show the columns: a JSON record need not have all."""


@dataclass
class OwnTable(Selection):
    """Questions in a user's table: a CSV, TSV, JSON, JSON Lines or Parquet file with columns of any names."""

    path: str
    """The file, or a folder of files."""
    columns: Any = None
    """Map from question, answers, … to the columns of the file, for example {question: prompt, choices: [a, b]}; null:
    the columns have these names. A column that is null, {context: null}, is not read."""
    correct: str = "letter"
    """Content of the column correct: letter, from_0 or from_1 (the number of the choice), or text."""
    separator: str | None = None
    """Separator of the answers or choices in one cell, for example ";"; null: a cell is one answer, or a list in JSON,
    Python or numpy notation. Required if half of the cells contain a ; or | or /, or if one contains a line break
    ("\\n")."""
    encoding: str = "utf-8"
    """Encoding of a text file: latin-1, cp1252, …"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns = {} if self.columns is None else self.columns
        self.separator = None if self.separator is None else self.separator.replace("\\n", "\n")
        if not isinstance(self.columns, dict):
            raise ValueError(f"columns must be a mapping such as {{question: prompt}}, not {self.columns!r}")
        for name, theirs in self.columns.items():
            if name not in COLUMNS:
                raise ValueError(f"columns: {name} is not one of {', '.join(COLUMNS)}")
            if theirs is None and name != "question":
                continue
            several = isinstance(theirs, list) and name in ("answers", "choices") and theirs
            if not all(isinstance(entry, str) and entry for entry in (theirs if several else [theirs])):
                lists = ", or a list of such names" if name in ("answers", "choices") else ""
                raise ValueError(f"columns: {name} must be the name of a column{lists}, not {theirs!r}")
        if self.correct not in CORRECT:
            raise ValueError(f"correct must be {enumerated(CORRECT)}, not {self.correct}")
        if self.separator == "":
            raise ValueError("separator must not be empty: set null for none")
        try:
            "".encode(self.encoding)
        except LookupError as problem:
            raise ValueError(f"encoding {self.encoding} is unknown: set utf-8, latin-1 or cp1252") from problem

    @property
    def source(self) -> str:
        """The file or folder of the user's table."""
        return self.path

    def read(self) -> Iterator[Question | Unusable]:
        """Yield a question, or the reason why it is unusable, for each record of the table; UserError for wrong
        columns, and at the end for cells that look like several texts.
        """
        separators = {name: Separators() for name in ("answers", "choices")}
        for file in data_files(Path(self.path)):
            records = self._records(file)
            first = list(islice(records, _FIRST))
            names = self._names(file, list(dict.fromkeys(chain.from_iterable(first)))) if first else {}
            for record in chain(first, records):
                try:
                    if not record:
                        raise Unusable(MALFORMED)
                    yield self._question(record, names, separators)
                except Unusable as problem:
                    yield Unusable(problem.reason, record, problem.found)
        if self.separator is None:
            for name, counts in separators.items():
                counts.check(name, self.path)

    def _records(self, file: Path) -> Iterator[Record]:
        try:
            yield from read_records(file, self.encoding)
        except UserError as problem:
            if isinstance(problem.__cause__, UnicodeDecodeError):
                raise UserError(f"{problem}, or set dataset.encoding, for example dataset.encoding=cp1252") from problem
            raise

    def _names(self, file: Path, columns_of_file: Sequence[str]) -> dict[str, Any]:
        """Return the file's columns by our names; UserError if one is missing."""
        taken = _columns(self.columns)
        names: dict[str, Any] = {name: name for name in COLUMNS if name in columns_of_file and name not in taken}
        names = {name: theirs for name, theirs in (names | self.columns).items() if theirs is not None}
        required = ["question", *names, *([] if "choices" in names or "answers" in names else ["answers"])]
        if "choices" in names and "answers" not in names:
            required.append("correct")
        for name in required:
            columns = names.get(name, name)
            for theirs in columns if isinstance(columns, list) else [columns]:
                if theirs not in columns_of_file:
                    raise missing_column(file, theirs, name, columns_of_file, "dataset.columns")
        missing = [name for name in COLUMNS[2:] if name not in names and name not in self.columns]
        unknown = [theirs for theirs in columns_of_file if theirs not in COLUMNS and theirs not in _columns(names)]
        for theirs in unknown:
            name = theirs.rpartition(".")[0]  # pandas numbers a second column of the same name
            if name in ("answers", "choices") and names.get(name) == name:
                raise UserError(
                    f"{file} has the columns {name!r} and {theirs!r}: set "
                    f"dataset.columns={{{name}: [{name}, {theirs}]}} to read both, or rename the second"
                )
        refuse_misspelt(
            file, unknown, missing, "dataset.columns", otherwise=", or {{{}: null}} if it has another meaning"
        )
        return names

    def _question(self, record: Record, names: Mapping[str, Any], separators: Mapping[str, Separators]) -> Question:
        def value(name: str) -> Any:
            return record.get(names[name]) if name in names else None

        choice_texts = self._several(record, names, "choices", separators)
        options = choices(choice_texts) if choice_texts else ()
        accepted = self._several(record, names, "answers", separators)
        if options and "correct" not in names:
            raise Unusable(NO_RIGHT_CHOICE, found="a column must contain it: set 'dataset.columns={correct: …}'")
        return Question(
            id=optional(value("id")),
            text=text(value("question"), NO_QUESTION),
            answers=several(accepted) if options else answers(accepted),
            choices=options,
            correct=self._position(value("correct"), options) if options else None,
            context=optional(value("context")),
            category=optional(value("category")),
            group=optional(value("group")),
        )

    def _several(
        self, record: Record, names: Mapping[str, Any], name: str, separators: Mapping[str, Separators]
    ) -> list[Any]:
        """Return the answers or choices of a record in one column, or in several columns without the blank choices at
        the end. If there are several columns, each holds one choice, or any number of answers.
        """
        columns = names.get(name)
        if isinstance(columns, list):
            if name == "answers":
                return [text for column in columns for text in cell_texts(record.get(column), self.separator)]
            texts = [_choice(record.get(column)) for column in columns]
            while texts and not optional(texts[-1]):
                texts.pop()
            return texts
        cell = record.get(columns) if columns else None
        texts = cell_texts(cell, self.separator)
        separators[name].add(cell, texts)
        return texts

    def _position(self, right: Any, options: Sequence[str]) -> int:
        try:
            return _position(right, options, self.correct)
        except Unusable as problem:
            settings = " or ".join(f"dataset.correct={other}" for other in CORRECT if _reads(other, right, options))
            remedy = f"set {settings}" if settings else f"matches no choice under dataset.correct={self.correct}"
            raise Unusable(problem.reason, found=f"{problem.found}; {remedy}") from problem


def _columns(names: Mapping[str, Any]) -> set[str]:
    """Return all columns of a user's table that a mapping names."""
    return {theirs for columns in names.values() for theirs in (columns if isinstance(columns, list) else [columns])}


def _position(right: Any, options: Sequence[str], correct: str) -> int:
    if correct == "letter":
        return letter_position(right, LETTERS[: len(options)])
    if correct != "text":
        return position(right, len(options), first=int(correct == "from_1"))
    if options.count(optional(right)) != 1:
        raise Unusable(NO_RIGHT_CHOICE, found=as_found(right))
    return options.index(optional(right))


def _reads(correct: str, right: Any, options: Sequence[str]) -> bool:
    try:
        _position(right, options, correct)
    except Unusable:
        return False
    return True
