"""Records of a file: JSON, JSON Lines, CSV, TSV, Parquet, or plain lines."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from robust_eval.dataset.record import Record
from robust_eval.error import UserError, first_line
from robust_eval.runtime.json_text import parsed_json
from robust_eval.runtime.regular_file import regular

KINDS = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".label")
"""How the names of files that can be read end."""
_ROWS = 1_000
"""Rows of a Parquet file that are turned into records at once."""


def data_files(path: Path, split: str = "") -> list[Path]:
    """The file, or those of a folder, or of its folder for the split, by name; UserError where there is none."""
    if not path.is_dir():
        if path.suffix.lower() not in KINDS:
            raise UserError(f"dataset.path must end in {', '.join(KINDS)}; {path} does not")
        return [path]
    folder = path / split if split and (path / split).is_dir() else path
    found = sorted(file for file in folder.iterdir() if file.suffix.lower() in KINDS)
    if not found:
        raise UserError(f"the folder {folder} holds no data file ({', '.join(KINDS)})")
    return found


def read_records(
    file: Path, encoding: str = "utf-8", header: Sequence[str] = (), quoted: bool = True
) -> Iterator[Record]:
    """The records of a file, one after the other; UserError where it cannot be read, with the line that is broken.

    A row of CSV or TSV whose number of cells is not that of the columns, and an entry of JSON that is no object, are
    empty records. A JSON file that holds one object is one record, and one of lines may end in .json.
    """
    kind = file.suffix.lower()
    try:
        if kind == ".parquet":
            yield from _parquet(file)
        elif kind in (".csv", ".tsv"):
            yield from _table(file, encoding, "," if kind == ".csv" else "\t", header, quoted)
        elif kind == ".label":
            yield from ({"line": line} for _, line in lines(file, encoding) if line.strip())
        else:
            yield from _json(file, encoding)
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror or first_line(problem)}") from problem


def lines(file: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers, without the mark that may open it; only a line feed ends a line."""
    with open(regular(file), "rb") as raw:
        for number, line in enumerate(raw, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                yield number, line.decode(encoding)
            except UnicodeDecodeError as problem:
                raise UserError(
                    f"{file}, line {number}: not {encoding.upper()} ({problem.reason} at byte {problem.start + 1})"
                ) from problem


def _json(file: Path, encoding: str) -> Iterator[Record]:
    opening = next((line for _, line in lines(file, encoding) if line.strip()), "")
    if not opening:
        return
    if isinstance(_parsed(opening), dict):
        for number, line in lines(file, encoding):
            if line.strip():
                yield _record(_parsed(line, f"{file}, line {number}"))
        return
    document = _parsed("".join(line for _, line in lines(file, encoding)), str(file))
    yield from (_record(entry) for entry in (document if isinstance(document, list) else [document]))


def _parsed(text: str, where: str = "") -> Any:
    """What a JSON text says; where it is broken, UserError if a place is given, else None."""
    try:
        return parsed_json(text)
    except ValueError as problem:
        if where:
            raise UserError(f"{where}: broken JSON ({first_line(problem)})") from problem
        return None


def _record(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _table(file: Path, encoding: str, delimiter: str, header: Sequence[str], quoted: bool) -> Iterator[Record]:
    texts = (line for _, line in lines(file, encoding))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    rows = csv.reader(texts, delimiter=delimiter, quoting=quoting)
    try:
        if not header:
            header = next(rows, [])
            for name in header:
                if list(header).count(name) > 1:
                    raise UserError(f"{file} has several columns of the name {name!r}")
        for row in rows:
            if row:
                yield dict(zip(header, row, strict=True)) if len(row) == len(header) else {}
    except csv.Error as problem:
        raise UserError(f"{file}, line {rows.line_num}: {first_line(problem)}") from problem


def _parquet(file: Path) -> Iterator[Record]:
    try:
        with pq.ParquetFile(regular(file)) as table:
            for batch in table.iter_batches(batch_size=_ROWS):
                yield from batch.to_pylist()
    except (pa.ArrowException, UnicodeDecodeError) as problem:
        raise UserError(f"{file} cannot be read: {first_line(problem)}") from problem
