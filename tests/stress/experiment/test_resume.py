"""Runs that are stopped at any moment go on where they were, and end with the same table as if nothing had been."""

import contextlib
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import mlflow
import pyarrow.parquet as pq
import pytest
from shell import Shell
from tiny_model import save_tiny_model

KILLS = 6
RUN = """
import logging, os, resource, signal, sys
import hydra
from robust_eval.cli import run as command_line
from robust_eval.config.schema import CONF
from robust_eval.report import figures
figures.CATALOGUE = []  # they would take most of the time
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored by what a shell starts in the background
folder, limit, *overrides = sys.argv[1:]
log = os.open(folder + ".log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.dup2(log, 1), os.dup2(log, 2)
logging.basicConfig(level="INFO", format="%(message)s", force=True)
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
    composed = hydra.compose("config", overrides)
os.makedirs(folder, exist_ok=True)
command_line.run(composed, folder)
"""


class Runs:
    """Runs of a tiny model, each in a fork of the shell, so that what is killed is a run and not an import."""

    def __init__(self, shell: Shell, model: Path, base: Path) -> None:
        self.base = base
        self._shell = shell
        self._settings = [
            "model=transformers",
            f"model.path={model}",
            "model.name=tiny",
            "model.prompt_style=plain",
            "model.batch_size=60",
            "dataset.limit=40",
            "sampler.temperature_sweep.selection=none",
            "sampler.temperature_sweep.trials=3",
            "engine.threads=1",
        ]
        self._number = 0

    def run(
        self, mlruns: Path, stop: Callable[[int, Path], object] = lambda *_: None, largest_file: int = 0
    ) -> tuple[int, Path]:
        """Exit status and folder of a run, during which ``stop`` is called with its process and its log.

        MLflow's database is larger than any ``largest_file`` that stops the store, so such a run has no tracker.
        """
        self._number += 1
        folder = self.base / f"run{self._number}"
        settings = [*self._settings, f"paths.mlruns={mlruns}", *(["tracking=none"] if largest_file else [])]
        ended = self._shell.python(
            ["-c", RUN, str(folder), str(largest_file), *settings],
            meanwhile=lambda process: stop(process, folder.with_name(f"{folder.name}.log")),
        )
        return ended.returncode, folder


@pytest.fixture(scope="module")
def runs(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(shell, save_tiny_model(tmp_path_factory.mktemp("model")), tmp_path_factory.mktemp("runs"))


def with_database(mlruns: Path, folder: Path) -> Path:
    """A folder for runs with the database of an undisturbed one, which takes MLflow seconds to make."""
    mlruns.mkdir(exist_ok=True)
    shutil.copy(folder.parent / "mlruns" / "mlflow.db", mlruns)
    return mlruns


@pytest.fixture(scope="module")
def undisturbed(runs: Runs) -> tuple[Path, float]:
    """The folder of a run that nothing stops, beside its mlruns, and the seconds that one takes with a database."""
    code, folder = runs.run(runs.base / "mlruns")
    assert code == 0, folder.with_name(f"{folder.name}.log").read_text()
    start = time.perf_counter()
    code, again = runs.run(with_database(runs.base / "again", folder))
    assert code == 0, again.with_name(f"{again.name}.log").read_text()
    return folder, time.perf_counter() - start


def assert_the_same(folder: Path, other: Path) -> None:
    """To the last digit."""
    for name in ("answers", "graded"):
        assert pq.read_table(folder / f"{name}.parquet").equals(pq.read_table(other / f"{name}.parquet")), name


def asked(folder: Path) -> int:
    """How many requests a run sent to the model."""
    log = folder.with_name(f"{folder.name}.log").read_text()
    found = sum(map(int, re.findall(r"the answers to (\d+) of \d+ prompts are in the store", log)))
    return 80 - found


def wait_until_kept(log: Path) -> None:
    """Until the greedy answers are in the store."""
    until = time.monotonic() + 60
    while time.monotonic() < until and "questions kept" not in (log.read_text() if log.is_file() else ""):
        time.sleep(0.01)


def test_a_run_killed_at_any_moment_ends_with_the_same_table(
    runs: Runs, undisturbed: tuple[Path, float], tmp_path: Path
):
    expected, seconds = undisturbed
    generator = random.Random(7)
    kills, rounds, gone_on = 0, 0, 0
    while kills < KILLS:
        rounds += 1
        mlruns = tmp_path / str(rounds)
        if rounds > 1:
            with_database(mlruns, expected)
        while True:
            after, since_kept = generator.uniform(0, seconds / 2), kills % 2 == 1

            def kill(process: int, log: Path, after: float = after, since_kept: bool = since_kept) -> None:
                """Of two kills one falls anywhere, the other between the first answers in the store and the last."""
                if since_kept:
                    wait_until_kept(log)
                    after /= 100
                time.sleep(after)
                with contextlib.suppress(ProcessLookupError):  # it was finished before
                    os.kill(process, signal.SIGKILL)

            code, folder = runs.run(mlruns, kill)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
            if kills == KILLS:
                code, folder = runs.run(mlruns)
                assert code == 0, folder.with_name(f"{folder.name}.log").read_text()
                break
        assert_the_same(folder, expected)
        gone_on += asked(folder) < 80
    assert gone_on > 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_stopped_says_how_to_go_on(
    runs: Runs, undisturbed: tuple[Path, float], tmp_path: Path, number: int, status: int
):
    def stop(process: int, log: Path) -> None:
        wait_until_kept(log)
        os.kill(process, number)

    with_database(tmp_path, undisturbed[0])
    code, folder = runs.run(tmp_path, stop)
    log = folder.with_name(f"{folder.name}.log").read_text()
    assert code == status, log
    assert "stopped; the same command goes on with what is in the store\n" in log
    assert "Traceback" not in log
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("robust_eval").experiment_id
    (last,) = client.search_runs([experiment], max_results=1)
    assert (last.info.run_name, last.info.status) == ("frs, tiny, facts", "KILLED")
    code, folder = runs.run(tmp_path)
    assert code == 0
    assert asked(folder) <= 40  # the greedy answers were there
    assert_the_same(folder, undisturbed[0])


def test_a_run_on_a_disk_that_is_full_goes_on_when_there_is_room(
    runs: Runs, undisturbed: tuple[Path, float], tmp_path: Path
):
    ends = set()
    for kilobytes in (1, 60):
        mlruns = with_database(tmp_path / str(kilobytes), undisturbed[0])
        code, folder = runs.run(mlruns, largest_file=kilobytes * 1024)
        log = folder.with_name(f"{folder.name}.log").read_text()
        assert "Traceback" not in log
        assert (code, "error: " in log) in ((0, False), (1, True)), log
        ends.add(code)
        code, folder = runs.run(mlruns)
        assert code == 0
        assert_the_same(folder, undisturbed[0])
    assert 1 in ends
