"""Run in MLflow, in a local store or on a server that may become unreachable."""

import json
import logging
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.error import first_line
from robust_eval.metric.metric_spec import HEADLINE
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.runtime.text import printable_lines
from robust_eval.tracking.base import Run
from robust_eval.tracking.run_folder import ERROR

log = logging.getLogger(__name__)

UNITS = {100: "hundredths", 1000: "thousandths", 10**6: "millionths"}
"""Units of the steps of a curve."""


class MlflowRun(Run):
    """Run in MLflow.

    It is addressed by its id, because the library's global active run would stay active after a server failure. With
    ``on_server`` the first failure is a warning, and nothing is sent after it.
    """

    def __init__(self, client: Any, run_id: str, on_server: bool = False) -> None:
        self._client = client
        self.run_id: str = run_id
        self._on_server = on_server
        self._discarded = False
        self.lost = False

    def end(self, status: str) -> None:
        """End the run with the status FINISHED, FAILED or KILLED."""
        if not self._discarded:
            self._write(lambda: self._client.set_terminated(self.run_id, status))

    def fail(self, problem: BaseException) -> None:
        """Record the failure and end the run: KILLED by Ctrl-C or a signal, FAILED by any other exception."""
        from mlflow.exceptions import MlflowException

        if self._discarded:
            return
        stopped = isinstance(problem, SystemExit) and problem.code in (130, 143)  # a job of a sweep, by a signal
        killed = stopped or isinstance(problem, KeyboardInterrupt)
        reason = printable_lines(f"{type(problem).__name__}: {problem}")
        try:
            self._client.set_tag(self.run_id, "error", reason[:5000])
            self._client.log_text(self.run_id, printable_lines("".join(traceback.format_exception(problem))), ERROR)
            self._client.set_terminated(self.run_id, "KILLED" if killed else "FAILED")
        except (MlflowException, OSError) as second:
            log.warning("the run could not be marked as failed: %s", first_line(second))

    def leave_id(self, file: Path) -> None:
        file.write_text(f"{self.run_id}\n", encoding="utf-8")

    def parameters(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        self._batches(params=[Param(key, str(value)[:6000]) for key, value in values.items()])

    def tags(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        self._batches(tags=[RunTag(key, value) for key, value in values.items()])

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        import pandas as pd
        from mlflow.data.dataset_source_registry import get_dataset_source_from_json
        from mlflow.data.pandas_dataset import PandasDataset
        from mlflow.entities import DatasetInput, InputTag

        kind, key = ("http", "url") if source.startswith("https://") else ("local", "uri")
        origin = get_dataset_source_from_json(json.dumps({key: source}), kind)
        frame = pd.DataFrame(question_columns(questions))
        # MLflow's store takes a digest of 36 characters; the whole one is among the parameters.
        data = PandasDataset(frame, source=origin, name=name, digest=digest[:36])
        used = DatasetInput(data._to_mlflow_entity(), [InputTag("mlflow.data.context", "evaluation")])
        self._write(lambda: self._client.log_inputs(self.run_id, [used]))

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = metric_points(scores, figures)
        self._batches(metrics=[Metric(point.name, point.value, now, point.step) for point in points])

    def note(self, markdown: str) -> None:
        self.tags({"mlflow.note.content": markdown})

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Record tables as JSON, which MLflow's page shows as tables; it does not show Parquet files."""

        def write() -> None:
            for name, table in tables.items():
                frame = table.to_pandas().astype(object)  # MLflow selects columns in a way of which pandas 3 warns
                self._client.log_table(self.run_id, frame, f"tables/{name}.json")

        self._write(write)

    def folder(self, path: Path) -> None:
        self._write(lambda: self._client.log_artifacts(self.run_id, str(path)))

    def discard(self) -> None:
        self._write(lambda: self._client.delete_run(self.run_id))
        self._discarded = not self.lost

    def _batches(self, **entities: Sequence[Any]) -> None:
        ((kind, values),) = entities.items()
        limit = 1000 if kind == "metrics" else 100  # of one request

        def write() -> None:
            for start in range(0, len(values), limit):
                self._client.log_batch(self.run_id, **{kind: values[start : start + limit]})

        self._write(write)

    def _write(self, write: Callable[[], object]) -> None:
        from mlflow.exceptions import MlflowException

        if self.lost:
            return
        try:
            write()
        except (MlflowException, OSError) as problem:
            if not self._on_server:
                raise
            log.warning("tracking: the server went away: %s", first_line(problem))
            self.lost = True


class Point(NamedTuple):
    """Value of a metric at a step; the step is 0 without a curve."""

    name: str
    value: float
    step: int = 0


def metric_points(scores: Sequence[Score], figures: Mapping[str, float]) -> list[Point]:
    """Return the defined points of the headline figures, with their intervals, of other flat figures, and of the
    curves, each under ``curve/`` by its steps.
    """
    flat: dict[str, float] = {}
    for score in scores:
        for name, estimate in score.headline().figures().items():
            if _is_headline(score, name):
                bounds = {} if math.isnan(estimate.low) else {"low": estimate.low, "high": estimate.high}
                flat |= {name: estimate.value, **{f"{name}.{end}": bound for end, bound in bounds.items()}}
    points = [Point(name, value) for name, value in (flat | dict(figures)).items()]
    for score in scores:
        for curve_name in (name for name in score.curves if _is_headline(score, name)):
            curve = score.curves[curve_name]
            unit, steps = integer_steps(list(curve))
            values = (estimate.value for estimate in curve.values())
            points += [Point(f"curve/{curve_name} by t in {unit}", *each) for each in zip(values, steps, strict=True)]
    return [point for point in points if math.isfinite(point.value)]


def question_columns(questions: Sequence[Question]) -> dict[str, list[str]]:
    """Return the columns id, question and answers."""
    return {
        "id": [question.id for question in questions],
        "question": [question.title for question in questions],
        "answers": ["; ".join(question.answers) for question in questions],
    }


def integer_steps(temperatures: Sequence[float]) -> tuple[str, list[int]]:
    """Turn temperatures into MLflow's integer steps: their unit, and each in it.

    The unit is hundredths, so that curves of different grids align, or the first of :data:`UNITS` that represents the
    temperatures exactly. The default temperature (NaN) has step 0.

    >>> integer_steps([0.2, 1.0]), integer_steps([0.125])
    (('hundredths', [20, 100]), ('thousandths', [125]))
    """
    finite = [t for t in temperatures if not math.isnan(t)]
    scale = next(
        (scale for scale in UNITS if all(abs(round(t * scale) - t * scale) < 1e-9 * scale for t in finite)), max(UNITS)
    )
    return UNITS[scale], [0 if math.isnan(t) else round(t * scale) for t in temperatures]


def _is_headline(score: Score, name: str) -> bool:
    """Return True if a figure is a headline, primary or short one, or its metric declares none."""
    about = score.about(name)
    return not score.declared if about is None else bool(about.shown == HEADLINE or about.primary or about.short)
