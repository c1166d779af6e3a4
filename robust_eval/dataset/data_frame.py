"""Tables of a Python program: questions or answers, as a DataFrame or as mappings."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from robust_eval.error import UserError, first_line

Rows: TypeAlias = pd.DataFrame | Sequence[Mapping[str, Any]]
"""Table: a DataFrame, or a mapping for each row."""


class KeptTable:
    """Table of a Python program, stored as a file under ``mlruns/tables`` that is named by a digest of its content.

    So a run can be repeated from its folder, and an equal table is the same data set in the next call.
    """

    def __init__(self, mlruns: Path, content: bytes, ending: str) -> None:
        self.file = mlruns / "tables" / f"{hashlib.sha256(content).hexdigest()[:16]}{ending}"
        self._content = content

    def write(self) -> None:
        """Write the table to its file atomically."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        partial.write_bytes(self._content)
        os.replace(partial, self.file)


def records(table: Rows, label: str) -> list[dict[str, Any]]:
    """Return the rows of a program's table without missing values. Raises UserError if it is empty or no table."""
    if isinstance(table, pd.DataFrame):
        if not table.columns.is_unique:
            raise UserError(f"{label}: several columns of the DataFrame have the same name")
        rows: Sequence[Any] = table.to_dict("records")
    elif isinstance(table, Sequence) and not isinstance(table, str):
        rows = table
    else:
        raise UserError(f"{label} must be a DataFrame or a list of mappings, not {type(table).__name__}")
    if not rows:
        raise UserError(f"{label}: the table has no rows")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise UserError(f"{label}, row {number}: a row must be a mapping from names to values, not {row!r:.60}")
    return [{name: _plain(value) for name, value in row.items() if not _is_missing(value)} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value))


def json_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return questions as JSON Lines; a whole ``level`` or ``correct`` is an integer, although pandas makes it a float.

    Raises UserError for the first row with a value that JSON does not support.
    """
    lines = []
    for number, row in enumerate(rows, start=1):
        numbers = {name: row[name] for name in ("level", "correct") if isinstance(row.get(name), float)}
        whole = {name: int(value) for name, value in numbers.items() if value.is_integer()}
        try:
            lines.append(json.dumps({**row, **whole}, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError) as problem:
            raise UserError(f"dataset, row {number}: {first_line(problem)}") from problem
    return "\n".join(lines) + "\n"
