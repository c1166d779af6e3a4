"""Questions shared by several measurements, with the results of each."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.metric.metric_spec import MetricSpec, curve_and_temperature, point, spec_of
from robust_eval.runs.finished_runs import FinishedRun, Labels
from robust_eval.stats.interval import Floats

P = TypeVar("P", bound=Sequence[Any])
MIN_SHOWN_RANGE = 0.0005
"""Minimum range of a metric that is not printed as 0.000."""


@dataclass(frozen=True)
class SharedQuestions:
    """Shared questions, those that at least two of several measurements asked, in the order of the first.

    ``measured`` are the labels of the m measurements, the columns of (n, m) arrays: ``kept`` is 1 or 0, NaN if a
    measurement did not ask the question; ``breaking`` is inf if unbroken, and NaN if unknown. ``metrics`` maps the
    names of the metrics compared by question (``of_question`` of what is ``specs``) that at least two measurements
    have to their values, NaN if undefined: of an FRS that for the first common weight d, of a curve that at the common
    temperature nearest to 1. ``answers`` are the greedy ones with their ``verdicts``, None if unavailable; ``pages``
    are the reports.
    """

    dataset: str
    measured: list[str]
    ids: list[str]
    texts: list[str]
    kept: Floats
    breaking: Floats
    metrics: dict[str, Floats]
    specs: list[MetricSpec]
    answers: NDArray[np.object_]
    verdicts: NDArray[np.object_]
    pages: list[Path | None]

    @cached_property
    def ranges(self) -> dict[str, Floats]:
        """(n,) range of each metric of shared questions: its largest value over the measurements minus its smallest.

        NaN if fewer than two measurements have a value.
        """
        return {name: _range(values) for name, values in self.metrics.items()}

    @cached_property
    def divided(self) -> NDArray[np.bool_]:
        """(n,) booleans, true for shared questions that some measurements kept and others did not."""
        return np.asarray(_range(self.kept) == 1)

    def differs(self, metric: str) -> NDArray[np.bool_]:
        """Return (n,) booleans, true for shared questions on which the measurements visibly differ in a metric.

        Equal answers may have metrics that differ in insignificant digits, by rounding or by the batch context.
        """
        return self.ranges[metric] >= MIN_SHOWN_RANGE

    def differing(self, metric: str, limit: int) -> NDArray[np.intp]:
        """Return up to ``limit`` rows of shared questions in which a metric differs, the largest range first.

        Ties go to the question with the larger range of the metric's tie breaker, then to the earlier one.
        """
        rows = np.flatnonzero(self.differs(metric))
        tie_ranges = np.nan_to_num(self._tie_ranges(metric)[rows], posinf=math.inf)
        return rows[np.lexsort((rows, -tie_ranges, -self.ranges[metric][rows]))][:limit]

    def disputed(self, limit: int) -> NDArray[np.intp]:
        """Return up to ``limit`` rows of shared questions that some kept and others did not.

        Questions with the best value of the leading metric come first; without one, earlier ones.
        """
        divided_rows = np.flatnonzero(self.divided)
        if self.leading is None:
            return divided_rows[:limit]
        scores = self.metrics[self.leading]
        if self.spec(self.leading).more_is_better is False:
            scores = -scores
        highest = np.max(np.nan_to_num(scores[divided_rows], nan=-np.inf), axis=1, initial=-np.inf)
        return divided_rows[np.lexsort((divided_rows, -highest))][:limit]

    @cached_property
    def leading(self) -> str | None:
        """First primary metric of the shared questions; None without one."""
        return next((name for name in self.metrics if self.spec(name).primary), None)

    def spec(self, metric: str) -> MetricSpec:
        """Return the spec of a shared metric; without one, a spec of its name."""
        return spec_of(metric, self.specs) or MetricSpec(metric, metric)

    def breaks(self, metric: str) -> bool:
        """Return True if breaking temperatures break a metric's ties between shared questions."""
        return self.spec(self.spec(metric).tie_breaker).is_threshold

    def _tie_ranges(self, metric: str) -> Floats:
        """Return (n,) the range of a metric's tie breaker on shared questions; 0 without one."""
        if self.breaks(metric):
            return _range(self.breaking)
        name, curve = self.spec(metric).tie_breaker, curve_and_temperature(metric)
        return self.ranges.get(name if curve is None else point(name, curve[1]), np.zeros(len(self.ids)))

    def as_data(self) -> pa.Table:
        """Return a row for each shared question and each measurement that asked it, with the range of each metric."""
        rows, columns = np.nonzero(~np.isnan(self.kept))
        texts = {
            "dataset": [self.dataset] * len(rows),
            "question_id": [self.ids[row] for row in rows],
            "question": [self.texts[row] for row in rows],
            "measured": [self.measured[column] for column in columns],
            "answer": self.answers[rows, columns],
            "verdict": self.verdicts[rows, columns],
        }
        data: dict[str, Any] = {name: pa.array(values, pa.string()) for name, values in texts.items()} | {
            "kept": self.kept[rows, columns] == 1,
            "divided": self.divided[rows],
            "breaking_temperature": self.breaking[rows, columns],
        }
        for name, values in self.metrics.items():
            data[name] = values[rows, columns]
            data[f"{name}.range"] = self.ranges[name][rows]
        return pa.table(data)


