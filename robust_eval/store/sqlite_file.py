"""File of the SQLite store: its tables, the checksum of each entry, and the rescue of entries from a damaged file.

Entries lie in a single tree under numbers taken from their keys, so that there is no index which could be damaged by
itself. SQLite's rollback journal is used, and not its write-ahead log, which belongs to the name of a file and not to
the file: it would not survive that another process puts a mended file in its place.
"""

import hashlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

FORMAT = 1
"""Of the file; a greater number than this was written by a newer program."""
FOREIGN = 60
"""Seconds that is waited for another program that has the file open in SQLite."""
AT_ONCE = 500
"""Entries in one query or transaction."""
COLUMNS = {"format": "name", "entries": "id, key, value, checksum", "uses": "id, used_at"}
"""Of the tables."""

ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises; the latter where SQLite quotes from it."""

Row = tuple[bytes, bytes, bytes]
"""Key, value, checksum."""

_FORMAT = re.compile(rb"robust_eval answers, format (\d+)")
_TABLES = f"""
    CREATE TABLE format (name TEXT NOT NULL);
    INSERT INTO format VALUES ('robust_eval answers, format {FORMAT}');
    CREATE TABLE entries (id INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL, checksum BLOB NOT NULL);
    CREATE TABLE uses (id INTEGER PRIMARY KEY, used_at INTEGER NOT NULL);
"""


class DamagedError(sqlite3.DatabaseError):
    """Damage that is not SQLite's to see."""


def connect(file: Path | str, uri: bool = False) -> sqlite3.Connection:
    """Connect to a file, whose text is read as bytes: damaged text need not be any."""
    connection = sqlite3.connect(file, timeout=FOREIGN, isolation_level=None, uri=uri)
    connection.text_factory = bytes
    return connection


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables in a new file, and make sure that it can be written."""
    if _new(connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # writes the first page
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    connection.execute("PRAGMA cell_size_check = ON")
    with transaction(connection):
        pass


def _new(connection: sqlite3.Connection) -> bool:
    """Tell whether nothing was ever put into a file: whoever made it may have been stopped before it had tables."""
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    return pages <= 1 and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def written_by(connection: sqlite3.Connection) -> int | None:
    """Return the format of the program that wrote the file; None where it cannot be read."""
    names = connection.execute("SELECT name FROM format").fetchall()
    known = _FORMAT.fullmatch(names[0][0]) if len(names) == 1 and isinstance(names[0][0], bytes) else None
    return int(known.group(1)) if known else None


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all of it or nothing."""
    try:
        connection.execute("BEGIN IMMEDIATE")  # an interrupt that comes meanwhile is raised when it has begun
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have rolled it back already
            connection.execute("ROLLBACK")
        raise


def insert(connection: sqlite3.Connection, rows: Sequence[Row], used_at: int) -> None:
    """Write entries, all or none, with the time at which they were used."""
    with transaction(connection):
        entries = [(number_of(key), key, value, checksum) for key, value, checksum in rows]
        connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", entries)
        connection.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", [(row[0], used_at) for row in entries])


def intact_row(key: object, value: object, checksum: object) -> Iterator[Row]:
    """Yield the row, if it is what was once written."""
    if isinstance(key, bytes) and isinstance(value, bytes) and checksum == checksum_of(key, value):
        yield key, value, checksum


def number_of(key: bytes) -> int:
    """Return the number of an entry; where two keys have the same, the later one takes the place, and the checksum
    tells them apart.
    """
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)


def checksum_of(key: bytes, value: bytes) -> bytes:
    """Return what stands beside an entry that is whole; of the key as well, so that none takes another's place."""
    return hashlib.blake2b(value, key=key[:64], digest_size=16).digest()


def error_code(problem: sqlite3.Error, bits: int = 0xFF) -> int:
    """Return what SQLite calls an error; with more ``bits`` more exactly. One of Python's own is a mistake."""
    return int(getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & bits


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
