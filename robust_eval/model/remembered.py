"""Choices that are measured once on a machine and kept: the fastest way of computing differs in the last digits from
the second fastest, so the same seed needs the same one.
"""

import platform
from collections.abc import Callable

from robust_eval.model.embedded import cache_folder


def remembered(choice: str, circumstances: str, measure: Callable[[], str]) -> str:
    """What ``measure`` chose when it was last asked on this machine under the same ``circumstances``."""
    memory = cache_folder() / choice / f"{platform.node()} {platform.machine()} {circumstances}"
    if not memory.is_file():
        chosen = measure()
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(chosen)
    return memory.read_text()
