"""Store in one SQLite file, with a checksum for each entry.

A damaged entry counts as missing, and is requested again. A damaged file is set aside, and the entries before and after
its damaged pages are copied to a new one.

Entries are in a single tree under numbers derived from their keys, so that no separate index can be damaged. The store
uses SQLite's rollback journal, not its write-ahead log: a log belongs to a file name, and another process may replace
the file.
"""

import errno
import hashlib
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from robust_eval.error import UserError, writing
from robust_eval.runtime.process import process_lock
from robust_eval.store.base import Entries, Merge, Store

log = logging.getLogger(__name__)

FORMAT = 1
"""Format of the file; a larger number is that of a newer program."""
SQLITE_TIMEOUT = 60
"""Timeout, in seconds, for another program that has the file open in SQLite."""
BATCH_SIZE = 500
"""Maximum number of entries in one query or transaction."""

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
    """Damage to a file that SQLite does not notice."""


def connect(file: Path | str, uri: bool = False) -> sqlite3.Connection:
    """Connect to an SQLite file; its texts are read as bytes, because damaged ones are not UTF-8."""
    connection = sqlite3.connect(file, timeout=SQLITE_TIMEOUT, isolation_level=None, uri=uri)
    connection.text_factory = bytes
    return connection


def prepare(connection: sqlite3.Connection) -> None:
    """Create the tables in a new SQLite file, whose creation may have been interrupted, and check it is writable."""
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    if pages <= 1 and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # writes the first page
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    connection.execute("PRAGMA cell_size_check = ON")
    with transaction(connection):
        pass


