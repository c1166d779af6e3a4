"""Labelling session of one person: the order of replies, and the labels, each saved at once."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.error import UserError
from robust_eval.labels.label_file import LABEL_VALUES, LABELS, label_places, place_of, read_labels
from robust_eval.labels.label_sample import SampledAnswer
from robust_eval.question import Question
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.runtime.process import process_lock


class LabelItem(NamedTuple):
    """Reply to be labelled; a reply that was drawn several times is shown once."""

    number: int
    question: Question
    text: str
    label: str | None
    """Current label of the person."""


class Labelling:
    """Labels of one person for the sampled answers, in a file that several people and programs may write to."""

    def __init__(
        self, file: Path, order: Sequence[SampledAnswer], questions: Mapping[str, Question], labeller: str
    ) -> None:
        self._file, self._order, self._questions, self.labeller = file, list(order), questions, labeller
        self._items = list(dict.fromkeys((row.question_id, row.text) for row in order))
        numbers = {key: number for number, key in enumerate(self._items)}
        self._item_of = [numbers[row.question_id, row.text] for row in order]
        self._places = [
            place_of(row.sampler, row.question_id, row.rewrite, row.temperature, row.trial, row.text) for row in order
        ]
        self._labels: dict[int, str] = {}
        self._open_items: dict[str, int] = {}
        self._last: list[int] = []
        self._lock = threading.Lock()
        if file.is_file():
            self._refuse_other_sample(read_labels(file))
        self._read()

    @property
    def done(self) -> int:
        """Number of replies that this person has labelled."""
        return len(self._labels)

    def __len__(self) -> int:
        return len(self._items)

    def item(self, number: int) -> LabelItem:
        """Return the reply of this number in the labelling session."""
        question_id, text = self._items[number]
        return LabelItem(number, self._questions[question_id], text, self._labels.get(number))

    def next(self, window: str = "") -> LabelItem | None:
        """Return the next reply to label in a window; None if all are labelled.

        Windows that are open at once show different replies, as long as there are enough.
        """
        with self._lock:
            self._read()
            left = [number for number in range(len(self._items)) if number not in self._labels]
            elsewhere = {number for other, number in self._open_items.items() if other != window}
            free = [number for number in left if number not in elsewhere] or left
            if not free:
                self._open_items.pop(window, None)
                return None
            self._open_items[window] = free[0]
            return self.item(free[0])

    def back(self, window: str = "") -> LabelItem | None:
        """Return the reply labelled last in this process, to be labelled anew; None without any."""
        with self._lock:
            self._read()
            if not self._last:
                return None
            self._open_items[window] = self._last.pop()
            return self.item(self._open_items[window])

    def label(self, number: int, label: str, expected: str | None = None) -> bool:
        """Save a label and return True; return False without saving if the current label is not ``expected``."""
        if label not in LABEL_VALUES or not 0 <= number < len(self._items):
            raise ValueError(f"there is no label {label} of reply {number}")
        with self._lock, process_lock(self._file.with_name(f".{self._file.name}.lock")):
            table = self._read()
            if self._labels.get(number) != expected:
                return False
            self._labels[number] = label
            self._last = [each for each in self._last if each != number] + [number]
            write_parquet(pa.concat_tables([table, self._rows()]), self._file)
        return True

    def _read(self) -> pa.Table:
        """Load this person's labels of the sample from the file; return all other labels in it."""
        if not self._file.is_file():
            return LABELS.empty_table()
        table = read_labels(self._file)
        keys = [(row.drawn, place) for row, place in zip(self._order, self._places, strict=True)]
        item_of = dict(zip(keys, self._item_of, strict=True))
        is_own, labels = [], {}
        for label in table.to_pylist():
            key = next(((label["drawn"], place) for place in label_places(label, [""])), None)
            mine = label["labeller"] == self.labeller and key in item_of
            is_own.append(mine)
            if mine and key is not None:
                labels[item_of[key]] = label["label"]
        self._labels = labels
        return table.filter(pc.invert(pa.array(is_own, pa.bool_())))

    def _rows(self) -> pa.Table:
        """Return this person's labels as rows.

        A reply that was drawn several times counts once until all that was drawn before it is labelled, so that the
        file holds a sample wherever labelling stops.
        """
        reached = next((row for row, item in enumerate(self._item_of) if item not in self._labels), len(self._order))
        first: set[int] = set()
        records: list[dict[str, Any]] = []
        for row, (answer, item) in enumerate(zip(self._order, self._item_of, strict=True)):
            if item in self._labels and (row < reached or item not in first):
                records.append({**answer._asdict(), "label": self._labels[item], "labeller": self.labeller})
            first.add(item)
        return pa.Table.from_pylist(records, LABELS)

    def _refuse_other_sample(self, labels: pa.Table) -> None:
        """Raise UserError for labels drawn from strata that the run no longer has."""
        sizes = {row.stratum: row.stratum_size for row in self._order if row.stratum}
        method = self._order[0].drawn if self._order else ""
        for label in labels.to_pylist():
            stratum, size = label["stratum"], label["stratum_size"]
            if label["drawn"] == method and stratum and sizes.get(stratum, size) != size:
                raise UserError(
                    f"{self._file} has labels that were drawn before the run was regraded ({stratum} had {size} "
                    f"answers, now {sizes[stratum]}): rename the file, and use it with labels=FILE"
                )
