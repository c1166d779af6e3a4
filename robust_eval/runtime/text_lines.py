"""Read a text of others line by line, and say in which line it is broken."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.runtime.json_text import parsed_json
from robust_eval.runtime.regular_file import regular


def text_lines(file: Path, encoding: str = "utf-8", called: object = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, without the mark that may open it; only a line feed ends a line.

    A mark (of UTF-8, UTF-16 or UTF-32), or zeros between the first letters, say more than ``encoding``. UserError, in
    which the file is ``called`` as a person knows it, where it cannot be read.
    """
    called = file if called is None else called
    try:
        with open(regular(file), "rb") as raw:
            yield from _decoded(raw, file_encoding(raw, encoding), called)
    except OSError as problem:
        raise UserError(f"{called} cannot be read: {problem.strerror or first_line(problem)}") from problem


def file_encoding(raw: io.BufferedReader, default: str = "utf-8") -> str:
    """Return the encoding that the first bytes of a file prove, or else the default."""
    encoding = json.detect_encoding(raw.peek(4)[:4])
    return default if encoding == "utf-8" else encoding


def _decoded(raw: io.BufferedReader, encoding: str, called: object) -> Iterator[tuple[int, str]]:
    if "\n".encode(encoding) != b"\n" and encoding != "utf-8-sig":  # a line feed has several bytes
        try:
            with io.TextIOWrapper(raw, encoding, newline="\n") as lines:
                yield from enumerate(lines, start=1)
        except UnicodeDecodeError as problem:
            raise UserError(f"{called}: not {encoding.upper()} ({problem.reason})") from problem
        return
    for number, line in enumerate(raw, start=1):
        try:
            yield number, line.decode(encoding if number == 1 else encoding.removesuffix("-sig"))
        except UnicodeDecodeError as problem:
            reason = f"{problem.reason} at byte {problem.start + 1}"
            raise UserError(
                f"{called}, line {number}: not {encoding.removesuffix('-sig').upper()} ({reason})"
                + (_as_windows(line, problem.start) if encoding.startswith("utf-8") else "")
            ) from problem


def _as_windows(line: bytes, place: int) -> str:
    """Return the text around a byte in the encoding of most tables that are not UTF-8, and the remedy."""
    excerpt = line[max(place - 20, 0) : place + 20].decode("cp1252", "replace").strip()
    return f"; as cp1252 it reads {excerpt!r}: save the file as UTF-8"


def json_lines(file: Path, called: object = None, **settings: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield where each line stands that is not empty, for a person, the line, and what its JSON says.

    The ``settings`` are those of ``json.loads``. UserError as of :func:`text_lines`, and where a line is no JSON.
    """
    for number, line in text_lines(file, called=called):
        if line.strip():
            where = f"{file if called is None else called}, line {number}"
            yield where, line, json_line(line, where, **settings)


def json_line(line: str, where: str, **settings: Any) -> Any:
    """Return what the JSON of a line says; UserError that begins with ``where`` if it is broken."""
    try:
        return parsed_json(line.rstrip("\r\n"), **settings)
    except json.JSONDecodeError as problem:
        raise UserError(f"{where}: broken JSON ({problem.msg} at column {problem.colno})") from problem
    except ValueError as problem:
        raise UserError(f"{where}: broken JSON ({first_line(problem)})") from problem
