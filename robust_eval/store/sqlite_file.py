"""The file of the SQLite store: its tables, and how an entry lies in them, with a checksum.

Entries lie in a single tree under numbers taken from their keys, so that there is no index which could be damaged by
itself. SQLite's rollback journal is used, and not its write-ahead log, which belongs to the name of a file and not to
the file: it would not survive that another process puts a mended file in its place.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

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
