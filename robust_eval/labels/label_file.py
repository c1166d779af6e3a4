"""A file of labels: right, wrong or unclear, what people said of answers, and how these were drawn."""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.dataset.file_formats import KINDS, read_records
from robust_eval.error import UserError
from robust_eval.runtime.text import printable
from robust_eval.stats.agreement import cohen_kappa

RIGHT, WRONG, UNCLEAR = "right", "wrong", "unclear"
SAID = (RIGHT, WRONG, UNCLEAR)
"""What a label can be."""
ELSEWHERE = "elsewhere"
"""The labeller, where a file names none."""
LABELS = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),  # the reply as it came
        pa.field("label", pa.string(), nullable=False),  # right | wrong | unclear
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
    UNCLEAR: UNCLEAR,
}
_TEXT, _LABEL, _ID = ("text", "reply", "answer"), ("label", "correct", "right"), ("question_id", "id")
_PLACE = {"rewrite": int, "temperature": float, "trial": int, "stratum_size": int}


def read_labels(file: Path) -> pa.Table:
    """Return the labels of a file (:data:`LABELS`): our own, or a table of anybody's.

    It needs ``question_id``, the reply (``text`` or ``reply``) and ``label`` (right, wrong, unclear) or ``correct``
    (true, false). ``labeller`` says who gave it; ``temperature`` and ``trial``, with ``rewrite`` and ``sampler``, name
    one answer, and without them a label is that of every answer with this text. UserError names the first row that is
    wrong.
    """
    if file.suffix.lower() not in KINDS:
        raise UserError(f"labels must be a file that ends in {', '.join(KINDS)}; {file} does not")
    try:
        rows = [_label(record, f"{file}, row {number}") for number, record in enumerate(read_records(file), start=1)]
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror or problem}") from problem
    if not rows:
        raise UserError(f"{file} holds no label")
    return pa.Table.from_pylist(rows, LABELS)


def _label(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "question_id": _first(record, _ID, where),
        "text": _first(record, _TEXT, where),
        "labeller": str(record.get("labeller") or ELSEWHERE),
    }
    said = _first(record, _LABEL, where)
    word = said.strip().lower().removesuffix(".0")
    if word not in _WORDS:
        raise UserError(f"{where}: a label is right, wrong or unclear, not {printable(said)[:60]}")
    found["label"] = _WORDS[word]
    for name, kind in _PLACE.items():
        value = record.get(name)
        if value is not None and value != "":
            try:
                found[name] = kind(value)
            except (TypeError, ValueError, OverflowError) as problem:
                raise UserError(f"{where}: {name} must be a number, not {printable(str(value))[:60]}") from problem
    for name in ("sampler", "drawn", "stratum"):
        found[name] = None if record.get(name) in (None, "") else str(record[name])
    if ("temperature" in found) != ("trial" in found):
        raise UserError(f"{where}: an answer is named by its temperature and its trial, not by one of them")
    drawn = found["drawn"]
    if drawn not in (None, "answer", "question") or (drawn == "answer" and not found.get("stratum_size", 0) > 0):
        raise UserError(f"{where}: drawn must be answer, with the stratum and its size, or question")
    return found


def _first(record: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    for name in names:
        if record.get(name) is not None:
            return str(record[name])
    raise UserError(f"{where}: there is no {' or '.join(names)}")


def place_of(sampler: str, question_id: str, rewrite: int, temperature: float, trial: int) -> tuple[str, ...]:
    """Return the place of an answer in a run as a key; a temperature of NaN is equal to itself in it."""
    level = "own" if math.isnan(temperature) else repr(float(temperature))
    return sampler, question_id, str(rewrite), level, str(trial)


def label_places(label: Mapping[str, Any], samplers: Iterator[str] | list[str]) -> list[tuple[str, ...]]:
    """Return the places in a run that a label names; none where it names only a text."""
    if label["trial"] is None or label["temperature"] is None:
        return []
    named = [label["sampler"]] if label["sampler"] is not None else samplers
    at = label["rewrite"] or 0, label["temperature"], label["trial"]
    return [place_of(sampler, label["question_id"], *at) for sampler in named]


class Agreed(NamedTuple):
    """Two labellers: how many ``replies`` both labelled, on how many they said the ``same``, and Cohen's κ."""

    first: str
    second: str
    replies: int
    same: int
    kappa: float


def agreements(labels: pa.Table) -> Iterator[Agreed]:
    """Yield the agreement of every two labellers who labelled the same replies; unclear is a third label."""
    said: dict[str, dict[tuple[str, str], str]] = {}
    for label in labels.to_pylist():
        said.setdefault(label["labeller"], {})[label["question_id"], label["text"]] = label["label"]
    for first, second in combinations(sorted(said), 2):
        both = said[first].keys() & said[second].keys()
        counts = np.zeros((len(SAID), len(SAID)), dtype=int)
        for reply in both:
            counts[SAID.index(said[first][reply]), SAID.index(said[second][reply])] += 1
        if both:
            yield Agreed(first, second, len(both), int(np.trace(counts)), cohen_kappa(counts))
