"""The limit on open files of a process; connections count towards it."""

import os

from robust_eval.error import UserError

SPARE = 32
"""Open files of a run that are no connections: the store, locks, tables, the tracker's database."""


def allow_connections(number: int, setting: str) -> None:
    """Raise the limit until so many connections, which ``setting`` asks for, may be open at once; UserError where the
    system sets a lower one.
    """
    try:
        import resource

        others = len(os.listdir("/dev/fd")) + SPARE
    except (ImportError, OSError):  # Windows has no such limit, and a container may hide what is open
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = number + others
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        most = hard - others
        lower = f"{setting}={most}, or " if most > 0 else ""
        raise UserError(
            f"{setting}={number} needs about {needed} open files, but the hard limit is {hard} (ulimit -Hn): "
            f"set {lower}a higher limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
