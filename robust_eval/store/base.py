"""Protocol of stores, which map keys to bytes: answers are stored as they arrive, and never requested again."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

PLACES = {"sqlite": "answers.sqlite", "parquet": "blocks"}
"""Name of the entries in the folder of each kind of store."""


class Store(Protocol):
    """Store of answers; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager["Entries"]:
        """Open the entries for reading and writing; UserError if that fails."""

    def again(self) -> str:
        """Return in words how a stopped run is resumed."""
        return "the same command goes on with what is in the store"


class Entries(Protocol):
    """Entries of an open store."""

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the stored ones among the keys with their values, in any order."""

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Store all of these entries or none, in place of earlier values, and wait until they are on the disk."""

    def lock_keys(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        """Lock these keys: another process with one of them waits, and then finds it stored."""

    def size(self) -> str:
        """Return the size and the folder of the store in words."""


def tell_of_others(folder: Path, kind: str) -> None:
    """Log the stores of other kinds in a folder, which are not read."""
    for other, place in PLACES.items():
        if other != kind and (folder / place).exists():
            log.info("store: %s is not read; store=%s does", folder / place, other)


@dataclass
class NoStore(Store):
    """store=none: all requests are sent, and a stopped run keeps nothing."""

    def open(self) -> AbstractContextManager[Entries]:
        """Return no entries."""
        return nullcontext(_NoEntries())

    def again(self) -> str:
        return "nothing was kept (store=none)"


class _NoEntries:
    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def put(self, entries: Mapping[bytes, bytes]) -> None: ...

    def lock_keys(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        return nullcontext()

    def size(self) -> str:
        return "none: nothing was kept"
