"""Choices that are measured once on a machine and kept in the cache.

Different ways of computing give results that differ in the last digits. The same seed must give the same answers, so
the way that was fastest once is used again.
"""

import platform
from collections.abc import Callable
from pathlib import Path

from robust_eval.runtime.cache import cache_folder, keep, kept


def remembered(choice: str, circumstances: str, measure: Callable[[], str], usable: Callable[[str], bool]) -> str:
    """Return what ``measure`` last chose on this machine under the same ``circumstances``.

    ``measure`` is called where nothing is cached, or where the cached choice is not ``usable``.
    """
    known = recalled(choice, circumstances)
    if known is not None and usable(known):
        return known
    chosen = measure()
    remember(choice, circumstances, chosen)
    return chosen


def remember(choice: str, circumstances: str, chosen: str) -> None:
    """Keep a choice in the cache."""
    keep(_memory(choice, circumstances), chosen)


def recalled(choice: str, circumstances: str) -> str | None:
    """Return the cached choice; None where there is none."""
    return kept(_memory(choice, circumstances))


def _memory(choice: str, circumstances: str) -> Path:
    return cache_folder() / choice / f"{platform.node()} {platform.machine()} {circumstances}"
