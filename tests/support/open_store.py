"""What a process has stored by now that has its store open."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path


def stored_values(store: Path) -> list[bytes]:
    """The values of all entries; none where there is no store yet."""
    (file,) = store.glob("*.sqlite") or [None]
    if file is None:
        return []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM entries")]


def wait_until(count: Callable[[], int], number: int) -> None:
    """Wait until there are so many; AssertionError after a minute."""
    deadline = time.monotonic() + 60
    while count() < number:
        assert time.monotonic() < deadline, f"{count()} of {number} are stored"
        time.sleep(0.002)
