"""Protocol of stores, which map keys to bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

Merge = Callable[[bytes, bytes, bytes], bytes]
"""Function of a key, its stored value and its new value that returns the value to store."""


class Store(Protocol):
    """Store of answers; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager["Entries"]:
        """Open the store's entries for reading and writing; UserError if that fails."""

    def exists(self) -> bool:
        """Return True if the store has entries to open; False before its first use, which creates it."""
        return True

    def again(self) -> str:
        """Return in words how a stopped run is resumed from this store."""
        return "repeat the command to resume from the answers in the store"


class Entries(Protocol):
    """Entries of an open store."""

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the store's keys among these with their values, in any order."""

    def put(self, entries: Mapping[bytes, bytes], merge: Merge | None = None) -> None:
        """Put all of these entries into the store, or none; return when they are on disk. They replace earlier values,
        or are merged with them.
        """

    def lock_keys(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        """Lock this set of keys: another process with the same set waits, and then gets the stored values. One with
        another set does not wait, even if they have keys in common.
        """

    def size(self) -> str:
        """Return the size and the folder of the store in words."""


@dataclass
class NoStore(Store):
    """store=none: all requests are sent, and a stopped run starts again."""

    def open(self) -> AbstractContextManager[Entries]:
        """Return no entries, as there is no store."""
        return nullcontext(_NoEntries())

    def again(self) -> str:
        return "no answer was stored (store=none)"


class _NoEntries:
    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def put(self, entries: Mapping[bytes, bytes], merge: Merge | None = None) -> None: ...

    def lock_keys(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        return nullcontext()

    def size(self) -> str:
        return "none: no answer was stored"
