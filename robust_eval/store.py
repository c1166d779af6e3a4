"""The store: what a model answered is kept as it arrives, and never asked again.

A store is a map from keys to bytes in one SQLite file, with a checksum for each entry. Nothing that is damaged is given
out: it counts as missing, and what is missing is asked again.
"""

import errno
import hashlib
import logging
import re
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from robust_eval.error import UserError

log = logging.getLogger(__name__)

FORMAT = 1
"""Of the file; a greater number than this was written by a newer program."""
_FORMAT = re.compile(rb"robust_eval answers, format (\d+)")
FILE = "answers.sqlite"
PATIENCE = (2, 600)
"""Seconds that a write waits for another process's: in silence, and then after saying so."""
AT_ONCE = 500
"""Keys in one query."""
MOST_BETWEEN = 1_000_000
"""Entries that are looked for between the broken pages of a damaged file: its numbers may be damaged as well."""

_TABLES = f"""
    CREATE TABLE format (name TEXT NOT NULL);
    INSERT INTO format VALUES ('robust_eval answers, format {FORMAT}');
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, value BLOB NOT NULL, checksum BLOB NOT NULL
    );
    CREATE TABLE uses (key BLOB PRIMARY KEY, used_at INTEGER NOT NULL) WITHOUT ROWID;
"""


