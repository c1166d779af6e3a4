"""Runs in an MLflow store, by experiment or by id."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robust_eval.error import OutageError, UserError, first_line
from robust_eval.runs.finished_runs import FinishedRun, kept_nothing, read_run
from robust_eval.tracking.mlflow_run import PARENT
from robust_eval.tracking.mlflow_tracker import DATABASE, SWEEP_FOLDER, mlflow_library, store_at
from robust_eval.tracking.run_folder import (
    ANSWERS,
    CONFIG,
    CURVES_FILE,
    GRADED,
    LOADED,
    METRICS,
    QUESTIONS,
    REPLY_CERTAINTY,
    REWRITES,
    SUMMARY,
    TRACKED,
)

log = logging.getLogger(__name__)


class TrackedRuns:
    """Runs in the MLflow store at ``uri``, or the database in ``mlruns``; files are downloaded into ``scratch``,
    which the runs read later.
    """

    def __init__(self, uri: str | None, mlruns: Path, scratch: Path) -> None:
        self._uri = store_at(uri, mlruns)
        self._database = None if uri else mlruns / DATABASE
        self._scratch = scratch

    def named(self, run_id: str) -> list[FinishedRun]:
        """Return the MLflow run of this id, or the finished runs of the sweep of this id; UserError without any."""
        if not _RUN_ID.fullmatch(run_id):
            raise _no_run(run_id)
        with self._client() as client:
            run = self._get(client, run_id)
            if SWEEP_FOLDER not in run.data.tags:
                return [self._read(client, run)]
            children = f"tags.`{PARENT}` = '{run_id}' and {_FINISHED}"
            runs = [self._read(client, child) for child in _search(client, run.info.experiment_id, children)]
        if not runs:
            raise UserError(f"the sweep {run_id} has no finished runs")
        return runs

    def fetched(self, run_id: str) -> Path:
        """Return a folder with the files of the MLflow run of this id.

        Raises UserError where there is none, and OutageError where it has not finished, unless it kept no question.
        """
        if not _RUN_ID.fullmatch(run_id):
            raise _no_run(run_id)
        with self._client() as client:
            run = self._get(client, run_id)
            files = (CONFIG, SUMMARY, QUESTIONS, METRICS, LOADED, GRADED, ANSWERS, CURVES_FILE, TRACKED)
            folder = self._download(client, run_id, files)
            if run.info.status != "FINISHED" and not kept_nothing(folder):
                why = f": {run.data.tags['error']}" if "error" in run.data.tags else ""
                raise OutageError(f"the run {run_id} has not finished ({run.info.status}){why}")
            return folder

    def _get(self, client: Any, run_id: str) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return client.get_run(run_id)
        except MlflowException as problem:
            if problem.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            raise UserError(
                f"there is no folder {run_id}, and no run with this id in {self._uri}; {_HINT}"
            ) from problem

    def of_experiment(self, name: str) -> list[FinishedRun]:
        """Return the finished runs of an MLflow experiment by start time; damaged ones are logged and left out."""
        runs = []
        with self._client() as client:
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                names = ", ".join(each.name for each in client.search_experiments())
                raise UserError(f"there is no experiment {name} in {self._uri}; experiments are {names}")
            for run in _search(client, experiment.experiment_id, _FINISHED):
                if SWEEP_FOLDER not in run.data.tags:
                    try:
                        runs.append(self._read(client, run))
                    except UserError as problem:
                        log.warning("left out: %s", problem)
        if not runs:
            raise UserError(f"the experiment {name} has no finished runs that can be compared")
        return runs

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """Open an MLflow client; UserError where the store cannot be used or has no such run."""
        if self._database is not None and not self._database.is_file():
            raise UserError(
                f"there is no MLflow database {self._database}; name folders of runs, or set --mlruns or --uri"
            )
        mlflow = mlflow_library()
        from mlflow.exceptions import MlflowException

        try:
            yield mlflow.MlflowClient(self._uri)
        except (MlflowException, OSError) as problem:
            raise UserError(f"{self._uri}: {first_line(problem)}") from problem

    def _read(self, client: Any, run: Any) -> FinishedRun:
        run_id = run.info.run_id
        files = (CONFIG, SUMMARY, QUESTIONS, METRICS, LOADED, GRADED, REWRITES, REPLY_CERTAINTY)
        folder = self._download(client, run_id, files)
        return read_run(folder, f"{run.info.run_name} ({run_id})")

    def _download(self, client: Any, run_id: str, files: Sequence[str]) -> Path:
        folder = self._scratch / run_id
        folder.mkdir(exist_ok=True)
        available = {file.path for file in client.list_artifacts(run_id)}
        for name in files:
            if name in available:
                client.download_artifacts(run_id, name, str(folder))
        return folder


_RUN_ID = re.compile(r"[a-zA-Z0-9][\w-]{0,255}")
"""Id of a run in MLflow."""
_HINT = "name the folder of a run (mlruns/runs/DATE/TIME), or its id in MLflow"
_FINISHED = "attributes.status = 'FINISHED'"


def _no_run(name: str) -> UserError:
    is_file = Path(name).is_file()
    return UserError(
        f"{name} is a file, not a folder; {_HINT}" if is_file else f"there is no file or folder {name}; {_HINT}"
    )


def _search(client: Any, experiment_id: str, condition: str) -> Iterator[Any]:
    """Yield all MLflow runs of an experiment that meet a condition, by their start."""
    token = None
    while token != "":
        page = client.search_runs([experiment_id], condition, order_by=["attributes.start_time"], page_token=token)
        yield from page
        token = page.token or ""
