"""Files that somebody else wrote: regular files, lines of text, JSON, and their limits.

The content of a file may take :data:`UNPACKED` bytes of memory, and more in proportion to its size: tables of millions
of rows are read, and a file of some kilobytes that would fill the memory is not.
"""

import errno
import io
import json
import stat
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line

PARSED = 96 * 2**20
"""Bytes that the values of any JSON text may take."""
PARSED_EACH = 12
"""Bytes that each byte of it may take beyond these; those of tables of questions and of log-probabilities take less."""
_COSTS = {"[": 64, "{": 184, ",": 58, ":": 50}
"""Bytes that a list, a mapping, an entry and its name take, without their texts."""


def parsed_json(text: str | bytes, **settings: Any) -> Any:
    """Parse JSON with these settings of ``json.loads``; ValueError where it is not JSON, is nested too deeply, or holds
    so many values that it takes far more memory than a text of its size does.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    values = sum(text.count(sign) * cost for sign, cost in _COSTS.items()) if len(text) > 2**20 else 0
    if values > PARSED + PARSED_EACH * len(text):
        raise json.JSONDecodeError("more values than a text of its size can hold", "", 0)
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", "", 0) from None


_SPECIAL_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def regular(file: Path) -> Path:
    """Return the file; OSError where it does not exist, or is a pipe or a device, which might never end."""
    kind = stat.S_IFMT(file.stat().st_mode)
    if kind in _SPECIAL_FILES:
        raise OSError(errno.EINVAL, f"it is {_SPECIAL_FILES[kind]}, not a file", str(file))
    return file


def text_lines(file: Path, encoding: str = "utf-8", label: object = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, without the mark that may open it; only a line feed ends a line.

    A mark (of UTF-8, UTF-16 or UTF-32), or zeros between the first letters, overrides ``encoding``. UserError, which
    calls the file ``label``, where it cannot be read.
    """
    label = file if label is None else label
    try:
        with open(regular(file), "rb") as raw:
            yield from _decoded(raw, file_encoding(raw, encoding), label)
    except OSError as problem:
        raise UserError(f"{label} cannot be read: {problem.strerror or first_line(problem)}") from problem


def file_encoding(raw: io.BufferedReader, default: str = "utf-8") -> str:
    """Return the encoding that the first bytes of a file prove, or else the default."""
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
            reason = f"{problem.reason} at byte {problem.start + 1}"
            raise UserError(
                f"{label}, line {number}: not {encoding.removesuffix('-sig').upper()} ({reason})"
                + (_cp1252_hint(line, problem.start) if encoding.startswith("utf-8") else "")
            ) from problem


def _cp1252_hint(line: bytes, offset: int) -> str:
    """Return the text around a byte in the encoding of most tables that are not UTF-8, and the remedy."""
    excerpt = line[max(offset - 20, 0) : offset + 20].decode("cp1252", "replace").strip()
    return f"; as cp1252 it reads {excerpt!r}: save the file as UTF-8"


def json_lines(file: Path, label: object = None, **settings: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the position of each line that is not empty (as text for messages), the line, and its parsed JSON.

    The ``settings`` are those of ``json.loads``. UserError as of :func:`text_lines`, and where a line is no JSON.
    """
    for number, line in text_lines(file, label=label):
        if line.strip():
            where = f"{file if label is None else label}, line {number}"
            yield where, line, json_line(line, where, **settings)


def json_line(line: str, where: str, **settings: Any) -> Any:
    """Return the parsed JSON of a line; UserError that begins with ``where`` if it is broken."""
    try:
        return parsed_json(line.rstrip("\r\n"), **settings)
    except json.JSONDecodeError as problem:
        raise UserError(f"{where}: broken JSON ({problem.msg} at column {problem.colno})") from problem
    except ValueError as problem:
        raise UserError(f"{where}: broken JSON ({first_line(problem)})") from problem


def module_data(module_file: str) -> dict[str, Any]:
    """Return the data file of a module of this package: TOML of its name beside it."""
    return tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))


UNPACKED = 192 * 2**20
"""Bytes that the content of any packed file may take."""
PACKED = 64
"""Bytes that each byte of such a file may take beyond these."""
MEMBER = 64 * 2**20
"""Bytes of one member of an archive, such as a sample of a log."""
WHOLE = 512 * 2**20
"""Bytes of a JSON file that is read whole; it takes some five times its size in memory."""
OF_RUN = 4 * 2**20
"""Bytes of a JSON file that a run writes; those of real runs have some thousands."""
_PIECE = 2**12
"""Bytes of an archive that are unpacked at once."""


def read_json(file: Path, max_bytes: int = WHOLE, **settings: Any) -> Any:
    """Parse a JSON file; UserError where it is larger than ``max_bytes``, ValueError where it is broken."""
    size = regular(file).stat().st_size
    if size > max_bytes:
        raise UserError(
            f"{file} has {size / 2**20:,.0f} MiB, more than the limit of {max_bytes / 2**20:,.0f} MiB for JSON"
        )
    return parsed_json(file.read_bytes(), **settings)


def refuse_unpacked(file: Path, unpacked: int, size: int, base: int = UNPACKED) -> None:
    """Raise UserError where the content of a packed file takes more bytes than are read of one of this size."""
    max_bytes = base + PACKED * size
    if unpacked > max_bytes:
        raise UserError(
            f"{file} unpacks to more than {max_bytes / 2**20:,.0f} MiB, the limit for a file of {size:,} bytes"
        )


def refuse_members(file: Path, archive: zipfile.ZipFile) -> None:
    """Raise UserError where the declared sizes of an archive's members exceed the limits."""
    members = archive.infolist()
    refuse_unpacked(file, sum(member.file_size for member in members), file.stat().st_size)
    for member in members:
        refuse_larger(member.file_size, MEMBER, f"{file}, {member.filename}")


def member(file: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a member of an archive piece by piece, ignoring its declared size; UserError where it is too large."""
    content = bytearray()
    with archive.open(name) as stream:
        while piece := stream.read(_PIECE):
            content += piece
            refuse_larger(len(content), MEMBER, f"{file}, {name}")
    return bytes(content)


def refuse_larger(size: int, limit: int, where: str) -> None:
    """Raise UserError where a size exceeds its limit."""
    if size > limit:
        raise UserError(f"{where}: {size / 2**20:,.0f} MiB or more; the limit is {limit / 2**20:.0f} MiB")
