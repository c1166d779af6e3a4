"""One run in MLflow, in a store or on a server that may go away."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from robust_eval.error import first_line
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.record.ending import ending
from robust_eval.record.logged_values import Point, metric_points, question_columns
from robust_eval.record.run_folder import ERROR

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
        ended = ending(problem)
        try:
            self._client.set_tag(self.run_id, "error", ended.reason[:5000])
            self._client.log_text(self.run_id, ended.trace, ERROR)
            self.end(ended.status)
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
        self.rows(name, source, question_columns(questions), digest)

    def rows(self, name: str, source: str, columns: Mapping[str, Sequence[str]], digest: str) -> None:
        """Record the questions as the columns of :func:`robust_eval.record.logged_values.question_columns`."""
        import pandas as pd
        from mlflow.data.dataset_source_registry import get_dataset_source_from_json
        from mlflow.data.pandas_dataset import PandasDataset
        from mlflow.entities import DatasetInput, InputTag

        kind, key = ("http", "url") if source.startswith("https://") else ("local", "uri")
        origin = get_dataset_source_from_json(json.dumps({key: source}), kind)
        # MLflow's store takes a digest of 36 characters; the whole one is among the parameters.
        data = PandasDataset(pd.DataFrame(columns), source=origin, name=name, digest=digest[:36])
        used = DatasetInput(data._to_mlflow_entity(), [InputTag("mlflow.data.context", "evaluation")])
        self._client.log_inputs(self.run_id, [used])

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        self.metrics(metric_points(scores, figures))

    def metrics(self, points: Sequence[Point]) -> None:
        """Record values of metrics."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._batches(metrics=[Metric(point.name, point.value, now, point.step) for point in points])

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

    def leave_id(self, file: Path) -> None:
        self._run.leave_id(file)

    def parameters(self, values: Mapping[str, Any]) -> None:
        self.attempt(lambda: self._run.parameters(values))

    def tags(self, values: Mapping[str, str]) -> None:
        self.attempt(lambda: self._run.tags(values))

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        self.rows(name, source, question_columns(questions), digest)

    def rows(self, name: str, source: str, columns: Mapping[str, Sequence[str]], digest: str) -> None:
        self.attempt(lambda: self._run.rows(name, source, columns, digest))

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        self.metrics(metric_points(scores, figures))

    def metrics(self, points: Sequence[Point]) -> None:
        self.attempt(lambda: self._run.metrics(points))

    def note(self, markdown: str) -> None:
        self.attempt(lambda: self._run.note(markdown))

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        self.attempt(lambda: self._run.tables(tables))

    def folder(self, path: Path) -> None:
        self.attempt(lambda: self._run.folder(path))

    def discard(self) -> None:
        self.attempt(self._run.discard)
