"""Questions in a JSON Lines file: a built-in set, or a user's file in the same layout."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from robust_eval.dataset.selection import Selection
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.files import text_lines
from robust_eval.runtime.json_files import json_line
from robust_eval.runtime.text import json_excerpt

FOLDER = Path(__file__).with_name("builtin")
"""Folder of the built-in sets."""
BUILTIN = "builtin:"
"""Prefix of the path of a built-in set."""


@dataclass
class JsonLines(Selection):
    """JSON Lines file with one question a line; an invalid line stops the run.

    Each line is a JSON object with the fields of :class:`~robust_eval.question.Question`; ``id`` and ``question`` are
    required, and either ``answers`` (a list of accepted answers) or ``choices`` with ``correct`` (the index of the
    right one, from 0).
    """

    name: str
    """Name of the data set in logs, tables and the tracker."""
    path: str
    """Path of the file; builtin:facts.jsonl and the like are the built-in sets."""

    def read(self) -> Iterator[Question]:
        """Yield all questions of the JSON Lines file, in its order; UserError names the first line that is broken."""
        builtin = self.path.startswith(BUILTIN)
        file = FOLDER / self.path.removeprefix(BUILTIN) if builtin else Path(self.path)
        if builtin and not file.exists():
            names = ", ".join(sorted(f"{BUILTIN}{entry.name}" for entry in FOLDER.iterdir()))
            raise UserError(f"there is no built-in set {self.path}: choose {names}, or the path of a file")
        if not file.exists():
            raise UserError(f"dataset.path={self.path}: there is no such file")
        lines: dict[str, int] = {}
        for number, line in text_lines(file, label=f"the data file {self.path}"):
            if not line.strip():
                continue
            if not lines and not line.lstrip().startswith("{"):
                shown = line.strip() if len(line) <= 60 else f"{line.strip()[:60]}…"
                raise UserError(
                    f"{self.path} is not a JSON Lines file: line {number} is {shown!r}, but each line must be "
                    f"an object such as {_EXAMPLE}; for tables (CSV, TSV, JSON, Parquet) set dataset=local "
                    f"dataset.path={self.path}"
                )
            question = _question(line, f"{self.path}, line {number}")
            if question.id in lines:
                raise UserError(
                    f"{self.path}, line {number}: id {question.id!r} is already used in line {lines[question.id]}"
                )
            lines[question.id] = number
            yield question

    @property
    def source(self) -> str:
        """Path of the JSON Lines file, as in the settings."""
        return self.path


def is_native(file: Path) -> bool:
    """Return True if the first line of a JSON Lines file is a question in the layout of :class:`JsonLines`."""
    try:
        first = next((line for _, line in text_lines(file) if line.strip()), "")
        _question(first, str(file))
    except UserError:
        return False
    return True


_EXAMPLE = '{"id": "1", "question": "…?", "answers": ["…"]}'


def _question(line: str, where: str) -> Question:
    record = json_line(line, where)
    if not isinstance(record, dict):
        raise UserError(f"{where}: a question must be a JSON object, not {json_excerpt(record)}")
    fields_of_question = {entry.name for entry in fields(Question)} - {"text"} | {"question"}
    if unknown := sorted(set(record) - fields_of_question):
        raise UserError(f"{where}: unknown field {unknown[0]!r}; fields are {', '.join(sorted(fields_of_question))}")

    def text(field: str, required: bool = False) -> str:
        if required and field not in record:
            raise UserError(f"{where}: {field!r} is missing")
        value = record.get(field, "")
        if not isinstance(value, str) or (required and not value.strip()):
            kind = "non-empty string" if required else "string"
            raise UserError(f"{where}: {field!r} must be a {kind}, not {json_excerpt(value)}")
        return value

    def texts(field: str) -> tuple[str, ...]:
        value: Any = record.get(field, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise UserError(f"{where}: {field!r} must be a list of non-empty strings, not {json_excerpt(value)}")
        return tuple(value)

    choices, correct = texts("choices"), record.get("correct")
    if choices:
        if not 2 <= len(choices) <= len(LETTERS):
            raise UserError(f"{where}: 'choices' must have 2 to {len(LETTERS)} strings, not {len(choices)}")
        if type(correct) is not int or not 0 <= correct < len(choices):
            raise UserError(
                f"{where}: 'correct' must be the index of the right choice (0 to {len(choices) - 1}), "
                f"not {json_excerpt(correct)}"
            )
    elif not texts("answers"):
        raise UserError(f"{where}: 'answers' must have at least one accepted answer, or 'choices' must be set")
    level = record.get("level")
    if level is not None and type(level) is not int:
        raise UserError(f"{where}: 'level' must be a whole number, not {json_excerpt(level)}")
    return Question(
        id=text("id", required=True),
        text=text("question", required=True),
        answers=texts("answers"),
        choices=choices,
        correct=correct if choices else None,
        context=text("context"),
        type=text("type"),
        category=text("category"),
        group=text("group"),
        level=level,
        rewrites=texts("rewrites"),
        incorrect=texts("incorrect"),
    )
