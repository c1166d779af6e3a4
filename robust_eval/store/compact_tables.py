"""Many small tables, kept in little memory."""

from array import array
from collections.abc import Hashable, Iterable, Set
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

_TOGETHER = 1000

Name = TypeVar("Name", bound=Hashable)


class Tables(Generic[Name]):
    """Tables of one schema by name, kept as a few large ones: a small table takes ten kilobytes beside its rows.

    >>> tables = Tables(pa.schema({"n": pa.int64()}))
    >>> tables["a"], tables["b"] = pa.table({"n": [1, 2]}), pa.table({"n": [3]})
    >>> tables.together(["b", "a"])["n"].to_pylist()
    [3, 1, 2]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._large = [schema.empty_table()]
        self._small: list[pa.Table] = []
        self._places: dict[Name, int] = {}
        self._ends = array("q", [0])  # after so many rows each table ends, the first at index 1

    def __setitem__(self, name: Name, table: pa.Table) -> None:
        self._places[name] = len(self._ends)
        self._ends.append(self._ends[-1] + table.num_rows)
        self._small.append(table)
        if len(self._small) == _TOGETHER:
            self._join()

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def names(self) -> Set[Name]:
        """Return the names of all tables."""
        return self._places.keys()

    def together(self, names: Iterable[Name]) -> pa.Table:
        """Return the tables of these names as one table, in this order; KeyError where one does not exist."""
        self._join()
        places = [self._places[name] for name in names]
        rows = np.concatenate([np.arange(0), *(np.arange(self._ends[k - 1], self._ends[k]) for k in places)])
        whole = pa.concat_tables(self._large).combine_chunks()
        return whole if np.array_equal(rows, np.arange(whole.num_rows)) else whole.take(pa.array(rows)).combine_chunks()

    def _join(self) -> None:
        if self._small:
            self._large.append(pa.concat_tables(self._small).combine_chunks())
            self._small = []
