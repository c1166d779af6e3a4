"""Whether a run that was repeated gave the same answers, row by row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robust_eval.answer import SAMPLER, read_answers, rows, temperature_name

SHOWN = 3
"""Answers that differ and are shown."""
_PLACE = ("question_id", "rewrite", "temperature", "trial")


def compared(before: Path, after: Path) -> str:
    """Say in one sentence how the answers in two files differ. Raises UserError where one holds no answers."""
    tables = [read_answers(file) for file in (before, after)]
    asked_by = all(table[SAMPLER].null_count == 0 for table in tables)  # which a run with one sampler need not say
    first, second = (_by_place(table, [*_PLACE, SAMPLER] if asked_by else _PLACE) for table in tables)
    places = first.keys() | second.keys()
    differ = sorted(place for place in places if _said(first.get(place)) != _said(second.get(place)))
    pairs = [(first[place][2], second[place][2]) for place in places if place not in set(differ)]
    largest = max((_largest(one, other) for one, other in pairs), default=0.0)
    logprobs = "to the last digit" if largest == 0 else f"log-probabilities differ by {largest:.1g} at most"
    if not differ:
        return f"the same answers came, all {len(places):,} of them; {logprobs}"
    shown = "; ".join(
        f"{_where(place)}: {_shown(first.get(place))} → {_shown(second.get(place))}" for place in differ[:SHOWN]
    )
    return f"{len(differ):,} of {len(places):,} answers differ, for example {shown}; of the others {logprobs}"


_Row = tuple[str, list[int] | None, list[float] | None]


def _by_place(table: pa.Table, place: Sequence[str]) -> dict[tuple[Any, ...], _Row]:
    rest = rows(table, "text", "token_ids", "token_logprobs")
    return dict(zip(rows(table, *place), rest, strict=True))


def _where(place: tuple[Any, ...]) -> str:
    question, rewrite, temperature, trial, *sampler = place
    reworded = f", rewrite {rewrite}," if rewrite else ""
    asked_by = f" ({sampler[0]})" if sampler else ""
    return f"question {question}{reworded} at t = {temperature_name(temperature)}, trial {trial}{asked_by}"


def _said(row: _Row | None) -> tuple[str, list[int] | None] | None:
    return None if row is None else (row[0], row[1])


def _shown(row: _Row | None) -> str:
    return "missing" if row is None else repr(row[0])


def _largest(one: list[float] | None, other: list[float] | None) -> float:
    if one is None or other is None or len(one) != len(other):
        return 0.0 if one == other else float("inf")
    with np.errstate(invalid="ignore"):  # −inf on both sides is no difference
        difference = np.abs(np.subtract(one, other))
    return float(np.nan_to_num(difference).max(initial=0.0))
