"""MLflow tracker: a store under mlruns/ or a server, with one MLflow run for each run of an experiment."""

import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from filelock import FileLock, Timeout

from robust_eval.error import UserError, first_line
from robust_eval.runtime.process import process_lock
from robust_eval.runtime.text import holds_password
from robust_eval.tracking.base import Run, Tracking
from robust_eval.tracking.mlflow_run import PARENT, MlflowRun

log = logging.getLogger(__name__)

DATABASE = "mlflow.db"
_SWEEP = "ROBUST_EVAL_SWEEP"
"""Environment variable with the parent run of the jobs of a sweep, also in other processes."""
SWEEP_FOLDER = "sweep.folder"
"""Tag of the parent run of a sweep: the folder of its jobs."""
VIEW = "mlflow.sharedViewState.headline"
"""Tag of an experiment with a saved view of its list of runs, as MLflow's menu Views stores it."""
_NAMES = ("frs", "agreement.kappa.t1", "agreement.alpha.t1")
_COLUMNS = [
    *(f"params.`{name}`" for name in ("model", "dataset", "method")),
    *(f"metrics.`{name}{end}`" for name in _NAMES for end in ("", ".best")),
]
"""Columns of that view: a run has the metrics, and the parent of a sweep the best values."""
_ALIVE = "alive-"
"""Prefix of the name of the locked file of an active run."""
GONE = "the process of the run was killed"
"""Reason of a run that is KILLED because its process ended without a record."""
LONG = 60.0
"""Seconds after which system metrics of a run are recorded, in a local store."""
_INCOMPLETE = (
    "tracking: this run is incomplete in %s, but complete in its folder; repeat the command when the server is back, "
    "to record the run from the store"
)


@dataclass
class Mlflow(Tracking):
    """tracking=mlflow: a store under mlruns/, or a server."""

    experiment: str = "robust_eval"
    """The MLflow experiment that collects the runs."""
    uri: str | None = None
    """URI of a tracking server; null: an SQLite database in the folder paths.mlruns."""
    traces: int = 0
    """Maximum number of answers that are recorded as traces with their verdicts; 0: none."""

    def __post_init__(self) -> None:
        if self.traces < 0:
            raise ValueError(f"traces must be at least 0, not {self.traces}")
        if self.uri and holds_password(self.uri):
            raise ValueError(
                "uri must not contain a secret, because all settings are recorded with the run: MLflow reads it from "
                "the environment (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN), a "
                "database driver from its own variable or file (PGPASSWORD, ~/.pgpass)"
            )

    def command(self, mlruns: Path) -> str | None:
        """Return the command that opens MLflow's user interface on this store; None for a server, which has its own."""
        if self.uri:
            return None
        store = shlex.quote(store_at(None, mlruns))
        return f"{shlex.quote(sys.executable)} -m mlflow ui --backend-store-uri {store}"

    def run(self, name: str, mlruns: Path) -> AbstractContextManager[Run]:
        """Record a run in MLflow. An exception marks it FAILED, an interrupt KILLED.

        An unreachable server does not stop the run: a warning explains how to record it later.
        """
        parent = {PARENT: os.environ[_SWEEP]} if _SWEEP in os.environ else {}
        return self._recorded(name, mlruns, parent)

    @contextmanager
    def sweep(self, name: str, mlruns: Path, folder: Path) -> Iterator[Run]:
        """Record a sweep in MLflow as the parent of its runs. If one of them fails, the sweep is marked FAILED."""
        with self._recorded(name, mlruns, {SWEEP_FOLDER: str(folder)}) as record:
            if record.run_id is not None:
                os.environ[_SWEEP] = record.run_id
            try:
                yield record
            finally:
                os.environ.pop(_SWEEP, None)

    @contextmanager
    def _recorded(self, name: str, mlruns: Path, tags: Mapping[str, str]) -> Iterator[Run]:
        errors, store = _errors(), store_at(self.uri, mlruns)
        served = (self.uri or "").startswith(("http://", "https://"))
        try:
            started, alive = self._start(name, mlruns, tags, served)
        except errors as problem:
            if not served:
                raise UserError(f"tracking: {store} cannot be used: {first_line(problem)}") from problem
            log.warning("tracking: %s cannot be used: %s", self.uri, first_line(problem))
            yield Run()
            log.warning(_INCOMPLETE, self.uri)
            return
        try:
            with nullcontext() if served or SWEEP_FOLDER in tags else self._watched(started.run_id, mlruns):
                yield started
            started.end("FINISHED")
        except BaseException as problem:  # interrupts included
            started.fail(problem)
            if isinstance(problem, errors) and not served:
                raise UserError(f"tracking: {store} failed: {first_line(problem)}") from problem
            raise
        finally:
            if not served:
                if not started.lost:  # else the next run marks it as killed
                    Path(alive.lock_file).unlink(missing_ok=True)
                alive.release()
        if started.lost:
            log.warning(_INCOMPLETE, self.uri)

    def _start(self, name: str, mlruns: Path, tags: Mapping[str, str], served: bool) -> tuple[MlflowRun, FileLock]:
        """Return a new MLflow run, and a lock that marks it as active while held."""
        mlruns.mkdir(parents=True, exist_ok=True)
        with process_lock(mlruns / "mlflow.lock"):  # two processes that create the same database would crash
            client, experiment_id = self._experiment(mlruns)
            from mlflow.tracking.context.registry import resolve_tags

            run = client.create_run(experiment_id, run_name=name, tags={**resolve_tags(), **tags})
            alive = process_lock(mlruns / f"{_ALIVE}{run.info.run_id}")
            if not served:
                _mark_killed(client, mlruns)
                alive.acquire()
        sweep = run.info.run_id if SWEEP_FOLDER in tags else tags.get(PARENT)
        return MlflowRun(client, run.info.run_id, served, sweep, self.traces), alive

    @contextmanager
    def _watched(self, run_id: str, mlruns: Path) -> Iterator[None]:
        """Record MLflow's system metrics (``system/``) of a run that takes longer than :data:`LONG`."""
        monitors: list[Any] = []

        def watch() -> None:
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)  # they are optional
            monitors.append(SystemMetricsMonitor(run_id, tracking_uri=store_at(self.uri, mlruns)))  # type: ignore[no-untyped-call]
            monitors[0].start()

        timer = Timer(LONG, watch)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            for monitor in monitors:
                monitor.finish()

    def _experiment(self, mlruns: Path) -> tuple[Any, str]:
        """Return an MLflow client and the id of the experiment, which is created if it does not exist."""
        mlflow = mlflow_library()
        if self.uri is None:
            _make_database(mlruns / DATABASE)
        client = mlflow.MlflowClient(store_at(self.uri, mlruns))
        experiment = client.get_experiment_by_name(self.experiment)
        location = None if self.uri else (mlruns.resolve() / "artifacts").as_uri()
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(self.experiment, location)
        if experiment is None or VIEW not in experiment.tags:
            state = json.dumps({"selectedColumns": _COLUMNS, "columnOrder": _COLUMNS})
            now = int(time.time() * 1000)
            view = {"name": "Headline metrics", "createdAt": now, "updatedAt": now, "state": state}
            client.set_experiment_tag(experiment_id, VIEW, json.dumps(view))
        return client, experiment_id