def shared_questions(
    measurements: Sequence[FinishedRun], names: Labels, pairs: Sequence[tuple[int, int]]
) -> list[SharedQuestions]:
    """Return the shared questions of each connected component of measurements; ``pairs`` share questions."""
    components = [sorted({*chain(*pairs)}) for pairs in connected(pairs)]
    return [_side_by_side(measurements, names, indices) for indices in sorted(components)]


def connected(pairs: Sequence[P]) -> list[list[P]]:
    """Return the connected components of pairs of runs, whose first two elements are linked; they share no element."""
    components: list[list[P]] = []
    for pair in pairs:
        touched = [part for part in components if any({*pair[:2]} & {*other[:2]} for other in part)]
        components = [part for part in components if part not in touched]
        components.append([*chain(*touched), pair])
    return components


def _side_by_side(measurements: Sequence[FinishedRun], names: Labels, indices: Sequence[int]) -> SharedQuestions:
    runs = [measurements[index] for index in indices]
    datasets = list(dict.fromkeys(names.datasets[index] for index in indices))
    labels = names.subjects if len(datasets) == 1 else names.full
    keys = [run.keys() for run in runs]
    counts = Counter(chain(*keys))
    shared = [key for key, times in counts.items() if times > 1]
    row_of = {key: row for row, key in enumerate(shared)}
    rows = [np.array([row_of.get(key, -1) for key in each], dtype=int) for each in keys]

    def columns(values_of: Callable[[FinishedRun], Floats | None]) -> Floats:
        """Return (n, m) the values of each run on shared questions, NaN if missing."""
        matrix = np.full((len(shared), len(runs)), np.nan)
        for column, (run, each) in enumerate(zip(runs, rows, strict=True)):
            values = values_of(run)
            if values is not None:
                matrix[each[each >= 0], column] = values[each >= 0]
        return matrix

    answers, verdicts = (np.full((len(shared), len(runs)), None, dtype=object) for _ in range(2))
    kept_columns = columns(lambda run: run.kept().astype(float))
    for row, column in np.argwhere(~np.isnan(kept_columns)):  # elsewhere another question may have that id
        if answer := runs[column].greedy.get(shared[row][0]):
            answers[row, column], verdicts[row, column] = answer
    declarations = list({spec.name: spec for run in reversed(runs) for spec in run.specs}.values())
    return SharedQuestions(
        " and ".join(datasets),
        [labels[index] for index in indices],
        [question_id for question_id, _ in shared],
        [text for _, text in shared],
        kept_columns,
        columns(lambda run: run.breaking_temperatures()[1]),
        {name: columns(partial(_values, name)) for name in _main_metrics(runs, declarations)},
        declarations,
        answers,
        verdicts,
        [run.page for run in runs],
    )


def _main_metrics(runs: Sequence[FinishedRun], declarations: Sequence[MetricSpec]) -> Iterator[str]:
    """Yield the names of the metrics compared by question that at least two of the runs have."""
    for spec in declarations:
        names = [
            matching for run in runs if spec.of_question and (matching := spec.covered_names(run.question_metrics))
        ]
        common = [name for name in names[0] if all(name in each for each in names)] if len(names) > 1 else []
        yield from common[:1]


def _values(metric: str, run: FinishedRun) -> Floats | None:
    return run.values(metric) if metric in run.question_metrics else None


def _range(values: Floats) -> Floats:
    """Return the range (n, m) → (n,): the largest minus the smallest defined value, NaN with fewer than two."""
    defined = ~np.isnan(values)
    highest = np.where(defined, values, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(defined, values, np.inf).min(axis=1, initial=np.inf)
    ranges = np.subtract(highest, lowest, out=np.zeros(len(values)), where=highest != lowest)  # ∞ − ∞: both unbroken
    return np.where(defined.sum(axis=1) > 1, ranges, np.nan)
