"""Rows of answer tables, of which a test names what it is about."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa


def answer_row(question_id: str, **columns: Any) -> dict[str, Any]:
    """Return a row of a reply to a question as it stands, at t = 1, with other values in some columns."""
    same = {"rewrite": 0, "temperature": 1.0, "trial": 0, "text": "", "outcome": "ok", "weight": 1.0}
    return {"question_id": question_id} | same | columns


def changed(table: pa.Table, **columns: Mapping[int, Any]) -> pa.Table:
    """Return the table with other values in some columns, by row."""
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        column = [values.get(row, value) for row, value in enumerate(table[name].to_pylist())]
        table = table.set_column(place, table.schema.field(name), pa.array(column, table.schema.field(name).type))
    return table
