"""Locks between processes."""

import os
from pathlib import Path

from filelock import FileLock

_KEPT: dict[tuple[int, Path], FileLock] = {}


def kept_lock(file: Path) -> FileLock:
    """Return the lock of a file. A process has one lock for a file, which lives until the process ends.

    A lock that is dropped runs ``FileLock.__del__``, in which Python ignores exceptions: Ctrl-C at that moment would be
    lost. A fork cannot use the lock that it inherits, so each process has its own.
    """
    name = os.getpid(), file.absolute()
    if name not in _KEPT:
        _KEPT[name] = FileLock(name[1])
    return _KEPT[name]
