"""The store: what a model answered is kept as it arrives, and never asked again. It maps keys to bytes."""

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
        """The entries, ready to be read and written; UserError where they cannot be."""

    def again(self) -> str:
        """What becomes of a run that was stopped, for a person."""


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


def tell_of_others(folder: Path, kind: str) -> None:
    """Say which stores of another kind are in a folder: what they have will be asked again."""
    for other, place in PLACES.items():
        if other != kind and (folder / place).exists():
            log.info("store: %s is not read; store=%s does", folder / place, other)


@dataclass
class NoStore:
    """store=none: everything is asked anew, and nothing is kept if the run is stopped."""

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
