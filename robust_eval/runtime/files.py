"""Atomic writes of text, and untrusted files: regular files, lines of text, and limits of archives.

The content of a file may take :data:`UNPACKED` bytes of memory, and more in proportion to its size: a table of millions
of rows is read, and a small file that would fill the memory is refused.
"""

import errno
import io
import json
import os
import stat
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line

_SPECIAL_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def regular(file: Path) -> Path:
    """Return the file if regular; OSError for a missing file, and for a pipe or a device, which might never end."""
    kind = stat.S_IFMT(file.stat().st_mode)
    if kind in _SPECIAL_FILES:
        raise OSError(errno.EINVAL, f"it is {_SPECIAL_FILES[kind]}, not a file", str(file))
    return file


def write_text(text: str, path: Path) -> None:
    """Write a text file as :func:`robust_eval.runtime.parquet_files.write_parquet` writes a table."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def text_lines(file: Path, encoding: str = "utf-8", label: object = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers, without a byte-order mark; only a line feed ends a line.

    A mark (of UTF-8, UTF-16 or UTF-32), or zeros between the first letters, overrides ``encoding``. UserError, which
    calls the file ``label``, if it cannot be read.
    """
    label = file if label is None else label
    try:
        with open(regular(file), "rb") as raw:
            yield from _decoded(raw, file_encoding(raw, encoding), label)
    except OSError as problem:
        raise UserError(f"{label} cannot be read: {problem.strerror or first_line(problem)}") from problem


def file_encoding(raw: io.BufferedReader, default: str = "utf-8") -> str:
    """Return a text file's encoding by its first bytes, or else the default."""
    encoding = json.detect_encoding(raw.peek(4)[:4])
    return default if encoding == "utf-8" else encoding


def _decoded(raw: io.BufferedReader, encoding: str, label: object) -> Iterator[tuple[int, str]]:
    if "\n".encode(encoding) != b"\n" and encoding != "utf-8-sig":  # a line feed has several bytes
        try:
            with io.TextIOWrapper(raw, encoding, newline="\n") as lines:
                yield from enumerate(lines, start=1)
        except UnicodeDecodeError as problem:
            raise UserError(f"{label}: not {encoding.upper()} ({problem.reason})") from problem
        return
    for number, line in enumerate(raw, start=1):
        try:
            yield number, line.decode(encoding if number == 1 else encoding.removesuffix("-sig"))
        except UnicodeDecodeError as problem:
            reason, hint = f"{problem.reason} at byte {problem.start + 1}", ""
            if encoding.startswith("utf-8"):  # most other tables are in cp1252
                excerpt = line[max(problem.start - 20, 0) : problem.start + 20].decode("cp1252", "replace").strip()
                hint = f"; as cp1252 it reads {excerpt!r}: save the file as UTF-8"
            name = encoding.removesuffix("-sig").upper()
            raise UserError(f"{label}, line {number}: not {name} ({reason}){hint}") from problem


def module_data(module_file: str) -> dict[str, Any]:
    """Return the data of a module of this package, from the TOML file of the same name."""
    return tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))


UNPACKED = 192 * 2**20
"""Maximum bytes of the content of any packed file."""
PACKED = 64
"""Further bytes for each byte of such a file."""
MEMBER = 64 * 2**20
"""Maximum bytes of a member of an archive, such as a sample of a log."""
_PIECE = 2**12
"""Bytes of an archive that are unpacked at once."""


def refuse_unpacked(file: Path, unpacked: int, size: int, base: int = UNPACKED) -> None:
    """Raise UserError if the content of a packed file exceeds the limit for its size."""
    max_bytes = base + PACKED * size
    if unpacked > max_bytes:
        raise UserError(
            f"{file} unpacks to more than {max_bytes / 2**20:,.0f} MiB, the limit for a file of {size:,} bytes"
        )


def refuse_members(file: Path, archive: zipfile.ZipFile) -> None:
    """Raise UserError if the declared sizes of an archive's members exceed the limits."""
    members = archive.infolist()
    refuse_unpacked(file, sum(member.file_size for member in members), file.stat().st_size)
    for member in members:
        refuse_larger(member.file_size, MEMBER, f"{file}, {member.filename}")


def member(file: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    """Read an archived file piece by piece, ignoring its declared size; UserError if it is too large."""
    content = bytearray()
    with archive.open(name) as stream:
        while piece := stream.read(_PIECE):
            content += piece
            refuse_larger(len(content), MEMBER, f"{file}, {name}")
    return bytes(content)


def refuse_larger(size: int, limit: int, where: str) -> None:
    """Raise UserError if a file's size exceeds its limit."""
    if size > limit:
        raise UserError(f"{where}: {size / 2**20:,.0f} MiB or more; the limit is {limit / 2**20:.0f} MiB")
