"""Runs that are stopped again and again, and what they stored until the last one ended."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from experiments import run_experiment

from robust_eval.answer import SCHEMA
from robust_eval.model.reply_tables import from_bytes
from robust_eval.record.result import Result
from robust_eval.store.sqlite import SqliteEntries


def run_with_stops(
    folder: Path,
    lines: Sequence[str],
    stops: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
    stopped: Callable[[int], object] = lambda answers: None,
) -> tuple[Result, list[bytes]]:
    """Run an experiment that is interrupted when entries were stored so many times, and goes on each time; return what
    it found in the end, and the keys of all entries, as often as they were stored.

    Requests are sent one after the other, and each reply is stored by itself. ``stopped`` is called when a run that was
    stopped is over, with the number of answers that are stored.
    """
    monkeypatch.setattr("robust_eval.model.served.served_model._GATHERED", 0)
    stored: list[bytes] = []
    answers: dict[bytes, int] = {}
    left = list(stops)
    put: Callable[[SqliteEntries, Mapping[bytes, bytes]], None] = SqliteEntries.put

    def stopping(entries: SqliteEntries, new: Mapping[bytes, bytes]) -> None:
        put(entries, new)
        tables = {key: value for key, value in new.items() if not value.startswith(b"{")}  # which describes the model
        stored.extend(tables)
        answers.update({key: from_bytes(value, SCHEMA).num_rows for key, value in tables.items()})
        if left and len(stored) >= left[0]:
            del left[0]
            raise KeyboardInterrupt

    monkeypatch.setattr(SqliteEntries, "put", stopping)
    for number in range(len(stops)):
        (place := folder / f"run{number}").mkdir()
        with pytest.raises(KeyboardInterrupt):
            run_experiment(place, *lines, "model.at_once=1")
        stopped(sum(answers.values()))
    (folder / "whole").mkdir()
    return run_experiment(folder / "whole", *lines, "model.at_once=1"), stored