class Store(Protocol):
    """Where answers are kept; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager["Entries"]:
        """The entries, ready to be read and written; UserError where they cannot be."""


class Entries(Protocol):
    """What a store holds."""

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The keys among these that are there, with their values, in no particular order."""

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Keep all of these or none, in place of what these keys had before; they are on the disk when this returns."""

    def asking(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        """While this is held no other process asks for the same keys: who comes second waits, and then finds them."""

    def size(self) -> str:
        """How large the store is, and where, for a person."""


@dataclass
class NoStore:
    """store=none: everything is asked anew, and nothing is kept if the run is stopped."""

    def open(self) -> AbstractContextManager[Entries]:
        return nullcontext(_NoEntries())


class _NoEntries:
    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def put(self, entries: Mapping[bytes, bytes]) -> None: ...

    def asking(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        return nullcontext()

    def size(self) -> str:
        return "none: nothing was kept"


@dataclass
class SqliteStore:
    """store=sqlite: a file that all runs share, also at the same time."""

    folder: str
    """Where it lies; must be on a disk of this machine for several processes to use it at once."""
    most_megabytes: int = 4096
    """Beyond this the entries that were not used for longest are dropped, but none that this run uses."""

    def __post_init__(self) -> None:
        if self.most_megabytes < 1:
            raise ValueError(f"most_megabytes must be at least 1, not {self.most_megabytes}")

    @contextmanager
    def open(self) -> Iterator[Entries]:
        entries = SqliteEntries(Path(self.folder), self.most_megabytes * 2**20)
        try:
            yield entries
        finally:
            entries.close()


class SqliteEntries:
    """The entries of an SQLite file; see :class:`Entries`."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._file = folder / FILE
        self._most_bytes = most_bytes
        self._opened_at = time.time_ns()
        self._read_only = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UserError(f"store: the folder {folder} cannot be made ({problem.strerror})") from problem
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError as problem:
            self._mend(problem)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """See :class:`Entries`. Entries that are damaged are left out, with a warning."""
        remaining = iter(keys)
        while some := list(islice(remaining, AT_ONCE)):
            try:
                found = self._select(some)
            except sqlite3.DatabaseError as problem:
                self._mend(problem)
                found = self._select(some)
            intact = {key: value for row in found for key, value, _ in _intact(*row)}
            if len(intact) < len(found):
                log.warning("store: %d entries are damaged; what they held is asked again", len(found) - len(intact))
            yield from intact.items()
            self._use(intact)

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """See :class:`Entries`."""
        if self._read_only:
            return
        rows = [(key, value, _checksum(key, value)) for key, value in entries.items()]
        try:
            self._insert(rows)
        except sqlite3.DatabaseError as problem:
            self._mend(problem)
            self._insert(rows)
        if self._bytes() > self._most_bytes:
            self._evict()

    @contextmanager
    def asking(self, keys: Iterable[bytes]) -> Iterator[None]:
        """See :class:`Entries`."""
        if self._read_only:
            yield
            return
        digest = hashlib.blake2b(b"".join(sorted(keys)), digest_size=8).digest()
        locks = self._folder / "locks"
        locks.mkdir(exist_ok=True)
        lock = FileLock(locks / digest.hex())
        try:
            lock.acquire(timeout=1)
        except Timeout:
            log.info("store: another process is asking the same; waiting for its answers")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def size(self) -> str:
        """See :class:`Entries`."""
        most = f"of at most {self._most_bytes / 2**20:,.0f} MB"
        return f"{self._bytes() / 2**20:,.1f} MB {most} in {self._folder}"

    def _open(self) -> sqlite3.Connection:
        """A connection to the file, which is made if it is not there; sqlite3.DatabaseError where it is damaged."""
        try:
            connection = self._open_for_writing()
        except OSError as problem:
            if problem.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise UserError(f"store: {self._folder} cannot be used: {problem.strerror}") from problem
            connection = self._open_read_only(problem)
        except sqlite3.OperationalError as problem:
            if _code(problem) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
            connection = self._open_read_only(problem)
        connection.text_factory = bytes  # damaged text need not be any
        try:
            self._check_format(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_for_writing(self) -> sqlite3.Connection:
        with FileLock(self._folder / "store.lock"):  # several processes would make it at once
            connection = sqlite3.connect(self._file, timeout=PATIENCE[0], isolation_level=None)
            try:
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
                connection.execute("PRAGMA synchronous = NORMAL")  # a process that dies loses nothing
                connection.execute("PRAGMA cell_size_check = ON")
                _begin(connection)
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
        return connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        names = connection.execute("SELECT name FROM format").fetchall()
        known = _FORMAT.fullmatch(names[0][0]) if len(names) == 1 and isinstance(names[0][0], bytes) else None
        if not known:
            raise sqlite3.DatabaseError("its format cannot be read")
        if int(known.group(1)) > FORMAT:
            raise UserError(
                f"store: {self._file} was written by a newer robust_eval (format {int(known.group(1))}, this one knows "
                f"{FORMAT}): update it, or choose another store.folder"
            )

    def _open_read_only(self, problem: Exception) -> sqlite3.Connection:
        if not self._file.is_file():
            raise UserError(f"store: nothing can be written to {self._folder} ({problem})") from problem
        log.warning("store: %s can only be read: answers that it lacks are kept by this run alone", self._file)
        self._read_only = True
        return sqlite3.connect(f"{self._file.resolve().as_uri()}?immutable=1", uri=True, isolation_level=None)

    def _select(self, keys: Sequence[bytes]) -> list[tuple[object, object, object]]:
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, value, checksum FROM entries WHERE key IN ({marks})"
        return self._connection.execute(query, keys).fetchall()

    def _use(self, keys: Iterable[bytes]) -> None:
        """Write down that these are in use; that they are is no reason to fail."""
        if not self._read_only:
            with suppress(sqlite3.Error), self._writing():
                self._connection.executemany(
                    "INSERT OR REPLACE INTO uses VALUES (?, ?)", [(key, time.time_ns()) for key in keys]
                )

    def _insert(self, rows: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        try:
            with self._writing():
                insert = "INSERT OR REPLACE INTO entries (key, value, checksum) VALUES (?, ?, ?)"
                self._connection.executemany(insert, rows)
                uses = [(key, time.time_ns()) for key, _, _ in rows]
                self._connection.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", uses)
        except sqlite3.OperationalError as problem:
            if _damaged(problem):
                raise
            raise UserError(
                f"store: {self._file} cannot be written: {problem}; what it took until then is kept, and the same "
                "command goes on from there"
            ) from problem

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: all of it or nothing."""
        _begin(self._connection)
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors have rolled it back already
                self._connection.execute("ROLLBACK")
            raise

    def _bytes(self) -> int:
        pages, free, size = (
            int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _evict(self) -> None:
        """Drop what was not used for longest, down to nine tenths of the limit."""
        surplus = self._bytes() - self._most_bytes * 9 // 10
        query = "SELECT key, length(value) FROM uses JOIN entries USING (key) WHERE used_at < ? ORDER BY used_at"
        dropped = []
        for key, length in self._connection.execute(query, (self._opened_at,)):
            if surplus <= 0:
                break
            dropped.append((key,))
            surplus -= length
        with self._writing():
            for table in ("entries", "uses"):
                self._connection.executemany(f"DELETE FROM {table} WHERE key = ?", dropped)
        self._connection.execute("PRAGMA incremental_vacuum").fetchall()
        if dropped:
            log.info("store: %d entries that were not used for longest made room", len(dropped))
        else:
            log.warning("store: what this run uses is more than store.most_megabytes; it is kept all the same")
            self._most_bytes = sys.maxsize

    def _mend(self, problem: sqlite3.DatabaseError) -> None:
        """Set a damaged file aside and go on with a new one that holds what can still be read."""
        if not _damaged(problem):
            raise UserError(f"store: {self._file} cannot be used: {problem}") from problem
        if self._read_only:
            raise UserError(f"store: {self._file} is damaged ({problem}) and can only be read") from problem
        if hasattr(self, "_connection"):
            self.close()
        aside = self._file.with_name(f"damaged-{time.time_ns()}.sqlite")
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._file.with_name(FILE + suffix).rename(aside.with_name(aside.name + suffix))
        self._connection = self._open()
        rescued = 0
        readable = _readable(aside)
        while rows := list(islice(readable, AT_ONCE)):
            self._insert(rows)
            rescued += len(rows)
        log.warning(
            "store: %s was damaged (%s); %d entries could be read, the rest is asked again; the damaged file is now %s",
            *(self._file, problem, rescued, aside.name),
        )


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, key=key[:64], digest_size=16).digest()


def _begin(connection: sqlite3.Connection) -> None:
    """Begin to write, when no other process does."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as problem:
        if _code(problem) != sqlite3.SQLITE_BUSY:
            raise
        log.info("store: another process is writing to it; waiting")
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE[1] * 1000}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE[0] * 1000}")