def _errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of an unusable MLflow store."""
    mlflow_library()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError  # MLflow passes them on while it creates a database

    return MlflowException, SQLAlchemyError, OSError


def _mark_killed(client: Any, mlruns: Path) -> None:
    """Mark abandoned MLflow runs as KILLED: their processes were killed."""
    from mlflow.exceptions import MlflowException

    for file in mlruns.glob(f"{_ALIVE}*"):
        run_id = file.name.removeprefix(_ALIVE)
        with suppress(Timeout), FileLock(file).acquire(blocking=False):
            with suppress(MlflowException):  # of a deleted run, or one in another store
                if client.get_run(run_id).info.status == "RUNNING":
                    client.set_tag(run_id, "error", GONE)
                    client.set_terminated(run_id, "KILLED")
            file.unlink(missing_ok=True)


def store_at(uri: str | None, mlruns: Path) -> str:
    """Return MLflow's tracking URI, by default that of the database, with its absolute path."""
    return uri or f"sqlite:///{mlruns.resolve() / DATABASE}"


def mlflow_library() -> Any:
    """Import MLflow with its settings in place."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the default waits for minutes at every call
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # three bars for each compared run
    import mlflow

    for library in ("mlflow", "alembic"):  # no log lines on the tables of a new store
        logging.getLogger(library).setLevel(logging.WARNING)
    return mlflow


def _make_database(file: Path) -> None:
    """Create MLflow's database under another name and rename it: MLflow cannot use an incomplete one."""
    if file.exists():
        return
    import mlflow

    fresh = file.with_name(f"{file.name}.fresh")
    fresh.unlink(missing_ok=True)
    try:
        mlflow.MlflowClient(f"sqlite:///{fresh.resolve()}").search_experiments(max_results=1)
        os.replace(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)
