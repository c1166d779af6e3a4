"""Runs that are stopped go on where they were, and end with the same table as if nothing had been."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import mlflow
import pyarrow.parquet as pq
import pytest
from shell import Shell
from tiny_model import save_tiny_model

RUN = """
import logging, os, resource, signal, sys
import hydra
from robust_eval.cli import run as command_line
from robust_eval.config.groups import CONF
from robust_eval.plot import figure_files
figure_files.registered = list  # they would take most of the time
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


@pytest.fixture(scope="module")
def undisturbed(runs: Runs) -> Path:
    """The folder of a run that nothing stops."""
    code, folder = runs.run(runs.base / "mlruns")
    assert code == 0, folder.with_name(f"{folder.name}.log").read_text()
    return folder


def assert_the_same(folder: Path, other: Path) -> None:
    """To the last digit."""
    for name in ("answers", "graded"):
        assert pq.read_table(folder / f"{name}.parquet").equals(pq.read_table(other / f"{name}.parquet")), name


def asked(folder: Path) -> int:
    """How many requests a run sent to the model."""
    log = folder.with_name(f"{folder.name}.log").read_text()
    found = sum(map(int, re.findall(r"(\d+) of \d+ prompts have answers in the store", log)))
    return 80 - found


def stopping(number: int, when: Callable[[Path], bool]) -> Callable[[int, Path], None]:
    """What sends a run a signal, once that is so of its log."""

    def stop(process: int, log: Path) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not when(log):
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):  # it was finished before
            os.kill(process, number)

    return stop


def has_greedy_answers(log: Path) -> bool:
    return log.is_file() and "questions kept" in log.read_text()


def has_all_answers(log: Path) -> bool:
    return (log.with_suffix("") / "graded.parquet").exists()  # the others are written before they are all there


def test_a_run_that_is_stopped_again_and_again_says_how_to_go_on_and_ends_with_the_same_table(
    runs: Runs, undisturbed: Path, tmp_path: Path
):
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        code, folder = runs.run(tmp_path, stopping(number, has_greedy_answers))
        log = folder.with_name(f"{folder.name}.log").read_text()
        assert code == status, log
        assert "stopped; repeat the command to resume from the answers in the store\n" in log
        assert "Traceback" not in log
        client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        experiment = client.get_experiment_by_name("robust_eval").experiment_id
        (last,) = client.search_runs([experiment], max_results=1)
        assert (last.info.run_name, last.info.status) == ("frs, tiny, facts", "KILLED")
    code, folder = runs.run(tmp_path, stopping(signal.SIGKILL, has_greedy_answers))
    assert code == -signal.SIGKILL
    assert asked(folder) <= 40  # the greedy answers were there
    code, folder = runs.run(tmp_path, stopping(signal.SIGKILL, has_all_answers))
    assert code in (0, -signal.SIGKILL)
    assert 0 < asked(folder) <= 40
    code, folder = runs.run(tmp_path)
    assert code == 0
    assert asked(folder) == 0
    assert_the_same(folder, undisturbed)


def test_a_run_on_a_disk_that_is_full_goes_on_when_there_is_room(runs: Runs, undisturbed: Path, tmp_path: Path):
    ends = set()
    for kilobytes in (1, 60):
        code, folder = runs.run(tmp_path, largest_file=kilobytes * 1024)
        log = folder.with_name(f"{folder.name}.log").read_text()
        assert "Traceback" not in log
        assert (code, "error: " in log) in ((0, False), (1, True)), log
        ends.add(code)
    code, folder = runs.run(tmp_path)
    assert code == 0
    assert_the_same(folder, undisturbed)
    assert 1 in ends
