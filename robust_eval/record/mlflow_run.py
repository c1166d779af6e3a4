"""One run in MLflow, in a store or on a server that may go away."""

import json
import logging
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from robust_eval.error import first_line
from robust_eval.metric.figure import HEADLINE
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.record.run_folder import ERROR
from robust_eval.runtime.printable import printable_lines

log = logging.getLogger(__name__)


class MlflowRun:
    """A run in MLflow; see :class:`robust_eval.record.tracking.Run`.

    It is written to by its id, because the library's one active run would stay active after a server went away.
    """

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self.run_id = run_id
        self._discarded = False

    def end(self, status: str) -> None:
        """End the run with the status FINISHED, FAILED or KILLED."""
        if not self._discarded:
            self._client.set_terminated(self.run_id, status)

    def fail(self, problem: BaseException) -> None:
        """Record why the run failed, and end it."""
        from mlflow.exceptions import MlflowException

        if self._discarded:
            return
        try:
            reason = printable_lines(f"{type(problem).__name__}: {problem}")
            self._client.set_tag(self.run_id, "error", reason[:5000])
            self._client.log_text(self.run_id, printable_lines("".join(traceback.format_exception(problem))), ERROR)
            stopped = isinstance(problem, SystemExit) and problem.code in (130, 143)  # a job of a sweep, by a signal
            self.end("KILLED" if stopped or isinstance(problem, KeyboardInterrupt) else "FAILED")
        except (MlflowException, OSError) as second:
            log.warning("the run could not be marked as failed: %s", first_line(second))

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

        frame = pd.DataFrame(
            {
                "id": [question.id for question in questions],
                "question": [question.title for question in questions],
                "answers": ["; ".join(question.answers) for question in questions],
            }
        )
        kind, key = ("http", "url") if source.startswith("https://") else ("local", "uri")
        origin = get_dataset_source_from_json(json.dumps({key: source}), kind)
        # MLflow's store takes a digest of 36 characters; the whole one is among the parameters.
        data = PandasDataset(frame, source=origin, name=name, digest=digest[:36])
        used = DatasetInput(data._to_mlflow_entity(), [InputTag("mlflow.data.context", "evaluation")])
        self._client.log_inputs(self.run_id, [used])

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        flat: dict[str, float] = {}
        for score in scores:
            for name, estimate in score.telling().figures().items():
                if _shown(score, name):
                    bounds = {} if math.isnan(estimate.low) else {"low": estimate.low, "high": estimate.high}
                    flat |= {name: estimate.value, **{f"{name}.{end}": bound for end, bound in bounds.items()}}
        flat |= figures
        metrics = [Metric(name, value, now, 0) for name, value in flat.items() if math.isfinite(value)]
        for score in scores:
            for curve_name in (name for name in score.curves if _shown(score, name)):
                curve = score.curves[curve_name]
                unit, steps = integer_steps(list(curve))
                points = [(estimate.value, step) for estimate, step in zip(curve.values(), steps, strict=True)]
                called = f"curve/{curve_name} by t in {unit}"
                metrics += [Metric(called, value, now, step) for value, step in points if math.isfinite(value)]
        self._batches(metrics=metrics)

    def note(self, markdown: str) -> None:
        self.tags({"mlflow.note.content": markdown})

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Record tables as JSON, which MLflow's page shows as tables; it does not show Parquet files."""
        for name, table in tables.items():
            frame = table.to_pandas().astype(object)  # MLflow selects columns in a way of which pandas 3 warns
            self._client.log_table(self.run_id, frame, f"tables/{name}.json")

    def folder(self, path: Path) -> None:
        self._client.log_artifacts(self.run_id, str(path))

    def discard(self) -> None:
        self._client.delete_run(self.run_id)
        self._discarded = True

    def _batches(self, **entities: Sequence[Any]) -> None:
        ((kind, values),) = entities.items()
        most = 1000 if kind == "metrics" else 100  # that one request takes
        for start in range(0, len(values), most):
            self._client.log_batch(self.run_id, **{kind: values[start : start + most]})


class RunOnServer:
    """A run on a server that may go away: nothing is sent after the first failure."""

    def __init__(self, run: "MlflowRun") -> None:
        self._run = run
        self.run_id = run.run_id
        self.lost = False

    def attempt(self, call: Callable[[], object]) -> None:
        from mlflow.exceptions import MlflowException

        if self.lost:
            return
        try:
            call()
        except (MlflowException, OSError) as problem:
            log.warning("tracking: the server went away: %s", first_line(problem))
            self.lost = True

    def parameters(self, values: Mapping[str, Any]) -> None:
        self.attempt(lambda: self._run.parameters(values))

    def tags(self, values: Mapping[str, str]) -> None:
        self.attempt(lambda: self._run.tags(values))

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        self.attempt(lambda: self._run.dataset(name, source, questions, digest))

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        self.attempt(lambda: self._run.scores(scores, figures))

    def note(self, markdown: str) -> None:
        self.attempt(lambda: self._run.note(markdown))

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        self.attempt(lambda: self._run.tables(tables))

    def folder(self, path: Path) -> None:
        self.attempt(lambda: self._run.folder(path))

    def discard(self) -> None:
        self.attempt(self._run.discard)


def _shown(score: Score, name: str) -> bool:
    """Tell whether a person wants a figure first, or its metric does not say of any."""
    about = score.about(name)
    return not score.declared if about is None else bool(about.shown == HEADLINE or about.leads or about.short)


UNITS = {100: "hundredths", 1000: "thousandths", 10**6: "millionths"}
"""What the steps of a curve are in."""


def integer_steps(temperatures: Sequence[float]) -> tuple[str, list[int]]:
    """Turn temperatures into MLflow's integer steps: their unit, and each in it.

    These are hundredths, so that curves of different grids lie above one another, or the first of :data:`UNITS` that
    keeps the temperatures. A model's own temperature has no number: its step is 0.

    >>> integer_steps([0.2, 1.0]), integer_steps([0.125])
    (('hundredths', [20, 100]), ('thousandths', [125]))
    """
    known = [t for t in temperatures if not math.isnan(t)]
    scale = next(
        (scale for scale in UNITS if all(abs(round(t * scale) - t * scale) < 1e-9 * scale for t in known)), max(UNITS)
    )
    return UNITS[scale], [0 if math.isnan(t) else round(t * scale) for t in temperatures]
