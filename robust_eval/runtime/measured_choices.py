"""Choices that are measured once on a machine and kept in the cache.

Different ways of computing give results that differ in the last digits. The same seed must give the same answers, so
the way that was fastest once is used again.
"""

import platform
from collections.abc import Callable
from pathlib import Path

from robust_eval.runtime.cache import cache_folder, read_cached, write_cached


def get_or_measure(choice: str, circumstances: str, measure: Callable[[], str], usable: Callable[[str], bool]) -> str:
    """Return the cached choice of ``measure`` on this machine under the same ``circumstances``.

    ``measure`` is called where nothing is cached, or where the cached choice is not ``usable``.
    """
    cached = cached_choice(choice, circumstances)
    if cached is not None and usable(cached):
        return cached
    chosen = measure()
    store_choice(choice, circumstances, chosen)
    return chosen


def store_choice(choice: str, circumstances: str, chosen: str) -> None:
    """Keep a choice in the cache."""
    write_cached(_cache_file(choice, circumstances), chosen)


def cached_choice(choice: str, circumstances: str) -> str | None:
    """Return the cached choice; None where there is none."""
    return read_cached(_cache_file(choice, circumstances))


def _cache_file(choice: str, circumstances: str) -> Path:
    return cache_folder() / choice / f"{platform.node()} {platform.machine()} {circumstances}"
