"""The limit of files that a process may have open, to which connections count."""

import os
import resource

from robust_eval.error import UserError

SPARE = 32
"""Files that a run opens beside its connections: the store, locks, tables, the database of the tracker."""


def allow_connections(number: int, setting: str) -> None:
    """Raise the limit until so many connections, which ``setting`` asks for, may be open at once; UserError where the
    system sets a lower one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = len(os.listdir("/dev/fd")) + SPARE
    needed = number + others
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        most = hard - others
        lower = f"{setting}={most}, or " if most > 0 else ""
        raise UserError(
            f"{setting}={number} needs about {needed} open files, and this process may open {hard} (ulimit -n): "
            f"choose {lower}a larger limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
