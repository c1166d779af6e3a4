"""What can still be read of a damaged file of the SQLite store goes into a new one."""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from robust_eval.store.sqlite_file import (
    AT_ONCE,
    COLUMNS,
    ERRORS,
    DamagedError,
    Row,
    connect,
    error_code,
    insert,
    intact_row,
    prepare,
)

log = logging.getLogger(__name__)

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Errors of a file that is damaged."""
_PERHAPS_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FULL)
"""Errors of a file whose tables cannot be read any more, or which says that it cannot grow, and of a mistake, or a full
disk."""


def damaged(file: Path, problem: sqlite3.DatabaseError | UnicodeDecodeError, read_only: bool) -> bool:
    """Tell whether the file itself is broken, rather than locked, full, out of reach, or used in a wrong way."""
    if isinstance(problem, UnicodeDecodeError | DamagedError):
        return True
    if error_code(problem) in _DAMAGE or error_code(problem, 0xFFFF) == sqlite3.SQLITE_IOERR_SHORT_READ:
        return True
    if error_code(problem) == sqlite3.SQLITE_READONLY and not read_only:  # a header may be damaged to say so
        return True
    return error_code(problem) in _PERHAPS_DAMAGE and not _sound(file)


def _sound(file: Path) -> bool:
    """Tell whether SQLite, asked anew, finds nothing wrong with the file."""
    try:
        with closing(connect(file)) as connection:
            for name, columns in COLUMNS.items():
                connection.execute(f"SELECT {columns} FROM {name} LIMIT 1").fetchall()
            return bool(connection.execute("PRAGMA quick_check(1)").fetchall() == [(b"ok",)])
    except UnicodeDecodeError:
        return False
    except sqlite3.Error as problem:
        return error_code(problem) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def rebuild(file: Path, problem: Exception) -> None:
    """Put a new file in the place of the damaged one, once it holds all that is left."""
    new = file.parent / "mended.sqlite"
    new.unlink(missing_ok=True)
    rescued = 0
    try:
        with closing(connect(new)) as connection:
            prepare(connection)
            left = _readable(file)
            while rows := list(islice(left, AT_ONCE)):
                insert(connection, rows, used_at=0)
                rescued += len(rows)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    aside = file.parent / f"damaged-{time.time_ns()}.sqlite"
    with suppress(FileNotFoundError):  # it belongs to the damaged file, and would be played back into the new one
        file.with_name(f"{file.name}-journal").rename(aside.with_name(f"{aside.name}-journal"))
    with suppress(OSError):  # some file systems have no links; then it is gone
        os.link(file, aside)
    os.replace(new, file)
    log.warning(
        "store: %s was damaged (%s); %d entries could be read, the rest is asked again; the damaged file is now %s",
        *(file, problem, rescued, aside.name),
    )


def _readable(file: Path) -> Iterator[Row]:
    """Yield the intact entries of a damaged file, as far as they can be reached."""
    with suppress(*ERRORS), closing(connect(file)) as connection:
        connection.execute("PRAGMA writable_schema = ON")  # reads a file that is shorter than its head says

        def entries(low: int, high: int, order: str) -> Iterator[tuple[Any, ...]]:
            query = f"SELECT id, key, value, checksum FROM entries WHERE id BETWEEN ? AND ? ORDER BY id {order}"
            with suppress(*ERRORS):
                yield from (row for row in connection.execute(query, (low, high)) if isinstance(row[0], int))

        narrow = 2**64 // (4 * max(1, file.stat().st_size // 4096))  # less than a page's share of all numbers
        ranges = [(-(2**63), 2**63 - 1)]
        while ranges:
            low, high = ranges.pop()
            first, last = low, high
            for number, *row in entries(low, high, "ASC"):  # up to the first page that is broken
                first = min(number + 1, high)
                yield from intact_row(*row)
            for number, *row in entries(first, high, "DESC"):  # down to the last
                last = max(number - 1, low)
                yield from intact_row(*row)
            if first < last and ((first, last) != (low, high) or high - low > narrow):  # and between, if there is any
                middle = (first + last) // 2
                ranges += [(first, middle), (middle + 1, last)]
