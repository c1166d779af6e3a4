"""Records of a file: JSON, JSON Lines, CSV and TSV in any dialect, Parquet, or plain lines."""

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from robust_eval.dataset.record import Record
from robust_eval.error import UserError, first_line
from robust_eval.runtime.files import regular, text_lines
from robust_eval.runtime.json_files import json_lines, parsed_json
from robust_eval.runtime.parquet_files import refuse_bomb

KINDS = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".label")
"""Suffixes of files that can be read."""
_ROWS = 1_000
"""Number of rows of a Parquet file that are converted together."""


def data_files(path: Path, split: str = "") -> list[Path]:
    """Return the data file, or those of a folder or of its subfolder for the split, by name; UserError if there are
    none.
    """
    if not path.is_dir():
        if path.suffix.lower() not in KINDS:
            raise UserError(f"dataset.path must end in {', '.join(KINDS)}; {path} does not")
        if not path.exists():
            raise UserError(f"dataset.path={path}: there is no such file")
        return [path]
    folder = path / split if split and (path / split).is_dir() else path
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in KINDS)
    if not files:
        raise UserError(f"the folder {folder} contains no data files ({', '.join(KINDS)})")
    return files


def read_records(
    file: Path, encoding: str = "utf-8", header: Sequence[str] = (), quoted: bool = True
) -> Iterator[Record]:
    """Yield the records of a file; UserError for an unreadable file, with the line.

    A JSON entry that is no object is an empty record. A JSON file of one object is one record, and JSON Lines may have
    the suffix .json.
    """
    kind = file.suffix.lower()
    if kind == ".parquet":
        yield from _parquet(file)
    elif kind in (".csv", ".tsv"):
        yield from DelimitedTable(file, encoding, tuple(header), quoted).records()
    elif kind == ".label":
        yield from ({"line": line} for _, line in text_lines(file, encoding) if line.strip())
    else:
        yield from _json(file, encoding)


def _json(file: Path, encoding: str) -> Iterator[Record]:
    _refuse_archive(file, "JSON")
    opening = next((line for _, line in text_lines(file, encoding) if line.strip()), "")
    if not opening:
        return
    try:
        of_lines = isinstance(parsed_json(opening), dict)
    except ValueError:
        of_lines = False
    if of_lines:
        yield from (_record(entry) for _, _, entry in json_lines(file, encoding=encoding))
        return
    whole = "".join(line for _, line in text_lines(file, encoding))
    try:
        document = parsed_json(whole)
    except ValueError as problem:
        raise UserError(f"{file}: broken JSON ({first_line(problem)})") from problem
    yield from (_record(entry) for entry in (document if isinstance(document, list) else [document]))


def _record(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _parquet(file: Path) -> Iterator[Record]:
    try:
        refuse_bomb(file)
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=_ROWS):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise UserError(f"{file} cannot be read: {reason or first_line(problem)}") from problem


