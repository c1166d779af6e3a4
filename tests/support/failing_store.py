"""A store that fails after so many writings."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from robust_eval.store.base import Store


class FailingStore:
    """Its ``after``-th writing is followed by an exception; ``kept`` is all that was written."""

    def __init__(self, whole: Store, after: int, problem: BaseException) -> None:
        self._whole, self._left, self._problem = whole, after, problem
        self.kept: dict[bytes, bytes] = {}

    @contextmanager
    def open(self) -> Iterator[Any]:
        with self._whole.open() as self._entries:
            yield self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entries, name)

    def put(self, entries: Mapping[bytes, bytes], *merge: Any) -> None:
        self._entries.put(entries, *merge)
        self.kept |= entries
        self._left -= bool(entries)
        if entries and not self._left:
            raise self._problem
