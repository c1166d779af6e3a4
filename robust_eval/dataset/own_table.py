"""A user's own questions: a table of any columns, and their meaning."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from rapidfuzz.distance import OSA

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
    listed,
    optional,
    position,
    printed_list,
    several,
    text,
)
from robust_eval.dataset.selection import Selection
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question

log = logging.getLogger(__name__)

UNREADABLE_LIST = "a list that cannot be read"
NO_VALUE = "a sign for no value"
_NO_VALUE = frozenset(
    {
        *("#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!", "#ERROR!", "#SPILL!", "#CALC!"),
        *("NA", "<NA>", "nan", "NaN", "NaT", "NULL", r"\N"),
    }
)
"""Errors of spreadsheets, and a missing value as R, pandas and SQL write it."""
_LINE_BREAK = "\n"
_SEPARATORS = {
    **{sign: re.compile(re.escape(sign)) for sign in (";", "|", "；", "｜", "／")},
    "/": re.compile(r"\s/\s|[^\W\d_]{2}/[^\W\d_]{2}"),  # neither m/s nor 1/2
    _LINE_BREAK: re.compile(r"[\r\n]"),
}
"""Signs between several texts in a cell that hardly stand in a single text."""


def cell_texts(cell: Any, separator: str | None) -> list[Any]:
    """Return the texts of a cell: the entries of a list, the parts between separators, or the cell itself.

    A blank cell has none. Raises Unusable for an unreadable list, and for a sign for no value (:data:`_NO_VALUE`).
    """
    if isinstance(cell, str) and cell.strip() in _NO_VALUE:
        raise Unusable(NO_VALUE, found=f'{as_found(cell)}; a text of these letters is written ["{cell.strip()}"]')
    texts = _texts(cell, separator)
    if not all(isinstance(text, str | int | float | None) for text in texts):
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


def _unreadable(cell: Any) -> Unusable:
    return Unusable(UNREADABLE_LIST, found=f'{as_found(cell)}; a list is written ["…", "…"]')


class Separators:
    """Counts of the cells in a column that are one text with a sign that may separate several texts."""

    def __init__(self) -> None:
        self._filled = 0
        self._holding: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, cell: Any, texts: list[Any]) -> None:
        """Count a cell with its texts."""
        self._filled += bool(texts)
        if isinstance(cell, str) and texts == [cell]:
            text = cell.strip()
            for separator, pattern in _SEPARATORS.items():
                if pattern.search(text):
                    self._holding[separator] += 1
                    self._examples.setdefault(separator, text[:40])

    def check(self, name: str, path: str) -> None:
        """Raise UserError where half of the cells look like several texts, or one holds a line break; warn of fewer."""
        for separator, cells in sorted(self._holding.items(), key=lambda item: (item[0] != _LINE_BREAK, -item[1])):
            sign = "line break" if separator == _LINE_BREAK else repr(separator)
            setting = r'"\n"' if separator == _LINE_BREAK else separator
            hold = (
                f"{cells:,} of the {self._filled:,} cells of {path} with {name} hold a {sign}, for example "
                f"{self._examples[separator]!r}"
            )
            if 2 * cells >= self._filled or separator == _LINE_BREAK:
                raise UserError(
                    f"{hold}: add 'dataset.separator={setting}' where it parts several {name}, or "
                    'write a cell that holds only one as a list, ["…"]'
                )
            log.warning("%s: each is one of the %s; 'dataset.separator=%s' would part it", hold, name, setting)


COLUMNS = ("question", "answers", "choices", "correct", "context", "category", "group", "id")
"""Columns of a table of questions."""
CORRECT = ("letter", "from_0", "from_1", "text")
"""Ways to name the right choice: by its letter, by its number from 0 or from 1, or by its text."""
_FIRST = 100
"""Records that are looked at to know which columns there are: one of JSON need not have all."""


@dataclass
class OwnTable(Selection):
    """Questions in a CSV, TSV, JSON, JSON Lines or Parquet file whose columns have any names."""

    path: str
    """The file, or a folder of files."""
    columns: Any = None
    """The file's names of our columns where they differ, for example {question: prompt, choices: [a, b]};
    null: nowhere. A column that is null, {context: null}, is not read."""
    correct: str = "letter"
    """Content of the column correct: letter, from_0, from_1 (the number of the choice), or text."""
    separator: str | None = None
    """Separator of the answers or choices in one cell, ";" for example; null: a cell is one answer, or a list of JSON,
    Python or numpy. It must be given where half of the cells hold a ; or a | or a /, or one a line break ("\\n")."""
    encoding: str = "utf-8"
    """Of a file of text: latin-1, cp1252 and so on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns = {} if self.columns is None else self.columns
        self.separator = None if self.separator is None else self.separator.replace("\\n", "\n")
        if not isinstance(self.columns, dict):
            raise ValueError(f"columns must be a mapping such as {{question: prompt}}, not {self.columns!r}")
        for name, theirs in self.columns.items():
            if name not in COLUMNS:
                raise ValueError(f"columns: {name} is none of {', '.join(COLUMNS)}")
            if theirs is None and name != "question":
                continue
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
                raise UserError(f"{problem}, or set dataset.encoding, as in dataset.encoding=cp1252") from problem
            raise

    def _names(self, file: Path, columns_of_file: Sequence[str]) -> dict[str, Any]:
        """Return the file's name of each of our columns that it has; UserError if one is missing."""
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
                    raise UserError(
                        f"{file} has no column {theirs!r} for {name}, but {listed(columns_of_file)}: name the right "
                        f"one, dataset.columns={{{name}: …}}"
                    )
        self._refuse_misspelt(file, columns_of_file, names)
        return names

    def _refuse_misspelt(self, file: Path, columns_of_file: Sequence[str], names: Mapping[str, Any]) -> None:
        """Raise UserError for a column that has nearly the name of one of ours that the file does not have."""
        missing = [name for name in COLUMNS[2:] if name not in names and name not in self.columns]
        unknown = [theirs for theirs in columns_of_file if theirs not in COLUMNS and theirs not in _columns(names)]
        for theirs in unknown:
            name = theirs.rpartition(".")[0]  # pandas numbers a second column of the same name
            if name in ("answers", "choices") and names.get(name) == name:
                raise UserError(
                    f"{file} has the columns {name!r} and {theirs!r}: set "
                    f"dataset.columns={{{name}: [{name}, {theirs}]}} to read both, or rename the second"
                )
        for theirs, name in product(unknown, missing):
            if OSA.distance(theirs.strip().casefold(), name) <= len(name) // 4:
                raise UserError(
                    f"{file} has a column {theirs!r} and none of the name {name!r}: rename it, or set "
                    f"dataset.columns={{{name}: {theirs}}}, or {{{name}: null}} where it is something else"
                )

    def _question(self, record: Record, names: Mapping[str, Any], separators: Mapping[str, Separators]) -> Question:
        def value(name: str) -> Any:
            return record.get(names[name]) if name in names else None

        choice_texts = self._several(record, names.get("choices"), separators["choices"])
        options = choices(choice_texts) if choice_texts else ()
        accepted = self._several(record, names.get("answers"), separators["answers"])
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

    def _several(self, record: Record, columns: Any, separators: Separators) -> list[Any]:
        """Return the texts of a column that may hold several, or of several columns, the last of them empty."""
        if isinstance(columns, list):
            texts = [text for name in columns for text in cell_texts([record.get(name)], None)]
            while texts and not optional(texts[-1]):
                texts.pop()
            return texts
        cell = record.get(columns) if columns else None
        texts = cell_texts(cell, self.separator)
        separators.add(cell, texts)
        return texts

    def _position(self, right: Any, options: Sequence[str]) -> int:
        try:
            return _position(right, options, self.correct)
        except Unusable as problem:
            settings = " or ".join(f"dataset.correct={other}" for other in CORRECT if _reads(other, right, options))
            reads = f"which {settings} reads" if settings else f"and dataset.correct={self.correct}"
            raise Unusable(problem.reason, found=f"{problem.found}, {reads}") from problem


def _columns(names: Mapping[str, Any]) -> set[str]:
    """Return all columns of the file that a mapping names."""
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
