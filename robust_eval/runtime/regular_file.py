"""Regular files: those that can be read to their end."""

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
    """Return the file; OSError where it does not exist, or is a pipe or a device, which might never end."""
    kind = stat.S_IFMT(file.stat().st_mode)
    if kind in _KINDS:
        raise OSError(errno.EINVAL, f"it is {_KINDS[kind]}, and no file", str(file))
    return file
