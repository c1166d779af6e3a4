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
"""Format of the file; a larger number is that of a newer program."""
FOREIGN = 60
"""Timeout, in seconds, for another program that has the file open in SQLite."""
AT_ONCE = 500
"""Maximum number of entries in one query or transaction."""
COLUMNS = {"format": "name", "entries": "id, key, value, checksum", "uses": "id, used_at"}
"""Columns of the tables."""

ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Exceptions from reading a damaged file; the latter if SQLite quotes it."""

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
    """Damage that SQLite does not notice."""


def connect(file: Path | str, uri: bool = False) -> sqlite3.Connection:
    """Connect to a file, whose texts are read as bytes: damaged ones are not UTF-8."""
    connection = sqlite3.connect(file, timeout=FOREIGN, isolation_level=None, uri=uri)
    connection.text_factory = bytes
    return connection


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables in a new file, and check that it is writable."""
    if _new(connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # writes the first page
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    connection.execute("PRAGMA cell_size_check = ON")
    with transaction(connection):
        pass


def _new(connection: sqlite3.Connection) -> bool:
    """Return whether a file is without tables: its creation may have been interrupted."""
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    return pages <= 1 and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def written_by(connection: sqlite3.Connection) -> int | None:
    """Return the format of the file; None if it is unreadable."""
    names = connection.execute("SELECT name FROM format").fetchall()
    known = _FORMAT.fullmatch(names[0][0]) if len(names) == 1 and isinstance(names[0][0], bytes) else None
    return int(known.group(1)) if known else None


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all changes of the context, or none."""
    try:
        connection.execute("BEGIN IMMEDIATE")  # an interrupt during it is raised after it
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have rolled it back already
            connection.execute("ROLLBACK")
        raise


def insert(connection: sqlite3.Connection, rows: Sequence[Row], used_at: int) -> None:
    """Write entries, all or none, with their time of use."""
    with transaction(connection):
        entries = [(number_of(key), key, value, checksum) for key, value, checksum in rows]
        connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", entries)
        connection.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", [(row[0], used_at) for row in entries])


def intact_row(key: object, value: object, checksum: object) -> Iterator[Row]:
    """Yield the row if it is intact."""
    if isinstance(key, bytes) and isinstance(value, bytes) and checksum == checksum_of(key, value):
        yield key, value, checksum


def number_of(key: bytes) -> int:
    """Return the number of an entry; of two keys with the same number the later one replaces the other, and the
    checksum distinguishes them.
    """
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)


def checksum_of(key: bytes, value: bytes) -> bytes:
    """Return the checksum of an entry, with its key, so that no entry passes for another."""
    return hashlib.blake2b(value, key=key[:64], digest_size=16).digest()


def error_code(problem: sqlite3.Error, bits: int = 0xFF) -> int:
    """Return SQLite's code of an error, more exactly with more ``bits``; that of misuse for an error of Python."""
    return int(getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & bits


log = logging.getLogger(__name__)

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Errors of a damaged file."""
_PERHAPS_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FULL)
"""Errors of a file with unreadable tables or a wrong size, but also of a wrong query or a full disk."""


def damaged(file: Path, problem: sqlite3.DatabaseError | UnicodeDecodeError, read_only: bool) -> bool:
    """Return whether the file itself is damaged, rather than locked, full, unreachable or misused."""
    if isinstance(problem, UnicodeDecodeError | DamagedError):
        return True
    if error_code(problem) in _DAMAGE or error_code(problem, 0xFFFF) == sqlite3.SQLITE_IOERR_SHORT_READ:
        return True
    if error_code(problem) == sqlite3.SQLITE_READONLY and not read_only:  # of a damaged header
        return True
    return error_code(problem) in _PERHAPS_DAMAGE and not _sound(file)


def _sound(file: Path) -> bool:
    """Return whether a check by SQLite finds no fault in the file."""
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
    """Replace the damaged file by a new one with all readable entries."""
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
    with suppress(FileNotFoundError):  # of the damaged file; it would be replayed into the new one
        file.with_name(f"{file.name}-journal").rename(aside.with_name(f"{aside.name}-journal"))
    with suppress(OSError):  # some file systems have no links; the damaged file is then lost
        os.link(file, aside)
    os.replace(new, file)
    log.warning(
        "store: %s was damaged (%s); %d entries could be read, the rest is asked again; the damaged file is now %s",
        *(file, problem, rescued, aside.name),
    )


def _readable(file: Path) -> Iterator[Row]:
    """Yield the readable intact entries of a damaged file."""
    with suppress(*ERRORS), closing(connect(file)) as connection:
        connection.execute("PRAGMA writable_schema = ON")  # reads a file that is shorter than its header says

        def entries(low: int, high: int, order: str) -> Iterator[tuple[Any, ...]]:
            query = f"SELECT id, key, value, checksum FROM entries WHERE id BETWEEN ? AND ? ORDER BY id {order}"
            with suppress(*ERRORS):
                yield from (row for row in connection.execute(query, (low, high)) if isinstance(row[0], int))

        narrow = 2**64 // (4 * max(1, file.stat().st_size // 4096))  # less than a page's share of all numbers
        ranges = [(-(2**63), 2**63 - 1)]
        while ranges:
            low, high = ranges.pop()
            first, last = low, high
            for number, *row in entries(low, high, "ASC"):  # up to the first damaged page
                first = min(number + 1, high)
                yield from intact_row(*row)
            for number, *row in entries(first, high, "DESC"):  # down to the last one
                last = max(number - 1, low)
                yield from intact_row(*row)
            if first < last and ((first, last) != (low, high) or high - low > narrow):  # and between them
                middle = (first + last) // 2
                ranges += [(first, middle), (middle + 1, last)]
