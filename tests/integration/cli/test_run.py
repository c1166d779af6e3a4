"""What reaches Hydra of a command line, and what a sweep is told."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from shell import Shell

from robust_eval.cli import run as command_line

FILE = "quiz (1).csv"


def test_texts_with_signs_reach_the_configuration_without_quotes(shell: Shell, tmp_path: Path):
    own = ["dataset=local", f"dataset.path={FILE}", "dataset.separator=;", f"paths.mlruns={tmp_path / 'my (runs)'}"]
    shown = shell.python(["run.py", *own, "--cfg", "job"])
    assert shown.returncode == 0, shown.stderr
    composed = yaml.safe_load(shown.stdout)
    found = composed["dataset"]["path"], composed["dataset"]["separator"], composed["paths"]["mlruns"]
    assert found == (FILE, ";", str(tmp_path / "my (runs)"))


@pytest.mark.parametrize("given", [[], ["hydra.sweep.dir={}/all (of them)"], ["hydra.sweep.dir='{}/all (of them)'"]])
def test_a_sweep_has_the_folder_that_was_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: list[str]):
    told: list[Any] = []
    monkeypatch.setattr(command_line, "run_sweep", lambda *arguments: told.extend(arguments))
    monkeypatch.setattr(command_line, "collect_seldom", lambda: None)
    monkeypatch.setattr(command_line, "command", nullcontext)  # which heeds signals, for all that follows as well
    mlruns = tmp_path / "my (runs)"
    swept = ["-m", "dataset=local", f"dataset.path={FILE},b.csv", f"paths.mlruns={mlruns}"]
    monkeypatch.setattr(sys, "argv", ["run.py", *swept, *(line.format(tmp_path) for line in given)])
    monkeypatch.setattr(command_line, "launch", lambda: None)
    command_line.main()
    _, _, overrides, jobs, folder = told
    assert (overrides, jobs) == ([f"dataset.path='{FILE}',b.csv"], 2)
    assert folder == tmp_path / "all (of them)" if given else folder.parents[1] == mlruns / "sweeps"
    assert f"hydra.sweep.dir='{folder}'" in sys.argv
