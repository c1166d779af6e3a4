"""JSON of untrusted files: a whole file, JSON Lines, a text, within limits of size and memory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.runtime.files import regular, text_lines

MAX_JSON = 512 * 2**20
"""Maximum bytes of a JSON file; it takes some five times its size in memory."""
OF_RUN = 4 * 2**20
"""Maximum bytes of a JSON file of a run; those of real runs have some thousands."""
PARSED = 96 * 2**20
"""Maximum bytes of memory for the values of any JSON text."""
PARSED_EACH = 12
"""Further bytes for each byte of the text; tables of questions and of log-probabilities take less."""
_COSTS = {"[": 64, "{": 184, ",": 58, ":": 50}
"""Bytes of a list, a mapping, an entry and its name, without their texts."""


def parsed_json(text: str | bytes, **settings: Any) -> Any:
    """Parse JSON with these settings of ``json.loads``; ValueError for invalid JSON, too deep nesting, or values that
    take far more memory than usual for the size of the text.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    values = sum(text.count(sign) * cost for sign, cost in _COSTS.items()) if len(text) > 2**20 else 0
    if values > PARSED + PARSED_EACH * len(text):
        raise json.JSONDecodeError("too many values for the size of the text", "", 0)
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None


def json_lines(
    file: Path, label: object = None, encoding: str = "utf-8", **settings: Any
) -> Iterator[tuple[str, str, Any]]:
    """Yield the parsed JSON of each non-empty line of a JSON Lines file, after its position (a text for messages) and
    the line.

    The ``settings`` are those of ``json.loads``. UserError as of :func:`~robust_eval.runtime.files.text_lines`, and for
    a line with broken JSON.
    """
    for number, line in text_lines(file, encoding, label):
        if line.strip():
            where = f"{file if label is None else label}, line {number}"
            yield where, line, json_line(line, where, **settings)


def json_line(line: str, where: str, **settings: Any) -> Any:
    """Return the parsed JSON of a file's line; UserError that begins with ``where`` if it is broken."""
    try:
        return parsed_json(line.rstrip("\r\n"), **settings)
    except json.JSONDecodeError as problem:
        raise UserError(f"{where}: broken JSON ({problem.msg} at column {problem.colno})") from problem
    except ValueError as problem:
        raise UserError(f"{where}: broken JSON ({first_line(problem)})") from problem


def read_json(file: Path, max_bytes: int = MAX_JSON, **settings: Any) -> Any:
    """Parse a JSON file; UserError if it is larger than ``max_bytes``, ValueError if it is broken."""
    size = regular(file).stat().st_size
    if size > max_bytes:
        raise UserError(
            f"{file} is {size / 2**20:,.0f} MiB, more than the limit of {max_bytes / 2**20:,.0f} MiB for JSON"
        )
    return parsed_json(file.read_bytes(), **settings)
