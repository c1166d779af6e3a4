"""MLflow, and nothing but MLflow: one run of an experiment is one run in its store."""

import json
import logging
import math
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from robust_eval.error import UserError, first_line
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.record.run_folder import ERROR
from robust_eval.runtime.locks import kept_lock
from robust_eval.runtime.printable import printable_lines
from robust_eval.runtime.secret_names import holds_password

log = logging.getLogger(__name__)

DATABASE = "mlflow.db"
_PARENT = "ROBUST_EVAL_SWEEP"
"""The variable that tells the jobs of a sweep, also in other processes, of which run they are children."""
SWEEP_FOLDER = "sweep.folder"
"""The tag of the parent run of a sweep: where the folders of its jobs lie."""
RESERVE = 1 << 20
"""Bytes that are kept on the disk during a run, for the database to grow into when nothing else is left."""


class Tracking(Protocol):
    """A place where runs are recorded; a dataclass whose fields are its configuration."""

    def run(self, name: str, mlruns: Path) -> AbstractContextManager["Run"]:
        """Record the run that happens inside of the context; one that is left by an exception has failed."""

    def sweep(self, name: str, mlruns: Path, folder: Path) -> AbstractContextManager["Run"]:
        """Record a sweep: the runs that happen inside of the context, in any process, become its children."""

    def command(self, mlruns: Path) -> str | None:
        """The command that shows the runs, if there is one."""


class Run(Protocol):
    """A run that is being recorded."""

    def parameters(self, values: Mapping[str, Any]) -> None:
        """Settings, flat."""

    def tags(self, values: Mapping[str, str]) -> None:
        """What describes the run without being a setting."""

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        """The questions, where they are from, and their fingerprint."""

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None:
        """The metrics' figures, of curves those at telling temperatures, and other flat figures; whole curves under
        ``curve/``, by integer step.
        """

    def note(self, markdown: str) -> None:
        """What is read first of the run."""

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Short tables by name, to be read in the tracker itself."""

    def folder(self, path: Path) -> None:
        """Everything in the run's folder, as artifacts."""

    def discard(self) -> None:
        """Leave nothing of it: nothing was asked."""


@dataclass
class Untracked:
    """tracking=none: the run's folder is all that is left of a run, and MLflow is not imported."""

    @contextmanager
    def run(self, name: str, mlruns: Path) -> Iterator[Run]:
        """A run that is recorded nowhere."""
        yield _Nothing()

    def sweep(self, name: str, mlruns: Path, folder: Path) -> AbstractContextManager["Run"]:
        """A sweep that is recorded nowhere."""
        return nullcontext(_Nothing())

    def command(self, mlruns: Path) -> str | None:
        """No user interface."""
        return None


class _Nothing:
    run_id = None

    def parameters(self, values: Mapping[str, Any]) -> None: ...

    def tags(self, values: Mapping[str, str]) -> None: ...

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None: ...

    def scores(self, scores: Sequence[Score], figures: Mapping[str, float]) -> None: ...

    def note(self, markdown: str) -> None: ...

    def tables(self, tables: Mapping[str, pa.Table]) -> None: ...

    def folder(self, path: Path) -> None: ...

    def discard(self) -> None: ...


