"""Store of Parquet files, one for each block of answers, for shared disks, on which SQLite's locks are unreliable.

Files are only added, atomically. Their names are hashes of their keys, so that a block written twice is stored once.
"""

import errno
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from robust_eval.error import UserError, writing
from robust_eval.store.base import Entries, Merge, Store

log = logging.getLogger(__name__)

FOLDER = "blocks"
"""Folder of the files in the folder of the store."""
_SCHEMA = pa.schema([pa.field(name, pa.binary(), nullable=False) for name in ("key", "value", "checksum")])


@dataclass
class ParquetStore(Store):
    """store=parquet: blocks of answers that runs on several machines share."""

    folder: str
    """Folder of the store; may be on a network disk."""

    def exists(self) -> bool:
        return Path(self.folder).exists()

    @contextmanager
    def open(self) -> Iterator[Entries]:
        """Create the folder of Parquet files, if it is missing, and return its entries."""
        folder = Path(self.folder) / FOLDER
        with writing("the store", folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield ParquetEntries(folder)


class ParquetEntries(Entries):
    """The entries of a folder of Parquet files; see :class:`robust_eval.store.base.Entries`.

    If a key is in several files, the newest counts. Damaged files and entries count as missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # modification times of the files that were read
        self._files: dict[bytes, Path] = {}
        self._read_only = False

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the intact entries of these keys, after a look for new Parquet files."""
        self._read_new_keys()
        by_file: dict[Path, set[bytes]] = {}
        for key in keys:
            if key in self._files:
                by_file.setdefault(self._files[key], set()).add(key)
        for file, keys_of_file in by_file.items():
            for key, value, checksum in _rows(file, ["key", "value", "checksum"]):
                if key in keys_of_file and checksum == _checksum(key, value):
                    yield key, value

    def put(self, entries: Mapping[bytes, bytes], merge: Merge | None = None) -> None:
        """Write the entries as one Parquet file: under a temporary name, synced, then renamed. Nothing is merged."""
        if self._read_only or not entries:
            return
        columns = zip(*((key, value, _checksum(key, value)) for key, value in entries.items()), strict=True)
        table = pa.table(dict(zip(_SCHEMA.names, columns, strict=True)), schema=_SCHEMA)
        name = hashlib.blake2b(b"".join(sorted(entries)), digest_size=16).hexdigest()
        partial = self._folder / f"{name}.{uuid4().hex}.partial"
        try:
            with open(partial, "xb") as file:
                pq.write_table(table, file, compression="none")  # the values are compressed
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self._folder / f"{name}.parquet")
        except OSError as problem:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            if self._files and problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                log.warning("store: %s is read-only: new answers are not stored", self._folder)
                self._read_only = True
                return
            reason = f"{self._folder} is not writable ({problem.strerror})"
            raise UserError(f"store: {reason}: free space, or set store.folder to another folder") from problem

    def lock_keys(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        """Lock nothing in the Parquet store: no lock is visible to all machines."""
        return nullcontext()

    def size(self) -> str:
        files = list(self._folder.glob("*.parquet"))
        return (
            f"{sum(file.stat().st_size for file in files) / 2**20:,.1f} MB in {len(files):,} blocks in {self._folder}"
        )

    def _read_new_keys(self) -> None:
        """Read the keys of new Parquet files, the oldest first."""
        times = {file: file.stat().st_mtime_ns for file in self._folder.glob("*.parquet")}
        for file in sorted(times, key=lambda file: (times[file], file)):
            if self._read.get(file) != times[file]:
                self._files |= dict.fromkeys((key for (key,) in _rows(file, ["key"])), file)
        self._read = times


def _rows(file: Path, columns: list[str]) -> Iterator[tuple[bytes, ...]]:
    """Yield the rows of a Parquet file; none if it is damaged."""
    try:
        with pq.ParquetFile(file) as opened:
            table = opened.read(columns=columns).select(columns)
    except (OSError, pa.ArrowException, KeyError, UnicodeDecodeError):  # the latter two of a name of a column
        return
    yield from zip(*(table[name].to_pylist() for name in columns), strict=True)


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(key + value, digest_size=8).digest()
