"""Keys of answers, curves and descriptions of models, and the stored answers to a request as rows of a table."""

import hashlib
import json
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from robust_eval.answer import rows, with_columns
from robust_eval.model.base import FURTHER_DRAWS, Request, TrialKey
from robust_eval.model.logprobs import fault


def answers_key(
    identity: Mapping[str, Any], request: Request, seedless_greedy: bool = False, remote: bool = False
) -> bytes:
    """Return the store's key of a request's answers: a hash of all that determines them but temperatures and trials.

    Every trial has its own random numbers, so more trials can be added under one key. The matcher is part of the key
    only if answers end once they are right, or are enumerated. The seed of greedy answers is 0 with
    ``seedless_greedy``. Only a ``remote`` model draws answers that it cannot enumerate.
    """
    enumeration = request.enumeration
    is_seedless = seedless_greedy and enumeration is None and request.temperatures == (0.0,)
    grades = enumeration is not None or request.stop_on_match
    matcher = ((enumeration and enumeration.choices) or request.matcher) if grades else None
    return _digest(
        {
            "model": identity,
            "prompt": asdict(request.prompt),
            "question_id": request.question_id,
            "rewrite": request.variant,
            "seed": 0 if is_seedless else request.seed,
            "max_new_tokens": request.max_new_tokens,
            "top_logprobs": request.top_logprobs,
            "judge": matcher and matcher.identity,  # another name would change all keys
            "first_line": request.first_line,
            "thought": request.reasoning and asdict(request.reasoning),
            "enumeration": enumeration and [enumeration.nodes, enumeration.temperatures, request.temperatures],
            **({"signs": request.signs} if request.signs else {}),
            **({"precision": enumeration.precision} if enumeration and enumeration.precision else {}),
            **({"draws": [enumeration.draws, FURTHER_DRAWS]} if enumeration and remote else {}),
        }
    )


def curve_key(answers: bytes) -> bytes:
    """Return the store's key of the accuracy curve of enumerated answers that have the key ``answers``."""
    return _digest({"curve": answers.hex()})


def description_key(identity: Mapping[str, Any]) -> bytes:
    """Return the store's key of the description of a model."""
    return _digest({"description": identity})


def _digest(determinants: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(determinants, sort_keys=True).encode()).digest()


def merge_answers(before: pa.Table | None, now: pa.Table, request: Request) -> pa.Table:
    """Return the new rows of answers, and those from ``before`` at other temperatures or in other trials."""
    if before is None or request.enumeration is not None:
        return now
    new = set(_conditions(now))
    unchanged = [condition not in new for condition in _conditions(before)]
    return pa.concat_tables([before.filter(pa.array(unchanged, pa.bool_())), now])


def requested_answers(table: pa.Table | None, request: Request) -> pa.Table | None:
    """Return the requested answer rows of a stored table, in their order; None if some are missing."""
    if table is None:
        return None
    if request.enumeration is not None:
        return _formed(table, request)
    conditions, stored = request.conditions, _conditions(table)
    if stored == conditions:
        return _weighted(table, request)
    return rows_at(table, conditions, request) if set(conditions) <= set(stored) else None


def rows_at(table: pa.Table, conditions: Sequence[TrialKey], request: Request) -> pa.Table:
    """Return the answer rows of these temperatures and trials, in their order."""
    indices = {condition: row for row, condition in enumerate(_conditions(table))}
    return _weighted(table.take(pa.array([indices[each] for each in conditions], pa.int64())), request)


def requested_among(table: pa.Table, request: Request) -> pa.Table:
    """Return the requested answers of a table of stored rows."""
    conditions = set(request.conditions)
    return table.filter(pa.array([condition in conditions for condition in _conditions(table)], pa.bool_()))


def with_cached_conditions(request: Request, stored: pa.Table | None) -> Request:
    """Return the request with the conditions, temperature and trial, of its stored answers."""
    if stored is None or request.enumeration is not None:
        return request
    return replace(request, cached=frozenset(_conditions(stored)))


def with_valid_logprobs(table: pa.Table, request: Request) -> pa.Table:
    """Return the answer rows except those with invalid log-probabilities."""
    if not request.top_logprobs:
        return table
    columns = rows(table, "outcome", "token_logprobs", "top_logprobs", "answer_tokens")
    is_valid = [
        not fault(chosen, top, answer_tokens, request.min_logprobs if outcome == "ok" else 0)
        for outcome, chosen, top, answer_tokens in columns
    ]
    return table if all(is_valid) else table.filter(pa.array(is_valid))


def _conditions(table: pa.Table) -> list[TrialKey]:
    """Return temperature and trial of each answer row."""
    return list(rows(table, "temperature", "trial"))


def _weighted(table: pa.Table, request: Request) -> pa.Table:
    """Return the answer rows with the weight 1 / trials each, and with the form of the request."""
    return _formed(with_columns(table, {"weight": np.full(table.num_rows, 1 / request.trials)}), request)


def _formed(table: pa.Table, request: Request) -> pa.Table:
    """Return the answer rows with the form of the request."""
    if request.form is None:
        return table
    return with_columns(table, {"form": [request.form] * table.num_rows})


_MERGED = 1000
"""Number of small tables that are merged into a large one."""

Name = TypeVar("Name", bound=Hashable)


class Tables(Generic[Name]):
    """Tables of one schema by name, merged into a few large ones: an Arrow table takes ten kilobytes besides its rows.

    >>> tables = Tables(pa.schema({"n": pa.int64()}))
    >>> tables["a"], tables["b"] = pa.table({"n": [1, 2]}), pa.table({"n": [3]})
    >>> tables.together(["b", "a"])["n"].to_pylist()
    [3, 1, 2]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._large = [schema.empty_table()]
        self._small: list[pa.Table] = []
        self._indices: dict[Name, int] = {}
        self._ends = array("q", [0])  # number of rows up to the end of each table, the first at index 1

    def __setitem__(self, name: Name, table: pa.Table) -> None:
        self._indices[name] = len(self._ends)
        self._ends.append(self._ends[-1] + table.num_rows)
        self._small.append(table)
        if len(self._small) == _MERGED:
            self._join()

    def __contains__(self, name: object) -> bool:
        return name in self._indices

    def names(self) -> Set[Name]:
        """Return the names of all tables."""
        return self._indices.keys()

    def together(self, names: Iterable[Name]) -> pa.Table:
        """Return the tables of these names as one table, in this order; KeyError for an unknown name."""
        self._join()
        indices = [self._indices[name] for name in names]
        if len(self._large) > 1:  # merged column by column, so that there are never two copies of all
            schema, columns = self._large[0].schema, [table.columns for table in self._large]
            self._large = []
            combined = []
            for _ in schema:
                parts = [part for each in columns for part in each.pop(0).chunks]
                combined.append(pa.concat_arrays(parts))
            self._large = [pa.table(combined, schema=schema)]
        (merged,) = self._large
        if indices == list(range(1, len(self._ends))):
            return merged
        rows = np.concatenate([np.arange(0), *(np.arange(self._ends[k - 1], self._ends[k]) for k in indices)])
        return merged.take(pa.array(rows)).combine_chunks()

    def _join(self) -> None:
        if self._small:
            self._large.append(pa.concat_tables(self._small).combine_chunks())
            self._small = []