def _damaged(problem: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is broken, rather than locked, full or out of reach."""
    if not isinstance(problem, sqlite3.OperationalError):
        return True
    short = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
    return short or "no such" in str(problem) or "malformed" in str(problem)


def _code(problem: sqlite3.Error) -> int:
    return int(getattr(problem, "sqlite_errorcode", 0)) & 0xFF


def _readable(file: Path) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The intact entries of a damaged file: up to the first page that is broken, down to the last, and between."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:

        def entries(which: str, *values: int) -> Iterator[Sequence[Any]]:
            with suppress(sqlite3.Error):
                yield from connection.execute(f"SELECT id, key, value, checksum FROM entries {which}", values)

        first = last = 0
        for row in entries("ORDER BY id"):
            first = row[0]
            yield from _intact(*row[1:])
        for row in entries("WHERE id > ? ORDER BY id DESC", first):
            last = row[0]
            yield from _intact(*row[1:])
        for between in range(first + 1, min(last, first + MOST_BETWEEN)):
            for row in entries("WHERE id = ?", between):
                yield from _intact(*row[1:])


def _intact(key: object, value: object, checksum: object) -> Iterator[tuple[bytes, bytes, bytes]]:
    if isinstance(key, bytes) and isinstance(value, bytes) and checksum == _checksum(key, value):
        yield key, value, checksum
