"""Choices that are measured once on a machine and kept: the fastest way of computing differs in the last digits from
the second fastest, so the same seed needs the same one.
"""

import platform
from collections.abc import Callable
from pathlib import Path

from robust_eval.runtime.cache import cache_folder, keep, kept


def remembered(choice: str, circumstances: str, measure: Callable[[], str], usable: Callable[[str], bool]) -> str:
    """What ``measure`` chose when it was last asked on this machine under the same ``circumstances``.

    It is asked again where what it chose then is not ``usable``.
    """
    known = recalled(choice, circumstances)
    if known is not None and usable(known):
        return known
    chosen = measure()
    keep(_memory(choice, circumstances), chosen)
    return chosen


def recalled(choice: str, circumstances: str) -> str | None:
    """What is remembered; None where nothing is."""
    return kept(_memory(choice, circumstances))


def _memory(choice: str, circumstances: str) -> Path:
    return cache_folder() / choice / f"{platform.node()} {platform.machine()} {circumstances}"
