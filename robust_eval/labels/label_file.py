"""Files of labels: right, wrong, abstained or unclear, with the sampling method of the answers."""

import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from robust_eval.answer import ABSTAINED
from robust_eval.dataset.file_formats import KINDS, read_records
from robust_eval.error import UserError
from robust_eval.runtime.text import printable

log = logging.getLogger(__name__)

RIGHT, WRONG, UNCLEAR = "right", "wrong", "unclear"
LABEL_VALUES = (RIGHT, WRONG, ABSTAINED, UNCLEAR)
"""Values of a label; an abstention is wrong, except of a question without an answer."""
UNNAMED_LABELLER = "elsewhere"
"""Default labeller of a file without names."""
LABELS = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),  # the reply as it came
        pa.field("label", pa.string(), nullable=False),  # right | wrong | abstained | unclear
        pa.field("labeller", pa.string(), nullable=False),
        pa.field("sampler", pa.string()),  # with the next three the answer; null: all answers with this text
        pa.field("rewrite", pa.int32()),
        pa.field("temperature", pa.float64()),
        pa.field("trial", pa.int32()),
        pa.field("drawn", pa.string()),  # answer: by strata; question: whole questions; null: as somebody chose
        pa.field("stratum", pa.string()),
        pa.field("stratum_size", pa.int64()),  # answers of the run in the stratum
    ]
)
_WORDS = {
    **dict.fromkeys(("right", "correct", "true", "yes", "1"), RIGHT),
    **dict.fromkeys(("wrong", "incorrect", "false", "no", "0"), WRONG),
    ABSTAINED: ABSTAINED,
    UNCLEAR: UNCLEAR,
}
_TEXT, _LABEL, _ID = ("text", "reply", "answer"), ("label", "correct", "right"), ("question_id", "id")


def read_labels(file: Path) -> pa.Table:
    """Return the labels of a file (:data:`LABELS`), written by this package or by others.

    It needs ``question_id``, the reply (``text`` or ``reply``) and ``label`` (right, wrong, abstained, unclear) or
    ``correct`` (true, false). ``labeller`` says who gave it; ``temperature`` and ``trial``, with ``rewrite`` and
    ``sampler``, name one answer, and without them a label is that of every answer with this text. Rows without a label
    are left out, with a warning. UserError names the first row that is wrong.
    """
    if file.suffix.lower() not in KINDS:
        raise UserError(f"labels must be a file that ends in {', '.join(KINDS)}; {file} does not")
    try:
        records = list(enumerate(read_records(file), start=1))
        rows = [_label(record, f"{file}, row {number}") for number, record in records if not _is_blank(record)]
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror or problem}") from problem
    if not rows:
        raise UserError(f"{file} contains no label")
    if blank := len(records) - len(rows):
        log.warning("%s: rows without a label: %d", file, blank)
    return pa.Table.from_pylist(rows, LABELS)


def _is_blank(record: Mapping[str, Any]) -> bool:
    """Return True for a row that has a column of labels, but no label."""
    values = [record[name] for name in _LABEL if name in record]
    return bool(values) and all(value is None or not str(value).strip() for value in values)


def _label(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "question_id": _first(record, _ID, where),
        "text": _first(record, _TEXT, where),
        "labeller": str(record.get("labeller") or UNNAMED_LABELLER),
    }
    label = _first(record, _LABEL, where)
    word = label.strip().lower().removesuffix(".0")
    if word not in _WORDS:
        raise UserError(f"{where}: a label must be right, wrong, abstained or unclear, not {printable(label)[:60]}")
    row["label"] = _WORDS[word]
    for name in ("rewrite", "temperature", "trial", "stratum_size"):
        value, kind = record.get(name), "number" if name == "temperature" else "whole number"
        if value is not None and value != "":
            try:
                row[name] = float(value)
                if kind != "number" and (not row[name].is_integer() or abs(row[name]) >= 2**31):
                    raise ValueError(value)
            except (TypeError, ValueError, OverflowError) as problem:
                raise UserError(f"{where}: {name} must be a {kind}, not {printable(str(value))[:60]}") from problem
    for name in ("sampler", "drawn", "stratum"):
        row[name] = None if record.get(name) in (None, "") else str(record[name])
    if ("temperature" in row) != ("trial" in row):
        raise UserError(f"{where}: temperature and trial must be given together")
    method = row["drawn"]
    if method not in (None, "answer", "question") or (method == "answer" and not row.get("stratum_size", 0) > 0):
        raise UserError(f"{where}: drawn must be 'question', or 'answer' together with the stratum and its size")
    if any("\ud800" <= sign <= "\udfff" for value in row.values() if isinstance(value, str) for sign in value):
        raise UserError(f"{where}: text must be Unicode, without unpaired surrogates")
    return row


def _first(record: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    for name in names:
        if record.get(name) is not None:
            return str(record[name])
    raise UserError(f"{where}: one of the columns {', '.join(names[:-1])} or {names[-1]} must be given")


def place_of(
    sampler: str, question_id: str, rewrite: int, temperature: float, trial: int, text: str
) -> tuple[str, ...]:
    """Return the place of an answer in a run, and last its text, as a key for labels.

    In it, a temperature of NaN is equal to itself, and a text does not change if it passes through a spreadsheet.
    """
    level = "own" if math.isnan(temperature) else repr(float(temperature))
    return sampler, question_id, str(rewrite), level, str(trial), " ".join(text.lstrip("' ").split())


def label_places(label: Mapping[str, Any], samplers: Iterator[str] | list[str]) -> list[tuple[str, ...]]:
    """Return the places of a label in a run, with its text; none for a label of a text alone."""
    if label["trial"] is None or label["temperature"] is None:
        return []
    names = [label["sampler"]] if label["sampler"] is not None else samplers
    at = label["rewrite"] or 0, label["temperature"], label["trial"], label["text"]
    return [place_of(sampler, label["question_id"], *at) for sampler in names]
