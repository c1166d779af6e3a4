"""Files that can be read from their beginning to their end."""

import errno
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def regular(file: Path) -> Path:
    """The file; OSError where it is not there, or where to read it might wait or go on for ever."""
    kind = stat.S_IFMT(file.stat().st_mode)
    if kind in _KINDS:
        raise OSError(errno.EINVAL, f"it is {_KINDS[kind]}, and no file", str(file))
    return file
