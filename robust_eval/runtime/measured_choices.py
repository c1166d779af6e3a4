"""Choices that are measured once on a machine and cached.

Different ways of computing differ in the last digits. The same seed must give the same answers, so the choice is
reused.
"""

import platform
from collections.abc import Callable
from pathlib import Path

from robust_eval.runtime.cache import cache_folder, read_cached, write_cached


def get_or_measure(choice: str, circumstances: str, measure: Callable[[], str], usable: Callable[[str], bool]) -> str:
    """Return the cached choice on this machine under the same ``circumstances``; if there is none, or it is not
    ``usable``, that of ``measure``.
    """
    cached = cached_choice(choice, circumstances)
    if cached is not None and usable(cached):
        return cached
    chosen = measure()
    store_choice(choice, circumstances, chosen)
    return chosen


def store_choice(choice: str, circumstances: str, chosen: str) -> None:
    """Write a choice to the cache."""
    write_cached(_cache_file(choice, circumstances), chosen)


def cached_choice(choice: str, circumstances: str) -> str | None:
    """Return the cached choice; None without one."""
    return read_cached(_cache_file(choice, circumstances))


def _cache_file(choice: str, circumstances: str) -> Path:
    return cache_folder() / choice / f"{platform.node()} {platform.machine()} {circumstances}"
