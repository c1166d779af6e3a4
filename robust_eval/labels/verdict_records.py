"""Replies with human verdicts: from a file with one record a line, or from a labelled run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.answer import rows, temperature_name
from robust_eval.error import UserError
from robust_eval.grader.accepted_forms import accepted_answers
from robust_eval.metric.score import HUMAN_LABEL, HUMAN_LABEL_WEIGHT, verdicts
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.json_files import json_lines
from robust_eval.runtime.text import json_excerpt

FIELDS = ("question", "answers", "choices", "correct_choice", "incorrect", "reply", "correct", "slice")
EVOUNA_FIELDS = ("set", "question", "accepted", "model", "reply", "human")
"""Fields of the human verdicts of EVOUNA (Wang et al., 2023); set and model make the slice."""


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
        raise UserError(f"{file} contains no record")
    return records


def record_of(entry: Any, line: str) -> Record:
    """Return one record of a human verdict; ValueError names its error."""
    if not isinstance(entry, dict):
        raise ValueError(f"a record must be a JSON object, not {json_excerpt(entry)}")
    if "human" in entry:
        entry = _of_evouna(entry)
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
            raise ValueError(f"{name!r} must be {expected}, not {json_excerpt(entry[name])}")
    for name in ("answers", "choices", "incorrect"):
        texts = entry.get(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name!r} must be a list of strings, not {json_excerpt(texts)}")
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
        raise ValueError("'answers' must contain an accepted answer that is not blank, or 'choices' must be given")
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
