"""Samples of a run's answers to label, and the labelling session of one person, who labels them one by one."""

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import SAMPLER, rows, temperature_name
from robust_eval.error import UserError
from robust_eval.labels.label_records import LABEL_VALUES, LABELS, label_places, place_of, read_labels
from robust_eval.metric.score import verdicts
from robust_eval.question import Question, seeded_rank
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.runtime.process import process_lock

ANSWER, QUESTION = "answer", "question"
"""Sampling methods: single answers, or all answers to a question together."""


class SampledAnswer(NamedTuple):
    """Answer sampled for labelling. ``stratum_size`` is the number of answers in its stratum; 1 in whole questions."""

    question_id: str
    text: str
    sampler: str
    rewrite: int
    temperature: float
    trial: int
    drawn: str
    stratum: str
    stratum_size: int


def sample(graded: pa.Table, by: str, size: int, seed: int) -> list[SampledAnswer]:
    """Return a sample of the answers to label, in display order, from the graded answers of a run.

    Only answers that count are drawn: those with a verdict, and to choices as they stand in their question, because
    that is how people see it. By answer a stratum is a sampler, a temperature, a verdict, and whether that is
    uncertain. Uncertain answers come first: every other answer is one, until all of them are drawn. Among them, and
    among the others, the share of a stratum is proportional to the square root of its size, so that rare verdicts are
    not left out and large strata are not stinted (power allocation; Bankier, The American Statistician 42, 1988). Any
    beginning of the order is a sample of both with known probabilities, so labelling may stop anywhere. By question
    ``size`` counts questions, each of which is as likely to be drawn.
    """
    columns = ("question_id", "text", SAMPLER, "rewrite", "temperature", "trial")
    answers = zip(rows(graded, *columns), verdicts(graded).tolist(), rows(graded, "form", "uncertain"), strict=True)
    table = [
        (row, right, bool(is_uncertain))
        for row, right, (form, is_uncertain) in answers
        if not math.isnan(right) and form is None
    ]
    if by == QUESTION:
        ids = {row[0] for row, *_ in table}
        chosen = sorted(ids, key=lambda question_id: seeded_rank(seed, question_id))[:size]
        turn_of = {question_id: number for number, question_id in enumerate(chosen)}
        whole = [SampledAnswer(*(*row, QUESTION, "", 1)) for row, *_ in table if row[0] in turn_of]
        return sorted(whole, key=lambda row: (turn_of[row.question_id], row.text))
    strata = [
        f"{row[2]}, t = {temperature_name(row[4])}, {'right' if right else 'wrong'}"
        f"{', uncertain' if is_uncertain else ''}"
        for row, right, is_uncertain in table
    ]
    ranks = [seeded_rank(seed, row[2], row[0], *map(str, row[3:])) for row, *_ in table]
    allocated = _allocated(strata, sorted(range(len(table)), key=ranks.__getitem__))
    uncertain, certain = (
        [number for number in allocated if table[number][2] is is_uncertain] for is_uncertain in (True, False)
    )
    sizes = Counter(strata)
    order = list(_alternating(uncertain, certain))[:size]
    return [SampledAnswer(*(*table[number][0], ANSWER, strata[number], sizes[strata[number]])) for number in order]


def _allocated(strata: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """Order the numbers of answers such that every prefix has from each of the ``strata`` a share proportional to the
    square root of its size; those of one stratum stay in their order.
    """
    sizes, turn = Counter(strata), Counter[str]()
    places: list[tuple[float, str, int]] = []
    for number in numbers:
        stratum = strata[number]
        places.append(((turn[stratum] + 0.5) / math.sqrt(sizes[stratum]), stratum, number))
        turn[stratum] += 1
    return [number for _, _, number in sorted(places)]


def _alternating(first: Sequence[int], second: Sequence[int]) -> Iterator[int]:
    """Yield the items of two sequences in turns, then the rest of the longer one."""
    for pair in zip_longest(first, second):
        yield from (number for number in pair if number is not None)


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
