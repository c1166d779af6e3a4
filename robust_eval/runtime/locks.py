"""Locks between processes."""

import os
from pathlib import Path

from filelock import FileLock

_KEPT: dict[tuple[int, Path], FileLock] = {}


def kept_lock(file: Path) -> FileLock:
    """The lock of a file, the same one for all of this process, which is kept until the process ends.

    One that is dropped runs ``FileLock.__del__``, and Python throws away what is raised there: Ctrl-C at that moment
    would be lost. A lock that a fork has inherited is of no use to it, so each process has its own.
    """
    name = os.getpid(), file.absolute()
    if name not in _KEPT:
        _KEPT[name] = FileLock(name[1])
    return _KEPT[name]
