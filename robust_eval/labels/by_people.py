"""The labels of people beside the verdicts of a grader, answer by answer."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from robust_eval.answer import rows
from robust_eval.labels.label_file import RIGHT, UNCLEAR, WRONG, label_places, place_of
from robust_eval.labels.label_sample import ANSWER, QUESTION
from robust_eval.metric.score import HUMAN_LABEL, HUMAN_LABEL_WEIGHT, HUMAN_LABEL_WHOLE, verdicts

_NUMBERS = {RIGHT: 1.0, WRONG: 0.0, UNCLEAR: np.nan}


def with_people(graded: Mapping[str, pa.Table], labels: pa.Table) -> dict[str, pa.Table]:
    """Return the graded tables of each sampler with their human labels (:data:`HUMAN_LABEL` and the other columns).

    Where several people labelled an answer, the label that more than half of them gave counts. An answer has no label
    where there is no such majority, or where it says unclear. An answer drawn from a stratum weighs the size of the
    stratum over the number of its labels. A table takes its labels from one sample, the one that has most of them:
    answers drawn, whole questions, or what somebody else chose.
    """
    by_place, by_text = _agreed(labels, list(graded))
    return {name: _beside(name, table, by_place, by_text) for name, table in graded.items()}


def matched(graded: Mapping[str, pa.Table], labels: pa.Table) -> int:
    """Return how many answers of a run have a label, unclear ones with them."""
    by_place, by_text = _agreed(labels, list(graded))
    return sum(
        place in by_place or (place[1], text) in by_text
        for name, table in graded.items()
        for place, text in _places(name, table)
    )


class _Said:
    """The labels that one answer has from everybody, and how it was drawn."""

    def __init__(self, label: Mapping[str, Any]) -> None:
        self.drawn, self.stratum, self.size = label["drawn"], label["stratum"], label["stratum_size"]
        self.by: dict[str, str] = {}

    @property
    def agreed(self) -> str:
        label, number = Counter(self.by.values()).most_common(1)[0]
        return label if 2 * number > len(self.by) else UNCLEAR


_ByPlace = dict[tuple[str, ...], dict[str | None, _Said]]
_ByText = dict[tuple[str, str], _Said]


def _agreed(labels: pa.Table, samplers: list[str]) -> tuple[_ByPlace, _ByText]:
    by_place: _ByPlace = {}
    by_text: _ByText = {}
    for label in labels.to_pylist():
        places = label_places(label, samplers)
        for place in places:
            said = by_place.setdefault(place, {}).setdefault(label["drawn"], _Said(label))
            said.by[label["labeller"]] = label["label"]
        if not places:
            said = by_text.setdefault((label["question_id"], label["text"]), _Said(label))
            said.by[label["labeller"]] = label["label"]
    return by_place, by_text


def _places(name: str, table: pa.Table) -> list[tuple[tuple[str, ...], str]]:
    """Return the place of each answer, and its text; with how the choices were shown, where not as they stand: a letter
    is another answer there.
    """
    columns = ("question_id", "rewrite", "temperature", "trial", "text", "form")
    found = rows(table, *columns)
    return [(place_of(name, *place), text if form is None else f"{form}: {text}") for *place, text, form in found]


def _beside(name: str, table: pa.Table, by_place: _ByPlace, by_text: _ByText) -> pa.Table:
    judged = ~np.isnan(verdicts(table))
    places = _places(name, table)
    samples: dict[str | None, list[_Said | None]] = {}
    kinds = {kind for said in by_place.values() for kind in said} | ({None} if by_text else set())
    for kind in kinds:
        samples[kind] = [
            (by_place.get(place, {}).get(kind) or (by_text.get((place[1], text)) if kind is None else None))
            if counts
            else None
            for (place, text), counts in zip(places, judged, strict=True)
        ]
    ids = [place[1] for place, _ in places]
    for kind, found in samples.items():
        if kind == QUESTION:  # where labelling stopped inside one, what it has is no random part of its answers
            whole = _whole(ids, judged, found)
            samples[kind] = [said if question in whole else None for said, question in zip(found, ids, strict=True)]
    none: list[_Said | None] = [None] * len(ids)
    largest = max(samples.values(), key=lambda found: sum(said is not None for said in found), default=none)
    person = np.array([np.nan if said is None else _NUMBERS[said.agreed] for said in largest], dtype=float)
    of_whole: list[int | None] = [None] * len(ids)
    complete = max(
        (found for kind, found in samples.items() if kind != ANSWER),
        key=lambda found: len(_whole(ids, judged, found)),
        default=none,
    )
    whole = _whole(ids, judged, complete)
    for row, said in enumerate(complete):
        if said is not None and ids[row] in whole:
            of_whole[row] = {RIGHT: 1, WRONG: 0}.get(said.agreed, -1)
    columns = {
        HUMAN_LABEL: pa.array(person, pa.float64()),
        HUMAN_LABEL_WEIGHT: pa.array(_weights(largest, person), pa.float64()),
        HUMAN_LABEL_WHOLE: pa.array(of_whole, pa.int8()),
    }
    for column, values in columns.items():
        table = table.append_column(column, values)
    return table


def _whole(ids: list[str], judged: np.ndarray[Any, Any], found: list[_Said | None]) -> set[str]:
    """Return the questions of which every answer that counts has a label."""
    some = {question for question, said in zip(ids, found, strict=True) if said is not None}
    lacking = {q for q, counts, said in zip(ids, judged, found, strict=True) if counts and said is None}
    return some - lacking


def _weights(found: list[_Said | None], person: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return one over the probability with which each labelled answer was drawn."""
    clear = Counter(
        said.stratum for said, label in zip(found, person, strict=True) if said is not None and label == label
    )
    drawn = [said is not None and said.drawn == ANSWER and clear[said.stratum] > 0 for said in found]
    return np.array(
        [
            said.size / clear[said.stratum] if said and by_strata else 1.0
            for said, by_strata in zip(found, drawn, strict=True)
        ]
    )
