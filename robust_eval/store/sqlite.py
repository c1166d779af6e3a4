"""A store in one SQLite file, with a checksum for each entry.

Nothing that is damaged is given out: it counts as missing, and what is missing is asked again. A file that is damaged
itself is set aside, and what can still be read of it goes into a new one.

Entries lie in a single tree under numbers taken from their keys, so that there is no index which could be damaged by
itself. SQLite's rollback journal is used, and not its write-ahead log, which belongs to the name of a file and not to
the file: it would not survive that another process puts a mended file in its place.
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
from typing import Any, TypeVar

from filelock import Timeout

from robust_eval.error import UserError
from robust_eval.runtime.locks import kept_lock
from robust_eval.store.base import PLACES, Entries, tell_of_others

log = logging.getLogger(__name__)

FORMAT = 1
"""Of the file; a greater number than this was written by a newer program."""
FILE = PLACES["sqlite"]
PATIENCE = (2, 600)
"""Seconds that a process waits until another has written: in silence, and then after saying so."""
FOREIGN = 60
"""Seconds that is waited for another program that has the file open in SQLite."""
AT_ONCE = 500
"""Entries in one query."""
LOCKS = 4096
"""Files by which processes lock one another out that ask for the same."""

_FORMAT = re.compile(rb"robust_eval answers, format (\d+)")
_TABLES = f"""
    CREATE TABLE format (name TEXT NOT NULL);
    INSERT INTO format VALUES ('robust_eval answers, format {FORMAT}');
    CREATE TABLE entries (id INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL, checksum BLOB NOT NULL);
    CREATE TABLE uses (id INTEGER PRIMARY KEY, used_at INTEGER NOT NULL);
"""
_COLUMNS = {"format": "name", "entries": "id, key, value, checksum", "uses": "id, used_at"}
"""Of the tables."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Errors of a file that is damaged."""
_PERHAPS_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FULL)
"""Errors of a file whose tables cannot be read any more, or which says that it cannot grow, and of a mistake, or a full
disk."""
_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter where SQLite quotes from a damaged file


class DamagedError(sqlite3.DatabaseError):
    """Damage that is not SQLite's to see."""


Row = tuple[bytes, bytes, bytes]
"""Key, value, checksum."""
Result = TypeVar("Result")


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
        """See :class:`robust_eval.store.base.Store`."""
        entries = SqliteEntries(Path(self.folder), self.most_megabytes * 2**20)
        tell_of_others(Path(self.folder), "sqlite")
        try:
            yield entries
        finally:
            entries.close()

    def again(self) -> str:
        """See :class:`robust_eval.store.base.Store`."""
        return "the same command goes on with what is in the store"


