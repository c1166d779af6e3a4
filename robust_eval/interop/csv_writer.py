"""A finished run as CSV tables for a spreadsheet, without a cell that a spreadsheet would compute."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from robust_eval.answer import SAMPLER, SCHEMA
from robust_eval.interop.finished_answers import FinishedAnswers
from robust_eval.question import LETTERS

_COMPUTED = tuple("=+-@＝＋－＠'")
"""First characters of cells that a spreadsheet computes, and the apostrophe itself."""
_INVISIBLE = ("Zs", "Cf")
"""Unicode categories that a spreadsheet may skip: spaces and format characters."""


def inert(text: str) -> str:
    """Return the text of a CSV cell, with an apostrophe before it if a spreadsheet would compute it.

    A spreadsheet computes a cell whose first visible character is one of ``= + - @``, full-width ones included, or a
    control character. A text that begins with an apostrophe gets another: removing one restores each text.

    >>> [inert(text) for text in ("=1+1", " @SUM(A1)", "Rome", "'s", "-5")]
    ["'=1+1", "' @SUM(A1)", 'Rome', "''s", "'-5"]
    """
    first = next((each for each in text if unicodedata.category(each) not in _INVISIBLE), " ")
    return f"'{text}" if first in _COMPUTED or unicodedata.category(first) == "Cc" else text


def write_csv(answers: FinishedAnswers, folder: Path) -> list[Path]:
    """Write CSV files: the answers, the questions with their values, and the metrics; return the three paths."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "answers.csv": answers.labelled.graded.select([*SCHEMA.names, SAMPLER]),
        "questions.csv": _questions(answers),
        "metrics.csv": _metrics(answers),
    }
    for name, table in tables.items():
        pa_csv.write_csv(_inert(table), folder / name, pa_csv.WriteOptions(quoting_style="needed"))
    return [folder / name for name in tables]


def _questions(answers: FinishedAnswers) -> pa.Table:
    """Return the table of questions, with the columns of ``dataset=local`` and the value of each metric."""
    questions = list(answers.labelled.questions.values())
    run = answers.labelled.run
    columns: dict[str, Any] = {
        "id": [each.id for each in questions],
        "question": [each.title for each in questions],
        "answers": [json.dumps(each.answers, ensure_ascii=False) if each.answers else None for each in questions],
        "choices": [json.dumps(each.choices, ensure_ascii=False) if each.choices else None for each in questions],
        "correct": [None if each.correct is None else LETTERS[each.correct] for each in questions],
        "category": [each.category or None for each in questions],
        "group": [each.group or None for each in questions],
        "kept": run.kept(),
    }
    filled = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    return pa.table(filled | {name: run.values(name) for name in run.question_metrics})


def _metrics(answers: FinishedAnswers) -> pa.Table:
    run = answers.labelled.run
    columns: dict[str, list[Any]] = {"name": [], "label": [], "value": [], "low": [], "high": [], "questions": []}
    for name, one in answers.metrics.items():
        spec, ends = run.spec(name), (None, None) if one.low != one.low else one[1:]
        row = (name, spec.words if spec else name, one.value, *ends, run.n(name))
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
    return pa.table(columns)


def _inert(table: pa.Table) -> pa.Table:
    """Return the CSV table with lists as JSON and inert texts."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        if (is_list := pa.types.is_list(column.type)) or pa.types.is_string(column.type):
            text = json.dumps if is_list else inert
            column = pa.array([None if cell is None else text(cell) for cell in column.to_pylist()], pa.string())
        columns[inert(name)] = column
    return pa.table(columns)