@dataclass
class Mlflow:
    """tracking=mlflow: a store under mlruns/, or a server."""

    experiment: str = "robust_eval"
    """The MLflow experiment that collects the runs."""
    uri: str | None = None
    """Of a tracking server; null: an SQLite database in the folder paths.mlruns."""

    def __post_init__(self) -> None:
        if self.uri and holds_password(self.uri):
            raise ValueError(
                "uri must not hold a secret, because all settings are written down with the run: MLflow reads it from "
                "the environment (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN), "
                "the driver of a database from its own variable or file (PGPASSWORD, ~/.pgpass)"
            )

    def store(self, mlruns: Path) -> str:
        """The tracking URI."""
        return store_at(self.uri, mlruns)

    def command(self, mlruns: Path) -> str | None:
        """The command that opens MLflow's user interface on this store; None for a server, which has one."""
        if self.uri:
            return None
        return f"{shlex.quote(sys.executable)} -m mlflow ui --backend-store-uri {shlex.quote(self.store(mlruns))}"

    def run(self, name: str, mlruns: Path) -> AbstractContextManager[Run]:
        """Record a run; one that is left by an exception is FAILED, and one that is interrupted KILLED.

        A server that is away stops no run: what cannot be recorded is said, and how to make up for it.
        """
        parent = {"mlflow.parentRunId": os.environ[_PARENT]} if _PARENT in os.environ else {}
        return self._recorded(name, mlruns, parent)

    @contextmanager
    def sweep(self, name: str, mlruns: Path, folder: Path) -> Iterator[Run]:
        """Record a sweep as the parent of its runs, in the same way; if any of them failed, so has the sweep."""
        with self._recorded(name, mlruns, {SWEEP_FOLDER: str(folder)}) as record:
            if record.run_id is not None:
                os.environ[_PARENT] = record.run_id
            try:
                yield record
            finally:
                os.environ.pop(_PARENT, None)

    @contextmanager
    def _recorded(
        self, name: str, mlruns: Path, tags: Mapping[str, str]
    ) -> Iterator["_MlflowRun | _OnServer | _Nothing"]:
        mlflow_library()
        from mlflow.exceptions import MlflowException

        served = (self.uri or "").startswith(("http://", "https://"))
        try:
            started = self._start(name, mlruns, tags)
        except (MlflowException, OSError) as problem:
            if not served:
                raise UserError(f"tracking: {self.store(mlruns)} cannot be used: {first_line(problem)}") from problem
            log.warning("tracking: %s cannot be used: %s", self.uri, first_line(problem))
            yield _Nothing()
            log.warning(_MAKE_UP, self.uri)
            return
        if served:
            yield from self._on_server(started)
            return
        reserve = mlruns / f"reserve-{started.run_id}"
        try:
            reserve.write_bytes(bytes(RESERVE))
            yield started
            started.end("FINISHED")
        except BaseException as problem:  # also an interruption: whatever ends a run early has failed it
            reserve.unlink(missing_ok=True)  # so that the failure can be written down on a full disk, too
            started.fail(problem)
            if isinstance(problem, MlflowException | OSError):
                raise UserError(f"tracking: {self.store(mlruns)} failed: {first_line(problem)}") from problem
            raise
        reserve.unlink()

    def _on_server(self, started: "_MlflowRun") -> Iterator["_OnServer"]:
        run = _OnServer(started)
        try:
            yield run
        except BaseException as problem:
            started.fail(problem)
            raise
        run.attempt(lambda: started.end("FINISHED"))
        if run.lost:
            log.warning(_MAKE_UP, self.uri)

    def _start(self, name: str, mlruns: Path, tags: Mapping[str, str]) -> "_MlflowRun":
        client, experiment_id = self._experiment(mlruns)
        from mlflow.tracking.context.registry import resolve_tags

        run = client.create_run(experiment_id, run_name=name, tags={**resolve_tags(), **tags})
        return _MlflowRun(client, run.info.run_id)

    def _experiment(self, mlruns: Path) -> tuple[Any, str]:
        """A client, and the id of the experiment, which is made if it is not there."""
        mlflow = mlflow_library()
        mlruns.mkdir(parents=True, exist_ok=True)
        with kept_lock(mlruns / "mlflow.lock"):  # several processes that create one fresh database would crash
            if self.uri is None:
                _make_database(mlruns / DATABASE)
            client = mlflow.MlflowClient(self.store(mlruns))
            found = client.get_experiment_by_name(self.experiment)
            location = None if self.uri else (mlruns.resolve() / "artifacts").as_uri()
            experiment_id = found.experiment_id if found else client.create_experiment(self.experiment, location)
        return client, experiment_id


def store_at(uri: str | None, mlruns: Path) -> str:
    """The tracking URI, by default that of the database. Absolute: MLflow's own depends on the working directory."""
    return uri or f"sqlite:///{mlruns.resolve() / DATABASE}"


def mlflow_library() -> Any:
    """The library, set up before it is first imported."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # an evaluation tells nobody that it ran
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the default waits for minutes, at every call
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # three bars for each run that is compared
    import mlflow

    for library in ("mlflow", "alembic"):  # the tables that a fresh store makes are no news
        logging.getLogger(library).setLevel(logging.WARNING)
    return mlflow


def _make_database(file: Path) -> None:
    """Make a fresh database beside its place: one whose tables are only half made cannot be used ever after."""
    if file.exists():
        return
    import mlflow

    fresh = file.with_name(f"{file.name}.fresh")
    fresh.unlink(missing_ok=True)
    mlflow.MlflowClient(f"sqlite:///{fresh.resolve()}").search_experiments(max_results=1)
    os.replace(fresh, file)


_MAKE_UP = (
    "tracking: not all of this run is in %s; it is all in the run's folder, and the same command with the server there "
    "records it within seconds, from the store"
)


class _OnServer:
    """A run on a server that may go away: nothing is sent after the first failure; see :class:`Run`."""

    def __init__(self, run: "_MlflowRun") -> None:
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


class _MlflowRun:
    """A run in MLflow, written to by its id: the library's one active run would outlive a server; see :class:`Run`."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self.run_id = run_id
        self._discarded = False

    def end(self, status: str) -> None:
        """FINISHED, FAILED or KILLED."""
        if not self._discarded:
            self._client.set_terminated(self.run_id, status)

    def fail(self, problem: BaseException) -> None:
        """Say why, and end."""
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
            flat |= score.telling().flat()
        flat |= figures
        metrics = [Metric(name, value, now, 0) for name, value in flat.items() if math.isfinite(value)]
        for curve_name, curve in ((name, curve) for score in scores for name, curve in score.curves.items()):
            for step, temperature in zip(integer_steps(list(curve)), curve, strict=True):
                for suffix, value in zip(("", ".low", ".high"), curve[temperature], strict=True):
                    if math.isfinite(value):
                        metrics.append(Metric(f"curve/{curve_name}{suffix}", value, now, step))
        self._batches(metrics=metrics)

    def note(self, markdown: str) -> None:
        self.tags({"mlflow.note.content": markdown})

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """As JSON, of which MLflow's page makes tables again: it shows nothing of a Parquet file."""
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


def integer_steps(temperatures: Sequence[float]) -> list[int]:
    """MLflow's steps are integers: temperatures times 10, or times the least power of ten that keeps them apart.

    >>> integer_steps([0.2, 1.0]), integer_steps([0.2, 0.25])
    ([2, 10], [20, 25])
    """
    scale = 10
    while any(abs(round(t * scale) - t * scale) > 1e-9 * scale for t in temperatures) and scale < 10**9:
        scale *= 10
    return [round(t * scale) for t in temperatures]