class SqliteEntries:
    """The entries of an SQLite file; see :class:`robust_eval.store.base.Entries`."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._file = folder / FILE
        self._most_bytes = most_bytes
        self._over_full = False
        self._opened_at = time.time_ns()
        self._read_only = False
        self._lock = kept_lock(folder / "store.lock")
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UserError(f"store: the folder {folder} cannot be made ({problem.strerror})") from problem
        self._whole(self._reopen)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """See :class:`robust_eval.store.base.Entries`."""
        remaining = iter(keys)
        while some := list(islice(remaining, AT_ONCE)):
            with self._alone():
                found = self._whole(lambda some=some: self._select(some))  # type: ignore[misc]
            yield from ((key, found[key]) for key in some if key in found)

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """See :class:`robust_eval.store.base.Entries`."""
        if self._read_only or not entries:
            return
        rows = [(key, value, _checksum(key, value)) for key, value in entries.items()]
        with self._alone():
            self._whole(lambda: _insert(self._connected, rows, time.time_ns()))
            if not self._over_full and self._bytes() > self._most_bytes:
                self._whole(self._evict)

    @contextmanager
    def asking(self, keys: Iterable[bytes]) -> Iterator[None]:
        """See :class:`robust_eval.store.base.Entries`."""
        if self._read_only:
            yield
            return
        digest = hashlib.blake2b(b"".join(sorted(keys)), digest_size=4).digest()
        locks = self._folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = kept_lock(locks / f"{int.from_bytes(digest) % LOCKS:03x}")
        try:
            try:
                lock.acquire(timeout=1)
            except Timeout:
                log.info("store: another process is asking the same; waiting for its answers")
                lock.acquire()
            yield
        finally:
            lock.release()

    def size(self) -> str:
        """See :class:`robust_eval.store.base.Entries`."""
        most = f"of at most {self._most_bytes / 2**20:,.0f} MB"
        return f"{self._whole(self._bytes) / 2**20:,.1f} MB {most} in {self._folder}"

    @property
    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("the store is closed")
        return self._connection

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While this is held no other process touches the file; if one has put another in its place, that is opened."""
        if self._read_only:
            yield
            return
        try:
            self._acquire()
            if self._connection is not None:
                self._whole(self._settle)
                if self._replaced():
                    self._whole(self._reopen)
            yield
        finally:
            self._lock.release()

    def _settle(self) -> None:
        """End a transaction that is open still: an interrupt came at a moment at which nobody could end it."""
        if self._connected.in_transaction:
            self._connected.rollback()

    def _acquire(self) -> None:
        try:
            self._lock.acquire(timeout=PATIENCE[0])
        except Timeout:
            log.info("store: another process is using it; waiting")
            try:
                self._lock.acquire(timeout=PATIENCE[1])
            except Timeout as problem:
                waited = f"another process has been using it for {PATIENCE[1]} s"
                raise UserError(f"store: {waited}; {self._goes_on()}") from problem

    def _whole(self, work: Callable[[], Result]) -> Result:
        """Do the work, once more if the file turns out to be damaged and is mended; UserError where that fails."""
        try:
            return work()
        except _ERRORS as problem:
            first = problem
        try:
            self._mend(first)
            return work()
        except _ERRORS as problem:
            raise UserError(f"store: {self._file} cannot be used: {problem}; {self._goes_on()}") from problem

    def _goes_on(self) -> str:
        return "what it took until then is kept, and the same command goes on from there"

    def _replaced(self) -> bool:
        """Tell whether the file is no longer the one that was opened: another process has mended or removed it."""
        try:
            return self._file.stat().st_ino != self._inode
        except FileNotFoundError:
            return True

    def _reopen(self) -> None:
        """Connect to the file, which is made if it is not there; one of _ERRORS where it is damaged."""
        self.close()
        self._connection = None
        try:
            with self._alone():
                self._connection = sqlite3.connect(self._file, timeout=FOREIGN, isolation_level=None)
                self._connection.text_factory = bytes  # damaged text need not be any
                self._inode = self._file.stat().st_ino
                _prepare(self._connection)
        except (OSError, sqlite3.OperationalError) as problem:
            if not self._may_only_read(problem):
                if isinstance(problem, OSError):
                    raise UserError(f"store: {self._folder} cannot be used: {problem.strerror}") from problem
                raise
            self._open_read_only(problem)
        names = self._connected.execute("SELECT name FROM format").fetchall()
        known = _FORMAT.fullmatch(names[0][0]) if len(names) == 1 and isinstance(names[0][0], bytes) else None
        if not known:
            raise DamagedError("its format cannot be read")
        if int(known.group(1)) > FORMAT:
            raise UserError(
                f"store: {self._file} was written by a newer robust_eval (format {int(known.group(1))}, this one knows "
                f"{FORMAT}): update it, or choose another store.folder"
            )

    def _may_only_read(self, problem: OSError | sqlite3.OperationalError) -> bool:
        if isinstance(problem, OSError):
            return problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        writable = os.access(self._folder, os.W_OK) and os.access(self._file, os.W_OK)
        return _code(problem) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and not writable

    def _open_read_only(self, problem: Exception) -> None:
        if not self._file.is_file():
            raise UserError(f"store: nothing can be written to {self._folder} ({problem})") from problem
        log.warning("store: %s can only be read: answers that it lacks are kept by this run alone", self._file)
        self._read_only = True
        self.close()
        uri = f"{self._file.resolve().as_uri()}?immutable=1"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        self._connection.text_factory = bytes

    def _select(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the entries of these keys, which are noted as in use."""
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, value, checksum FROM entries WHERE id IN ({marks})"
        found = self._connected.execute(query, [_number(key) for key in keys]).fetchall()
        intact = {key: value for row in found for key, value, _ in _intact(*row)}
        if self._read_only:
            if len(intact) < len(found):
                log.warning("store: %d entries are damaged; what they held is asked again", len(found) - len(intact))
            return intact
        if len(intact) < len(found):  # to write in the place of these would lose their neighbours
            raise DamagedError(f"{len(found) - len(intact)} entries are damaged")
        uses = [(_number(key), time.time_ns()) for key in intact]
        with _transaction(self._connected):
            self._connected.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", uses)
        return intact

    def _bytes(self) -> int:
        pages, free, size = (
            int(self._connected.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _evict(self) -> None:
        """Drop what was not used for longest, down to nine tenths of the limit."""
        surplus = self._bytes() - self._most_bytes * 9 // 10
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
            log.warning("store: what this run uses is more than store.most_megabytes; it is kept all the same")
            self._over_full = True
            return
        with _transaction(self._connected):
            for table in ("entries", "uses"):
                self._connected.executemany(f"DELETE FROM {table} WHERE id = ?", dropped)
        self._connected.executescript("PRAGMA incremental_vacuum")
        log.info("store: %d entries that were not used for longest made room", len(dropped))

    def _mend(self, problem: sqlite3.DatabaseError | UnicodeDecodeError) -> None:
        """Go on with a new file that holds what can still be read of this one; UserError where that is not to be."""
        if not self._damaged(problem):
            raise UserError(f"store: {self._file} cannot be used: {problem}; {self._goes_on()}") from problem
        if self._read_only:
            raise UserError(f"store: {self._file} is damaged ({problem}) and can only be read") from problem
        inode = self._inode
        with self._alone():
            if self._inode == inode and not self._replaced():  # else another process has mended it
                try:
                    self._rebuild(problem)
                except (OSError, sqlite3.Error) as second:
                    raise UserError(f"store: {self._file} is damaged, and cannot be mended: {second}") from second
            self._reopen()

    def _damaged(self, problem: sqlite3.DatabaseError | UnicodeDecodeError) -> bool:
        """Tell whether the file itself is broken, rather than locked, full, out of reach, or used in a wrong way."""
        if isinstance(problem, UnicodeDecodeError | DamagedError):
            return True
        if _code(problem) in _DAMAGE or _code(problem, 0xFFFF) == sqlite3.SQLITE_IOERR_SHORT_READ:
            return True
        if _code(problem) == sqlite3.SQLITE_READONLY and not self._read_only:  # a header may be damaged to say so
            return True
        return _code(problem) in _PERHAPS_DAMAGE and not self._sound()

    def _sound(self) -> bool:
        """Tell whether SQLite, asked anew, finds nothing wrong with the file."""
        try:
            with closing(sqlite3.connect(self._file, timeout=FOREIGN, isolation_level=None)) as connection:
                connection.text_factory = bytes
                for name, columns in _COLUMNS.items():
                    connection.execute(f"SELECT {columns} FROM {name} LIMIT 1").fetchall()
                return bool(connection.execute("PRAGMA quick_check(1)").fetchall() == [(b"ok",)])
        except UnicodeDecodeError:
            return False
        except sqlite3.Error as problem:
            return _code(problem) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    def _rebuild(self, problem: Exception) -> None:
        """Put a new file in the place of the damaged one, once it holds all that is left."""
        new = self._folder / "mended.sqlite"
        new.unlink(missing_ok=True)
        rescued = 0
        try:
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                _prepare(connection)
                readable = _readable(self._file)
                while rows := list(islice(readable, AT_ONCE)):
                    _insert(connection, rows, used_at=0)
                    rescued += len(rows)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        aside = self._folder / f"damaged-{time.time_ns()}.sqlite"
        with suppress(FileNotFoundError):  # it belongs to the damaged file, and would be played back into the new one
            self._file.with_name(f"{FILE}-journal").rename(aside.with_name(f"{aside.name}-journal"))
        with suppress(OSError):  # some file systems have no links; then it is gone
            os.link(self._file, aside)
        os.replace(new, self._file)
        log.warning(
            "store: %s was damaged (%s); %d entries could be read, the rest is asked again; the damaged file is now %s",
            *(self._file, problem, rescued, aside.name),
        )


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, key=key[:64], digest_size=16).digest()


def _number(key: bytes) -> int:
    """Return the number of an entry; where two keys have the same, the later one takes the place, and the checksum
    tells them apart.
    """
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)


def _intact(key: object, value: object, checksum: object) -> Iterator[Row]:
    """Yield the row, if it is what was once written."""
    if isinstance(key, bytes) and isinstance(value, bytes) and checksum == _checksum(key, value):
        yield key, value, checksum


def _code(problem: sqlite3.Error, bits: int = 0xFF) -> int:
    """Return what SQLite calls an error; with more ``bits`` more exactly. One of Python's own is a mistake."""
    return int(getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & bits


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables in a new file, and make sure that it can be written."""
    if _new(connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # writes the first page
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    connection.execute("PRAGMA cell_size_check = ON")
    with _transaction(connection):
        pass


def _new(connection: sqlite3.Connection) -> bool:
    """Tell whether nothing was ever put into a file: whoever made it may have been stopped before it had tables."""
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    return pages <= 1 and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all of it or nothing."""
    try:
        connection.execute("BEGIN IMMEDIATE")  # an interrupt that comes meanwhile is raised when it has begun
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have rolled it back already
            connection.execute("ROLLBACK")
        raise


def _insert(connection: sqlite3.Connection, rows: Sequence[Row], used_at: int) -> None:
    with _transaction(connection):
        entries = [(_number(key), key, value, checksum) for key, value, checksum in rows]
        connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", entries)
        connection.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", [(row[0], used_at) for row in entries])


def _readable(file: Path) -> Iterator[Row]:
    """Yield the intact entries of a damaged file, as far as they can be reached."""
    with (
        suppress(sqlite3.Error, UnicodeDecodeError),
        closing(sqlite3.connect(file, isolation_level=None)) as connection,
    ):
        connection.text_factory = bytes
        connection.execute("PRAGMA writable_schema = ON")  # reads a file that is shorter than its head says

        def entries(low: int, high: int, order: str) -> Iterator[tuple[Any, ...]]:
            query = f"SELECT id, key, value, checksum FROM entries WHERE id BETWEEN ? AND ? ORDER BY id {order}"
            with suppress(sqlite3.Error, UnicodeDecodeError):
                yield from (row for row in connection.execute(query, (low, high)) if isinstance(row[0], int))

        narrow = 2**64 // (4 * max(1, file.stat().st_size // 4096))  # less than a page's share of all numbers
        ranges = [(-(2**63), 2**63 - 1)]
        while ranges:
            low, high = ranges.pop()
            first, last = low, high
            for number, *row in entries(low, high, "ASC"):  # up to the first page that is broken
                first = min(number + 1, high)
                yield from _intact(*row)
            for number, *row in entries(first, high, "DESC"):  # down to the last
                last = max(number - 1, low)
                yield from _intact(*row)
            if first < last and ((first, last) != (low, high) or high - low > narrow):  # and between, if there is any
                middle = (first + last) // 2
                ranges += [(first, middle), (middle + 1, last)]
