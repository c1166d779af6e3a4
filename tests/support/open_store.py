"""What a process has stored by now that has its store open."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from robust_eval.answer import SCHEMA
from robust_eval.model.reply_tables import from_bytes


def stored_values(store: Path) -> list[bytes]:
    """The values of all entries; none where there is no store yet."""
    file = next(store.glob("*.sqlite"), None)
    if file is None:
        return []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM entries")]


def stored_answers(mlruns: Path) -> int:
    """The number of answers; the description of the model, which begins like JSON, is none."""
    values = stored_values(mlruns / "store")
    return sum(from_bytes(value, SCHEMA).num_rows for value in values if not value.startswith(b"{"))


def wait_until(count: Callable[[], int], number: int) -> None:
    """Wait until there are so many; AssertionError after a minute."""
    deadline = time.monotonic() + 60
    while count() < number:
        assert time.monotonic() < deadline, f"{count()} of {number} are stored"
        time.sleep(0.002)
