"""A store in one SQLite file, with a checksum for each entry.

Nothing that is damaged is given out: it counts as missing, and what is missing is asked again. A file that is damaged
itself is set aside, and what can still be read of it goes into a new one.
"""

import errno
import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from filelock import Timeout

from robust_eval.error import UserError
from robust_eval.runtime.process import process_lock
from robust_eval.store.base import PLACES, Entries, tell_of_others
from robust_eval.store.sqlite_file import (
    AT_ONCE,
    ERRORS,
    FORMAT,
    DamagedError,
    checksum_of,
    connect,
    damaged,
    error_code,
    insert,
    intact_row,
    number_of,
    prepare,
    rebuild,
    transaction,
    written_by,
)

log = logging.getLogger(__name__)

FILE = PLACES["sqlite"]
PATIENCE = (2, 600)
"""Seconds that a process waits until another has written: in silence, and then after saying so."""
LOCKS = 4096
"""Files by which processes lock one another out that ask for the same."""

Result = TypeVar("Result")


@dataclass
class SqliteStore:
    """store=sqlite: a file that all runs share, also at the same time."""

    folder: str
    """Where it lies; must be on a disk of this machine for several processes to use it at once."""
    max_size_mb: int = 4096
    """Beyond this the entries that were not used for longest are dropped, but none that this run uses."""

    def __post_init__(self) -> None:
        if self.max_size_mb < 1:
            raise ValueError(f"max_size_mb must be at least 1, not {self.max_size_mb}")

    @contextmanager
    def open(self) -> Iterator[Entries]:
        """See :class:`robust_eval.store.base.Store`."""
        entries = SqliteEntries(Path(self.folder), self.max_size_mb * 2**20)
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
        self._lock = process_lock(folder / "store.lock")
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
        rows = [(key, value, checksum_of(key, value)) for key, value in entries.items()]
        with self._alone():
            self._whole(lambda: insert(self._connected, rows, time.time_ns()))
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
        lock = process_lock(locks / f"{int.from_bytes(digest) % LOCKS:03x}")
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
        except ERRORS as problem:
            first = problem
        try:
            self._mend(first)
            return work()
        except ERRORS as problem:
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
        """Connect to the file, which is made if it is not there; one of ERRORS where it is damaged."""
        self.close()
        self._connection = None
        try:
            with self._alone():
                self._connection = connect(self._file)
                self._inode = self._file.stat().st_ino
                prepare(self._connection)
        except (OSError, sqlite3.OperationalError) as problem:
            if not self._may_only_read(problem):
                if isinstance(problem, OSError):
                    raise UserError(f"store: {self._folder} cannot be used: {problem.strerror}") from problem
                raise
            self._open_read_only(problem)
        written = written_by(self._connected)
        if written is None:
            raise DamagedError("its format cannot be read")
        if written > FORMAT:
            raise UserError(
                f"store: {self._file} was written by a newer robust_eval (format {written}, this one knows {FORMAT}): "
                "update it, or choose another store.folder"
            )

    def _may_only_read(self, problem: OSError | sqlite3.OperationalError) -> bool:
        if isinstance(problem, OSError):
            return problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        writable = os.access(self._folder, os.W_OK) and os.access(self._file, os.W_OK)
        return error_code(problem) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and not writable

    def _open_read_only(self, problem: Exception) -> None:
        if not self._file.is_file() or not self._file.stat().st_size:  # its creation may have been interrupted
            raise UserError(
                f"store: {self._folder} is not writable ({problem}) and holds no answers: set store.folder to another "
                "folder"
            ) from problem
        log.warning("store: %s can only be read: answers that it lacks are kept by this run alone", self._file)
        self._read_only = True
        self.close()
        uri = f"{self._file.resolve().as_uri()}?immutable=1"
        self._connection = connect(uri, uri=True)

    def _select(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the entries of these keys, which are noted as in use."""
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, value, checksum FROM entries WHERE id IN ({marks})"
        found = self._connected.execute(query, [number_of(key) for key in keys]).fetchall()
        intact = {key: value for row in found for key, value, _ in intact_row(*row)}
        if self._read_only:
            if len(intact) < len(found):
                log.warning("store: %d entries are damaged; what they held is asked again", len(found) - len(intact))
            return intact
        if len(intact) < len(found):  # to write in the place of these would lose their neighbours
            raise DamagedError(f"{len(found) - len(intact)} entries are damaged")
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
            log.warning("store: what this run uses is more than store.max_size_mb; it is kept all the same")
            self._over_full = True
            return
        with transaction(self._connected):
            for table in ("entries", "uses"):
                self._connected.executemany(f"DELETE FROM {table} WHERE id = ?", dropped)
        self._connected.executescript("PRAGMA incremental_vacuum")
        log.info("store: %d entries that were not used for longest made room", len(dropped))

    def _mend(self, problem: sqlite3.DatabaseError | UnicodeDecodeError) -> None:
        """Go on with a new file that holds what can still be read of this one; UserError where that is not to be."""
        if not damaged(self._file, problem, self._read_only):
            raise UserError(f"store: {self._file} cannot be used: {problem}; {self._goes_on()}") from problem
        if self._read_only:
            raise UserError(f"store: {self._file} is damaged ({problem}) and can only be read") from problem
        inode = self._inode
        with self._alone():
            if self._inode == inode and not self._replaced():  # else another process has mended it
                try:
                    rebuild(self._file, problem)
                except (OSError, sqlite3.Error) as second:
                    raise UserError(f"store: {self._file} is damaged, and cannot be mended: {second}") from second
            self._reopen()
