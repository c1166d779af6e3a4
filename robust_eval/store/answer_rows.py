"""Answers to one request, as rows of a table: which are there, which are taken, which can be believed."""

from array import array
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import replace
from itertools import product
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from robust_eval.answer import SCHEMA, rows
from robust_eval.model.base import Request
from robust_eval.model.logprobs import fault

Condition = tuple[float, int]
"""Temperature and trial of an answer."""


def merged(before: pa.Table | None, now: pa.Table, request: Request) -> pa.Table:
    """Return the new answers, and those from ``before`` at other temperatures or in other trials."""
    if before is None or request.enumeration is not None:
        return now
    new = set(_conditions(now))
    others = [condition not in new for condition in _conditions(before)]
    return pa.concat_tables([before.filter(pa.array(others, pa.bool_())), now])


def chosen(table: pa.Table | None, request: Request) -> pa.Table | None:
    """Return the rows of a table of answers that the request asks for, in its order; None where some are missing."""
    if table is None:
        return None
    if request.enumeration is not None:
        return _formed(table, request)
    conditions, there = list(product(request.temperatures, range(request.trials))), _conditions(table)
    if there == conditions:
        return _weighted(table, request)
    return taken(table, conditions, request) if set(conditions) <= set(there) else None


def taken(table: pa.Table, conditions: Sequence[Condition], request: Request) -> pa.Table:
    """Return the rows of these temperatures and trials, in their order."""
    place = {condition: row for row, condition in enumerate(_conditions(table))}
    rows_of = pa.array([place[condition] for condition in conditions], pa.int64())
    return _weighted(table.take(rows_of), request)


def among(table: pa.Table, request: Request) -> pa.Table:
    """Return the answers that are among those that a request asks for."""
    wanted = set(product(request.temperatures, range(request.trials)))
    return table.filter(pa.array([condition in wanted for condition in _conditions(table)], pa.bool_()))


def knowing(request: Request, stored: pa.Table | None) -> Request:
    """Return the request with the answers that are known."""
    if stored is None or request.enumeration is not None:
        return request
    return replace(request, cached=frozenset(_conditions(stored)))


def believed(table: pa.Table, request: Request) -> pa.Table:
    """Return the answers without those whose log-probabilities are impossible."""
    if not request.top_logprobs:
        return table
    columns = rows(table, "outcome", "token_logprobs", "top_logprobs", "answer_tokens")
    good = [
        not fault(chosen, top, answer_tokens, request.min_logprobs if outcome == "ok" else 0)
        for outcome, chosen, top, answer_tokens in columns
    ]
    return table if all(good) else table.filter(pa.array(good))


def _conditions(table: pa.Table) -> list[Condition]:
    """Return temperature and trial of each row."""
    return list(rows(table, "temperature", "trial"))


def _weighted(table: pa.Table, request: Request) -> pa.Table:
    """Return the answers with what they weigh among those of the request, and how that put the question."""
    if table["weight"].to_pylist() != [1 / request.trials] * table.num_rows:
        weights = pa.array(np.full(table.num_rows, 1 / request.trials))
        table = table.set_column(SCHEMA.get_field_index("weight"), SCHEMA.field("weight"), weights)
    return _formed(table, request)


def _formed(table: pa.Table, request: Request) -> pa.Table:
    """Return the answers with how the request put the question."""
    if request.form is None:
        return table
    told = pa.array([request.form] * table.num_rows, pa.string())
    return table.set_column(SCHEMA.get_field_index("form"), SCHEMA.field("form"), told)


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