def written_by(connection: sqlite3.Connection) -> int | None:
    """Return the format of the SQLite file; None if it is unreadable."""
    names = connection.execute("SELECT name FROM format").fetchall()
    match = _FORMAT.fullmatch(names[0][0]) if len(names) == 1 and isinstance(names[0][0], bytes) else None
    return int(match.group(1)) if match else None


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all changes of the context to SQLite, or none."""
    try:
        connection.execute("BEGIN IMMEDIATE")  # an interrupt during it is raised after it
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have rolled it back already
            connection.execute("ROLLBACK")
        raise


def insert(connection: sqlite3.Connection, rows: Sequence[Row], used_at: int) -> None:
    """Insert entries into SQLite, all or none, with their time of use."""
    with transaction(connection):
        entries = [(number_of(key), key, value, checksum) for key, value, checksum in rows]
        connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", entries)
        connection.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", [(row[0], used_at) for row in entries])


def intact_row(key: object, value: object, checksum: object) -> Iterator[Row]:
    """Yield a row of the SQLite store if it is intact."""
    if isinstance(key, bytes) and isinstance(value, bytes) and checksum == checksum_of(key, value):
        yield key, value, checksum


def number_of(key: bytes) -> int:
    """Return the number of an entry in the SQLite store. Of two keys with the same number the later replaces the
    earlier; checksums distinguish them.
    """
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)


def checksum_of(key: bytes, value: bytes) -> bytes:
    """Return the checksum of a row of the SQLite file, of its key and value, so that no entry passes for another."""
    return hashlib.blake2b(value, key=key[:64], digest_size=16).digest()


def error_code(problem: sqlite3.Error, bits: int = 0xFF) -> int:
    """Return SQLite's code of an error, in more detail with more ``bits``; that of misuse for an error of Python."""
    return int(getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & bits


_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Errors of a damaged file; the last of its tables."""


def damaged(problem: sqlite3.DatabaseError | UnicodeDecodeError, read_only: bool) -> bool:
    """Return True if the SQLite file is damaged, rather than locked, full, unreachable or misused."""
    if isinstance(problem, UnicodeDecodeError | DamagedError):
        return True
    if error_code(problem) in _DAMAGE or error_code(problem, 0xFFFF) == sqlite3.SQLITE_IOERR_SHORT_READ:
        return True
    return error_code(problem) == sqlite3.SQLITE_READONLY and not read_only  # of a damaged header


def rebuild(file: Path, problem: Exception) -> None:
    """Replace the damaged SQLite file by a new one with the readable entries."""
    new = file.parent / "repaired.sqlite"
    new.unlink(missing_ok=True)
    rescued = 0
    try:
        with closing(connect(new)) as connection:
            prepare(connection)
            readable = _readable(file)
            while rows := list(islice(readable, BATCH_SIZE)):
                insert(connection, rows, used_at=0)
                rescued += len(rows)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    aside = file.parent / f"damaged-{time.time_ns()}.sqlite"
    with suppress(FileNotFoundError):  # SQLite would replay the old journal into the new file
        file.with_name(f"{file.name}-journal").rename(aside.with_name(f"{aside.name}-journal"))
    with suppress(OSError):  # some file systems have no links; the damaged file is then lost
        os.link(file, aside)
    os.replace(new, file)
    log.warning(
        "store: %s was damaged (%s): %d entries were recovered, the others will be requested again; the damaged file "
        "is %s",
        *(file, problem, rescued, aside.name),
    )


def _readable(file: Path) -> Iterator[Row]:
    """Yield the intact entries before the first damaged page of an SQLite file, and those after the last one."""
    with suppress(*ERRORS), closing(connect(file)) as connection:
        connection.execute("PRAGMA writable_schema = ON")  # reads a truncated file
        for order in ("ASC", "DESC"):
            with suppress(*ERRORS):
                for row in connection.execute(f"SELECT key, value, checksum FROM entries ORDER BY id {order}"):
                    yield from intact_row(*row)
                return


FILE = "answers.sqlite"
LOCK_TIMEOUTS = (2, 600)
"""Timeouts, in seconds, for another process that writes: before and after a log message."""
RESUME = "stored answers are kept: repeat the command to resume"
LOCKS = 4096
"""Number of lock files for processes that request the same answers."""


def _acquire(lock: FileLock, timeouts: tuple[float, float], message: str) -> None:
    """Acquire a lock of the SQLite store; Timeout after the two ``timeouts``, between which the message is logged."""
    try:
        lock.acquire(timeout=timeouts[0])
    except Timeout:
        log.info("store: %s", message)
        lock.acquire(timeout=timeouts[1])


Result = TypeVar("Result")


@dataclass
class SqliteStore(Store):
    """store=sqlite: a file that all runs share, concurrent ones included."""

    folder: str
    """Folder of the store; on a local disk if several processes use it concurrently."""
    max_size_mb: int = 4096
    """Maximum size in MB; beyond it, the least recently used entries are dropped, except those of this run."""

    def __post_init__(self) -> None:
        if self.max_size_mb < 1:
            raise ValueError(f"max_size_mb must be at least 1, not {self.max_size_mb}")

    def exists(self) -> bool:
        return Path(self.folder).exists()

    @contextmanager
    def open(self) -> Iterator[Entries]:
        """Open the SQLite file, created or repaired if necessary; close it at the end."""
        with closing(SqliteEntries(Path(self.folder), self.max_size_mb * 2**20)) as entries:
            yield entries


class SqliteEntries(Entries):
    """The entries of an SQLite file; see :class:`robust_eval.store.base.Entries`."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._file = folder / FILE
        self._max_bytes = max_bytes
        self._over_full = False
        self._opened_at = time.time_ns()
        self._read_only = False
        self._lock = process_lock(folder / "store.lock")
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        with writing("the store", folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._repairing(self._reopen)

    def close(self) -> None:
        """Close the connection to SQLite, if any."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        remaining = iter(keys)
        while some := list(islice(remaining, BATCH_SIZE)):
            with self._locked():
                rows = self._repairing(lambda some=some: self._select(some))  # type: ignore[misc]
            yield from ((key, rows[key]) for key in some if key in rows)

    def put(self, entries: Mapping[bytes, bytes], merge: Merge | None = None) -> None:
        """Write the entries in one transaction, then evict old ones beyond the maximum size; nothing if read-only."""
        if self._read_only or not entries:
            return
        with self._locked():
            if merge is not None:
                stored = self.get(list(entries))
                entries = {**entries, **{key: merge(key, before, entries[key]) for key, before in stored}}
            rows = [(key, value, checksum_of(key, value)) for key, value in entries.items()]
            self._repairing(lambda: insert(self._connected, rows, time.time_ns()))
            if not self._over_full and self._bytes() > self._max_bytes:
                self._repairing(self._evict)

    @contextmanager
    def lock_keys(self, keys: Iterable[bytes]) -> Iterator[None]:
        """Hold the lock file of this set of keys, one of :data:`LOCKS`."""
        if self._read_only:
            yield
            return
        digest = hashlib.blake2b(b"".join(sorted(keys)), digest_size=4).digest()
        locks = self._folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = process_lock(locks / f"{int.from_bytes(digest) % LOCKS:03x}")
        try:
            _acquire(lock, (1, -1), "another process is sending the same requests; waiting for its answers")
            yield
        finally:
            lock.release()

    def size(self) -> str:
        maximum = f"of {self._max_bytes / 2**20:,.0f} MB"
        return f"{self._repairing(self._bytes) / 2**20:,.1f} MB {maximum} in {self._folder}"

    @property
    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("the store is closed")
        return self._connection

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of all processes; reopen the SQLite file if another process has replaced it."""
        if self._read_only:
            yield
            return
        try:
            try:
                _acquire(self._lock, LOCK_TIMEOUTS, "waiting for another process that is using it")
            except Timeout as problem:
                reason = f"another process has locked it for {LOCK_TIMEOUTS[1]} s"
                raise UserError(f"store: {reason}; {RESUME}") from problem
            if self._connection is not None:
                try:
                    self._connection.rollback()  # of a transaction that an interrupt has left
                    stale = self._replaced()
                except ERRORS:
                    stale = True
                if stale:
                    self._repairing(self._reopen)
            yield
        finally:
            self._lock.release()

    def _repairing(self, work: Callable[[], Result]) -> Result:
        """Do the work, again after repairing a damaged SQLite file; UserError if that fails."""
        try:
            return work()
        except ERRORS as problem:
            first = problem
        try:
            self._repair(first)
            return work()
        except ERRORS as problem:
            raise UserError(f"store: {self._file} cannot be used: {problem}; {RESUME}") from problem

    def _replaced(self) -> bool:
        """Return True if another process has repaired or removed the SQLite file."""
        try:
            return self._file.stat().st_ino != self._inode
        except FileNotFoundError:
            return True

    def _reopen(self) -> None:
        """Connect to the SQLite file, created if missing; raises one of ERRORS if it is damaged."""
        self.close()
        self._connection = None
        try:
            with self._locked():
                self._connection = connect(self._file)
                self._inode = self._file.stat().st_ino
                prepare(self._connection)
        except (OSError, sqlite3.OperationalError) as problem:
            if not self._is_read_only(problem):
                if isinstance(problem, OSError):
                    raise UserError(f"store: {self._folder} cannot be used: {problem.strerror}") from problem
                raise
            self._open_read_only(problem)
        written = written_by(self._connected)
        if written is None:
            raise DamagedError("its format is unreadable")
        if written > FORMAT:
            raise UserError(
                f"store: {self._file} was written by a newer robust_eval (format {written}, this version supports "
                f"{FORMAT}): update robust_eval, or set store.folder to another folder"
            )

    def _is_read_only(self, problem: OSError | sqlite3.OperationalError) -> bool:
        if isinstance(problem, OSError):
            return problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        writable = os.access(self._folder, os.W_OK) and os.access(self._file, os.W_OK)
        return error_code(problem) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and not writable

    def _open_read_only(self, problem: Exception) -> None:
        if not self._file.is_file() or not self._file.stat().st_size:  # its creation may have been interrupted
            raise UserError(
                f"store: {self._folder} is not writable ({problem}) and contains no answers: set store.folder to "
                "another folder"
            ) from problem
        log.warning("store: %s is read-only: new answers are not stored", self._file)
        self._read_only = True
        self.close()
        uri = f"{self._file.resolve().as_uri()}?immutable=1"
        self._connection = connect(uri, uri=True)

    def _select(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the entries of these keys from SQLite, and record their use."""
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, value, checksum FROM entries WHERE id IN ({marks})"
        rows = self._connected.execute(query, [number_of(key) for key in keys]).fetchall()
        intact = {key: value for row in rows for key, value, _ in intact_row(*row)}
        if self._read_only:
            if len(intact) < len(rows):
                log.warning("store: %d damaged entries are requested again", len(rows) - len(intact))
            return intact
        if len(intact) < len(rows):  # writing over these would lose their neighbours
            raise DamagedError(f"{len(rows) - len(intact)} entries are damaged")
        uses = [(number_of(key), time.time_ns()) for key in intact]
        with transaction(self._connected):
            self._connected.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", uses)
        return intact

    def _bytes(self) -> int:
        pages, free, size = (
            int(self._connected.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _evict(self) -> None:
        """Evict the least recently used entries, down to nine tenths of the limit."""
        surplus = self._bytes() - self._max_bytes * 9 // 10
        query = (
            "SELECT id, length(value) FROM entries LEFT JOIN uses USING (id) "
            "WHERE coalesce(used_at, 0) < ? ORDER BY coalesce(used_at, 0)"
        )
        dropped = []
        for number, length in self._connected.execute(query, (self._opened_at,)):
            if surplus <= 0:
                break
            dropped.append((number,))
            surplus -= length
        if not dropped:
            log.warning("store: the entries of this run exceed store.max_size_mb; none is dropped")
            self._over_full = True
            return
        with transaction(self._connected):
            for table in ("entries", "uses"):
                self._connected.executemany(f"DELETE FROM {table} WHERE id = ?", dropped)
        self._connected.executescript("PRAGMA incremental_vacuum")
        log.info("store: the %d least recently used entries were dropped", len(dropped))

    def _repair(self, problem: sqlite3.DatabaseError | UnicodeDecodeError) -> None:
        """Replace a damaged SQLite file by a new one with its readable entries; UserError if that fails."""
        if not damaged(problem, self._read_only):
            raise UserError(f"store: {self._file} cannot be used: {problem}; {RESUME}") from problem
        if self._read_only:
            raise UserError(
                f"store: {self._file} is damaged ({problem}) and read-only: set store.folder to another folder"
            ) from problem
        inode = self._inode
        with self._locked():
            if self._inode == inode and not self._replaced():  # otherwise another process has repaired it
                try:
                    rebuild(self._file, problem)
                except (OSError, sqlite3.Error) as second:
                    raise UserError(f"store: {self._file} is damaged and cannot be repaired: {second}") from second
            self._reopen()