Row = tuple[int, list[str]]
"""First line of a row, and its fields."""
_SEPARATORS = (",", ";", "\t", "|")
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""First line of a file with the separator, for Excel."""
_UNNAMED = re.compile(r"(?:Unnamed: \d.*)?")
"""Name of a column without one, empty or as pandas writes it."""
_WHOLE_FLOAT = re.compile(r"-?\d+\.0")
_SIGNATURES = {
    b"PK\x03\x04": "a workbook (.xlsx, .ods) or another ZIP archive",
    b"\xd0\xcf\x11\xe0": "a workbook (.xls)",
    b"\x1f\x8b": "a gzip archive",
    b"PAR1": "a Parquet file",
}


@dataclass(frozen=True)
class DelimitedTable:
    """Delimited text file: CSV or TSV in any dialect.

    The separator is that of the suffix unless the header and the first row show another one. Without ``header`` the
    first row that is not blank has the names of the columns.
    """

    file: Path
    encoding: str = "utf-8"
    header: Sequence[str] = ()
    quoted: bool = True
    """True if fields may be in double quotes."""

    def records(self) -> Iterator[dict[str, str]]:
        """Yield the rows of the table by the names of their columns, without blank rows and columns without a name.

        A column of whole numbers that are written as floats, as by pandas if one is missing, loses ".0". UserError
        names the line of the first incomplete row.
        """
        names, rows = self._table()
        whole = self._whole_floats()
        for _, row in rows:
            for place in whole:
                row[place] = row[place].strip().removesuffix(".0")
            record = dict(zip(names, row, strict=True))
            record.pop("", None)
            yield record

    def verified_header(self, max_characters: int) -> tuple[int, list[str]]:
        """Return the line of the header and a name for each field, empty for an ignored column; check all rows.

        The maximum length of a field is ``max_characters``. UserError as in :meth:`records`.
        """
        line, fields = next(self._rows(self.separator), (0, []))
        limit = csv.field_size_limit(max_characters)
        try:
            names, rows = self._table()
            deque(rows, maxlen=0)
        finally:
            csv.field_size_limit(limit)
        return line, names + [""] * (len(fields) - len(names))

    @cached_property
    def separator(self) -> str:
        """Separator of the columns in the file."""
        first = next(iter(text_lines(self.file, self.encoding)), (1, ""))[1]
        if naming_line := _NAMED_SEPARATOR.fullmatch(first):
            return naming_line.group(1)
        default = "\t" if self.file.suffix.lower() == ".tsv" else ","
        candidates = [default, *(separator for separator in _SEPARATORS if separator != default)]
        rows = {separator: self._first_rows(separator) for separator in candidates}
        if self.header:
            return next((separator for separator in candidates if len(rows[separator][0]) == len(self.header)), default)
        several = [separator for separator in candidates if len(rows[separator][0]) > 1]
        fitting = [separator for separator in several if len({*map(len, rows[separator])}) == 1]
        return next(iter(fitting + several), default)

    def _table(self) -> tuple[list[str], Iterator[Row]]:
        """Return the names of the file's columns, empty for an ignored one, and the rows with a field for each."""
        _refuse_archive(self.file, "CSV")
        rows = self._rows(self.separator)
        header = list(self.header) or next(rows, (0, []))[1]
        names = _cut([name.strip() for name in header], 0)
        first = next((place for place, name in enumerate(names) if not _UNNAMED.fullmatch(name)), len(names))
        unnamed = [place for place, name in enumerate(names) if place > first and _UNNAMED.fullmatch(name)]
        names = ["" if place in unnamed else name for place, name in enumerate(names)]
        for name, columns in Counter(filter(None, names)).items():
            if columns > 1:
                raise UserError(f"{self.file} has several columns named {name[:40]!r}")
        rows_below = (row for row in rows if row[1] != header)  # concatenated tables repeat the header
        return names, self._fitting(rows_below, names, unnamed)

    def _fitting(self, rows: Iterator[Row], names: Sequence[str], unnamed: Sequence[int]) -> Iterator[Row]:
        for line, fields in rows:
            row = fields if len(fields) == len(names) else _cut(fields, len(names))
            if len(row) != len(names):
                number = f"{len(row)} field{'' if len(row) == 1 else 's'}"
                raise UserError(
                    f"{self.file}, line {line}: {number}, but the header has {len(names)}; put double quotes around "
                    f"text that contains {self.separator!r}"
                )
            for place in unnamed:
                if row[place].strip():
                    raise UserError(
                        f"{self.file}, line {line}: column {place + 1} has no name and contains {row[place][:40]!r}; "
                        "name the column, or remove it"
                    )
            yield line, row

    def _whole_floats(self) -> set[int]:
        """Return the indices of the columns in which every field that is not blank is a whole number with ".0"."""
        names, rows = self._table()
        places, filled = list(range(len(names))), set()
        for _, row in rows:
            values = [place for place in places if row[place].strip()]
            filled.update(values)
            other = {place for place in values if not _WHOLE_FLOAT.fullmatch(row[place].strip())}
            if other and not (places := [place for place in places if place not in other]):
                break
        return filled.intersection(places)

    def _first_rows(self, separator: str) -> list[list[str]]:
        """Return the first two rows of the table without blank fields beyond the header; fewer if one is broken."""
        rows: list[list[str]] = []
        try:
            for _, row in islice(self._rows(separator), 2):
                rows.append(_cut(row, len(rows[0]) if rows else 0))
        except UserError:
            pass
        return rows or [[]]

    def _rows(self, separator: str) -> Iterator[Row]:
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        reader = csv.reader(
            self._lines(), delimiter=separator, quoting=quoting, skipinitialspace=self.quoted, strict=True
        )
        line = 1
        try:
            for row in reader:
                if any(map(str.strip, row)):
                    yield line, row
                line = reader.line_num + 1
        except csv.Error as problem:
            raise UserError(f"{self.file}, line {line}: {_remedy(problem, line, reader.line_num)}") from problem

    def _lines(self) -> Iterator[str]:
        """Yield the file's lines, also those that end in a carriage return; the line of the separator is blank."""
        for number, line in text_lines(self.file, self.encoding):
            if number == 1 and _NAMED_SEPARATOR.fullmatch(line):
                line = "\n"
            if line.count("\r") > line.endswith("\r\n"):
                yield from io.StringIO(line, newline="")
            else:
                yield line


def _refuse_archive(file: Path, format_name: str) -> None:
    try:
        with open(regular(file), "rb") as raw:
            signature_bytes = raw.read(4)
    except OSError:
        return  # the reader of its lines reports it
    for signature, kind in _SIGNATURES.items():
        if signature_bytes.startswith(signature):
            raise UserError(f"{file} is {kind} despite its suffix: save the table as {format_name} in UTF-8")


_DOUBLE_QUOTES = "double each quote inside a field, and enclose the field in double quotes"


def _remedy(problem: csv.Error, first: int, last: int) -> str:
    """Return the fault of a row that extends from line ``first`` to line ``last``, with the remedy."""
    reason = first_line(problem)
    if "expected after" in reason:
        where = "" if first == last else f"a quote opens here and closes in line {last}, and "
        return f"{where}text follows a closing quote; {_DOUBLE_QUOTES}"
    if "unexpected end" in reason:
        return f"a quote opens here and is never closed; {_DOUBLE_QUOTES}"
    if "field limit" in reason:
        return f"a field has more than {csv.field_size_limit():,} characters; its closing quote may be missing"
    return reason


def _cut(fields: Sequence[str], width: int) -> list[str]:
    """Return the fields of a row without blank ones at the end beyond a width."""
    end = len(fields)
    while end > width and not fields[end - 1].strip():
        end -= 1
    return list(fields[:end])
