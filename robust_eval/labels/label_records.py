"""Records of human labels: right, wrong, abstained or unclear for answers of a run, or replies with their questions."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.answer import ABSTAINED, rows, temperature_name
from robust_eval.dataset.file_formats import KINDS, read_records
from robust_eval.error import UserError
from robust_eval.grader.accepted_forms import accepted_answers
from robust_eval.metric.score import HUMAN_LABEL, HUMAN_LABEL_WEIGHT, verdicts
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.json_files import json_lines
from robust_eval.runtime.text import json_excerpt, printable

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
        raise UserError(f"{file} contains no labels")
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
    """Return the place of an answer in a run, and last its text, as a key for human labels.

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


FIELDS = ("question", "answers", "choices", "correct_choice", "incorrect", "reply", "correct", "slice")
EVOUNA_FIELDS = ("set", "question", "accepted", "model", "reply", "human")
"""Fields of the human verdicts of EVOUNA (Wang et al., 2023); set and model make the slice."""
_EVOUNA_NAMES = {"answers": "accepted", "correct": "human"}
"""Field names in EVOUNA, where they differ."""


class RunReading(NamedTuple):
    """Grading of a reply in a run: extracted answer and its rule, or the reason for none; outcome; verdict of the
    grader.
    """

    answer: str | None
    rule: str | None
    reason: str | None
    outcome: str
    right: bool


@dataclass(frozen=True)
class Record:
    """Record of a reply with the verdict of a person.

    ``weight`` is one over the probability with which it was drawn, ``run`` its reading in a run, if it is of one.
    """

    question: Question
    reply: str
    right: bool
    slice: str = ""
    weight: float = 1.0
    run: RunReading | None = None


def labelled_records(graded: Mapping[str, pa.Table], questions: Mapping[str, Question], data: str) -> list[Record]:
    """Return a record for each labelled answer in tables with human labels
    (:func:`robust_eval.labels.human_labels.with_human_labels`); ``data`` names the data set.
    """
    records: list[Record] = []
    columns = ("question_id", "text", "temperature", "answer", "rule", "reason", "outcome")
    for table in graded.values():
        for row, verdict in zip(
            rows(table, *columns, HUMAN_LABEL, HUMAN_LABEL_WEIGHT), verdicts(table).tolist(), strict=True
        ):
            question_id, text, temperature, answer, rule, reason, outcome, person, weight = row
            if person == person and verdict == verdict:
                of_run = RunReading(answer, rule, reason, outcome, verdict == 1)
                part = f"{data}, t = {temperature_name(temperature)}"
                records.append(Record(questions[question_id], text, person == 1, part, weight, of_run))
    return records


def read_records_of_people(file: Path) -> list[Record]:
    """Return the records of human verdicts in a file; UserError names the first broken line.

    A line is a JSON object with ``question``, ``answers`` (or ``choices`` and ``correct_choice``), ``reply`` and
    ``correct``: the verdict of a person. ``incorrect`` holds references that are wrong, ``slice`` names a part of the
    data. The fields of EVOUNA are read as well: ``accepted`` are the answers, ``human`` is the verdict, ``set`` and
    ``model`` are the slice.
    """
    records = []
    for where, _, entry in json_lines(file):
        try:
            records.append(record_of(entry, where.rpartition(" ")[2]))
        except ValueError as problem:
            raise UserError(f"{where}: {problem}") from problem
    if not records:
        raise UserError(f"{file} contains no records")
    return records


def record_of(entry: Any, line: str) -> Record:
    """Return one record of a human verdict; ValueError names its error."""
    if not isinstance(entry, dict):
        raise ValueError(f"a record must be a JSON object, not {json_excerpt(entry)}")
    names = {name: name for name in FIELDS}
    if "human" in entry:
        entry = _of_evouna(entry)
        names |= _EVOUNA_NAMES
    if unknown := sorted(set(entry) - set(FIELDS)):
        raise ValueError(f"unknown field {unknown[0]!r}; known fields are {', '.join(FIELDS)}")
    for name, kind, expected in (
        ("question", str, "a string"),
        ("reply", str, "a string"),
        ("correct", bool, "true or false"),
    ):
        if name not in entry:
            raise ValueError(f"{name!r} is missing")
        if type(entry[name]) is not kind:
            raise ValueError(f"{names[name]!r} must be {expected}, not {json_excerpt(entry[name])}")
    for name in ("answers", "choices", "incorrect"):
        texts = entry.get(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{names[name]!r} must be a list of strings, not {json_excerpt(texts)}")
    choices, key = entry.get("choices", []), entry.get("correct_choice")
    if choices and not 2 <= len(choices) <= len(LETTERS):
        raise ValueError(f"'choices' must contain 2 to {len(LETTERS)} strings, not {len(choices)}")
    if choices and (type(key) is not int or not 0 <= key < len(choices)):
        raise ValueError(
            f"'correct_choice' must be the index of the right choice (0 to {len(choices) - 1}), not {json_excerpt(key)}"
        )
    question = Question(
        id=line,
        text=entry["question"],
        answers=tuple(entry.get("answers", [])),
        choices=tuple(choices),
        correct=key if choices else None,
        incorrect=tuple(entry.get("incorrect", [])),
    )
    if not choices and not accepted_answers(question)[0]:
        alternative = ", or 'choices' must be given" if names["answers"] == "answers" else ""
        raise ValueError(f"{names['answers']!r} must contain an accepted answer that is not blank{alternative}")
    if not isinstance(entry.get("slice", ""), str):
        raise ValueError(f"'slice' must be a string, not {json_excerpt(entry['slice'])}")
    return Record(question, entry["reply"], entry["correct"], entry.get("slice", ""))


def _of_evouna(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of EVOUNA with this package's fields; ValueError names a missing or unknown field."""
    if missing := [name for name in EVOUNA_FIELDS if name not in entry]:
        raise ValueError(f"field {missing[0]!r} is missing; a record with 'human' must have {', '.join(EVOUNA_FIELDS)}")
    if unknown := sorted(set(entry) - set(EVOUNA_FIELDS)):
        raise ValueError(f"unknown field {unknown[0]!r}; a record with 'human' must have {', '.join(EVOUNA_FIELDS)}")
    return {
        "question": entry["question"],
        "answers": entry["accepted"],
        "reply": entry["reply"],
        "correct": entry["human"],
        "slice": f"{entry['set']}, {entry['model']}",
    }
