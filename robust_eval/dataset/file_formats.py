"""Records of a file: JSON, JSON Lines, CSV, TSV, Parquet, or plain lines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from robust_eval.dataset.delimited_table import DelimitedTable
from robust_eval.dataset.record import Record
from robust_eval.error import UserError, first_line
from robust_eval.runtime.files import json_line, parsed_json, refuse_bomb, text_lines

KINDS = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".label")
"""How the names of files that can be read end."""
_ROWS = 1_000
"""Rows of a Parquet file that are turned into records at once."""


def data_files(path: Path, split: str = "") -> list[Path]:
    """Return the file, or those of a folder, or of its folder for the split, by name; UserError where there is none."""
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
    """Yield the records of a file, one after the other; UserError where it cannot be read, with the line that is
    broken.

    An entry of JSON that is no object is an empty record. A JSON file that holds one object is one record, and one of
    lines may end in .json.
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
    opening = next((line for _, line in text_lines(file, encoding) if line.strip()), "")
    if not opening:
        return
    try:
        of_lines = isinstance(parsed_json(opening), dict)
    except ValueError:
        of_lines = False
    if of_lines:
        for number, line in text_lines(file, encoding):
            if line.strip():
                yield _record(json_line(line, f"{file}, line {number}"))
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
