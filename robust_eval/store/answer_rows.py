"""Answers to one request, as rows of a table: which are there, which are taken, which can be believed."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa

from robust_eval.answer import SCHEMA, rows
from robust_eval.model.base import Request
from robust_eval.model.logprobs import fault
from robust_eval.store.waves import Condition


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


def planned(table: pa.Table, request: Request) -> pa.Table:
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
        not fault(chosen, top, answer_tokens, request.least_logprobs if outcome == "ok" else 0)
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
