"""The lowest and the highest value that a figure of one question can have, said in the fields of a table."""

from collections.abc import Mapping

import pyarrow as pa

from robust_eval.stats.interval import UNKNOWN, Limits

_KEY = b"limits"


def with_limits(table: pa.Table, limits: Mapping[str, Limits]) -> pa.Table:
    """Return the table with what is known of its columns, by their names.

    >>> table = with_limits(pa.table({"accuracy": [0.5], "length": [3]}), {"accuracy": (0.0, 1.0)})
    >>> limits_of(table, "accuracy"), limits_of(table, "length")
    ((0.0, 1.0), (-inf, inf))
    """
    fields = [
        field.with_metadata({_KEY: " ".join(map(repr, limits[field.name]))}) if field.name in limits else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def limits_of(table: pa.Table, column: str) -> Limits:
    """Return what :func:`with_limits` said of a column; infinite where it said nothing."""
    said = (table.schema.field(column).metadata or {}).get(_KEY)
    if said is None:
        return UNKNOWN
    lowest, highest = map(float, said.split())
    return lowest, highest
