"""MLflow, and nothing but MLflow: one run of an experiment is one run in its store."""

import json
import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from robust_eval.error import UserError, first_line
from robust_eval.metric.score import Score
from robust_eval.question import Question

log = logging.getLogger(__name__)

RESERVE = 1 << 20
"""Bytes that are kept on the disk during a run, for the database to grow into when nothing else is left."""


class Tracking(Protocol):
    """A place where runs are recorded; a dataclass whose fields are its configuration."""

    def run(self, name: str, mlruns: Path) -> AbstractContextManager["Run"]:
        """Record the run that happens inside of the context; one that is left by an exception has failed."""

    def command(self, mlruns: Path) -> str | None:
        """The command that shows the runs, if there is one."""


class Run(Protocol):
    """A run that is being recorded."""

    def parameters(self, values: Mapping[str, Any]) -> None:
        """Settings, flat."""

    def tags(self, values: Mapping[str, str]) -> None:
        """What describes the run without being a setting."""

    def dataset(self, name: str, file: Path, questions: Sequence[Question], digest: str) -> None:
        """The questions, with their fingerprint."""

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        """The metrics' figures, curves by integer step, and other flat figures."""

    def folder(self, path: Path) -> None:
        """Everything in the run's folder, as artifacts."""


@dataclass
class Untracked:
    """tracking=none: the run's folder is all that is left of a run, and MLflow is not imported."""

    @contextmanager
    def run(self, name: str, mlruns: Path) -> Iterator[Run]:
        """A run that is recorded nowhere."""
        yield _Nothing()

    def command(self, mlruns: Path) -> str | None:
        """No user interface."""
        return None


class _Nothing:
    def parameters(self, values: Mapping[str, Any]) -> None: ...

    def tags(self, values: Mapping[str, str]) -> None: ...

    def dataset(self, name: str, file: Path, questions: Sequence[Question], digest: str) -> None: ...

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None: ...

    def folder(self, path: Path) -> None: ...


@dataclass
class Mlflow:
    """tracking=mlflow: a store under mlruns/, or a server."""

    experiment: str = "robust_eval"
    """The MLflow experiment that collects the runs."""
    uri: str | None = None
    """Of a tracking server; null: an SQLite database in the folder paths.mlruns."""

    def store(self, mlruns: Path) -> str:
        """The tracking URI. Absolute, because MLflow's default depends on the working directory."""
        return self.uri or f"sqlite:///{mlruns.resolve()}/mlflow.db"

    def command(self, mlruns: Path) -> str | None:
        """The command that opens MLflow's user interface on this store; None for a server, which has one."""
        if self.uri:
            return None
        return f"{shlex.quote(sys.executable)} -m mlflow ui --backend-store-uri {shlex.quote(self.store(mlruns))}"

    @contextmanager
    def run(self, name: str, mlruns: Path) -> Iterator[Run]:
        """Record a run; one that is left by an exception, or interrupted, is FAILED."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # an evaluation tells nobody that it ran
        import mlflow
        from mlflow.exceptions import MlflowException

        for library in ("mlflow", "alembic"):  # the tables that a fresh store makes are no news
            logging.getLogger(library).setLevel(logging.WARNING)
        try:
            run_id = self._start(name, mlruns)
        except (MlflowException, OSError) as problem:
            raise UserError(f"tracking: {self.store(mlruns)} cannot be used: {first_line(problem)}") from problem
        reserve = mlruns / f"reserve-{run_id}"
        try:
            reserve.write_bytes(bytes(RESERVE))
            yield _MlflowRun(run_id)
            mlflow.end_run()
        except BaseException as problem:  # also an interruption: whatever ends a run early has failed it
            reserve.unlink(missing_ok=True)  # so that the failure can be written down on a full disk, too
            self._fail(problem)
            if isinstance(problem, MlflowException | OSError):
                raise UserError(f"tracking: {self.store(mlruns)} failed: {first_line(problem)}") from problem
            raise
        reserve.unlink()

    def _start(self, name: str, mlruns: Path) -> str:
        import mlflow

        mlruns.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(self.store(mlruns))
        with FileLock(mlruns / "mlflow.lock"):  # several processes that create one fresh database would crash
            client = mlflow.MlflowClient()
            found = client.get_experiment_by_name(self.experiment)
            location = None if self.uri else (mlruns.resolve() / "artifacts").as_uri()
            experiment_id = found.experiment_id if found else client.create_experiment(self.experiment, location)
        return str(mlflow.start_run(experiment_id=experiment_id, run_name=name).info.run_id)

    def _fail(self, problem: BaseException) -> None:
        import mlflow
        from mlflow.exceptions import MlflowException

        try:
            mlflow.set_tag("error", f"{type(problem).__name__}: {problem}"[:5000])
            mlflow.end_run("FAILED")
        except MlflowException as second:
            log.warning("the run could not be marked as failed: %s", first_line(second))


class _MlflowRun:
    """Writes into MLflow's active run; see :class:`Run`."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def parameters(self, values: Mapping[str, Any]) -> None:
        import mlflow

        mlflow.log_params({key: str(value)[:6000] for key, value in values.items()})

    def tags(self, values: Mapping[str, str]) -> None:
        import mlflow

        mlflow.set_tags(dict(values))

    def dataset(self, name: str, file: Path, questions: Sequence[Question], digest: str) -> None:
        import mlflow
        import pandas as pd
        from mlflow.data.dataset_source_registry import get_dataset_source_from_json
        from mlflow.data.pandas_dataset import PandasDataset

        frame = pd.DataFrame(
            {
                "id": [question.id for question in questions],
                "question": [question.text for question in questions],
                "answers": ["; ".join(question.answers) for question in questions],
            }
        )
        source = get_dataset_source_from_json(json.dumps({"uri": str(file)}), "local")
        # MLflow's store takes a digest of 36 characters; the whole one is among the parameters.
        mlflow.log_input(PandasDataset(frame, source=source, name=name, digest=digest[:36]), context="evaluation")

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        import mlflow
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        flat = dict(figures)
        for score in scores:
            flat |= Score(values=score.values).flat()
        metrics = [Metric(name, value, now, 0) for name, value in flat.items() if math.isfinite(value)]
        for curve_name, curve in ((name, curve) for score in scores for name, curve in score.curves.items()):
            for step, temperature in zip(integer_steps(list(curve)), curve, strict=True):
                for suffix, value in zip(("", ".low", ".high"), curve[temperature], strict=True):
                    if math.isfinite(value):
                        metrics.append(Metric(curve_name + suffix, value, now, step))
        client = mlflow.MlflowClient()
        for start in range(0, len(metrics), 1000):  # the most that one request takes
            client.log_batch(self._run_id, metrics=metrics[start : start + 1000])

    def folder(self, path: Path) -> None:
        import mlflow

        mlflow.log_artifacts(str(path))


def integer_steps(temperatures: Sequence[float]) -> list[int]:
    """MLflow's steps are integers: temperatures times 10, or times the least power of ten that keeps them apart.

    >>> integer_steps([0.2, 1.0]), integer_steps([0.2, 0.25])
    ([2, 10], [20, 25])
    """
    scale = 10
    while any(abs(round(t * scale) - t * scale) > 1e-9 * scale for t in temperatures) and scale < 10**9:
        scale *= 10
    return [round(t * scale) for t in temperatures]
