"""Read a text of others line by line, and say in which line it is broken."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.runtime.json_text import parsed_json
from robust_eval.runtime.regular_file import regular


def text_lines(file: Path, encoding: str = "utf-8", called: object = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, without the mark that may open it; only a line feed ends a line.

    UserError, in which the file is ``called`` as a person knows it, where it cannot be read.
    """
    called = file if called is None else called
    try:
        with open(regular(file), "rb") as raw:
            for number, line in enumerate(raw, start=1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                try:
                    yield number, line.decode(encoding)
                except UnicodeDecodeError as problem:
                    reason = f"{problem.reason} at byte {problem.start + 1}"
                    raise UserError(f"{called}, line {number}: not {encoding.upper()} ({reason})") from problem
    except OSError as problem:
        raise UserError(f"{called} cannot be read: {problem.strerror or first_line(problem)}") from problem


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
