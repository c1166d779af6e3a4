"""What every store does: it maps keys to bytes. Answers are kept as they arrive and never asked for again."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

PLACES = {"sqlite": "answers.sqlite", "parquet": "blocks"}
"""Where in its folder each kind of store keeps its entries."""


class Store(Protocol):
    """Where answers are kept; a dataclass whose fields are its configuration."""

    def open(self) -> AbstractContextManager["Entries"]:
        """Open the entries for reading and writing; UserError where that is not possible."""

    def again(self) -> str:
        """Say what becomes of a run that was stopped."""


class Entries(Protocol):
    """The entries of an open store."""

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield those of the keys that are stored, with their values, in no particular order."""

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Store all of these entries or none, in place of earlier values. They are on the disk when this returns."""

    def asking(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        """Lock these keys: another process that asks for one of them waits, and then finds it stored."""

    def size(self) -> str:
        """Say how large the store is, and where it lies."""


def tell_of_others(folder: Path, kind: str) -> None:
    """Log which stores of another kind lie in a folder: they are not read."""
    for other, place in PLACES.items():
        if other != kind and (folder / place).exists():
            log.info("store: %s is not read; store=%s does", folder / place, other)


@dataclass
class NoStore:
    """store=none: everything is asked, and a run that is stopped keeps nothing."""

    def open(self) -> AbstractContextManager[Entries]:
        return nullcontext(_NoEntries())

    def again(self) -> str:
        return "nothing was kept (store=none)"


class _NoEntries:
    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def put(self, entries: Mapping[bytes, bytes]) -> None: ...

    def asking(self, keys: Iterable[bytes]) -> AbstractContextManager[None]:
        return nullcontext()

    def size(self) -> str:
        return "none: nothing was kept"
