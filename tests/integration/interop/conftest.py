"""Logs that other harnesses wrote themselves, each in one process for all tests of it."""

import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from robust_eval.config.groups import PROJECT

MAKERS = Path(__file__).parents[2] / "support"
SCORERS = Path(__file__).with_name("inspect_scorers.json")
FAMILIES = Path(__file__).with_name("lm_eval_families.json")


@pytest.fixture(autouse=True)
def _here_without_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs leave their files in a folder of the test's own; figures take most of the time of a small run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("robust_eval.plot.figure_files.registered", list)
    monkeypatch.setattr("robust_eval.report.comparison_gallery.save_comparison_figures", lambda compared, folder: [])


@pytest.fixture(scope="session")
def inspect_folder(common_folder: Path) -> Path:
    """The folder with ``logs``, ``scorers`` and ``tasks`` of inspect_ai."""
    return _filled(common_folder / "inspect_ai", "inspect_evals.py", json.loads(SCORERS.read_text()))


@pytest.fixture(scope="session")
def lm_eval_folder(common_folder: Path) -> Path:
    """The folder with ``logs``, ``families`` and ``tasks`` of lm-eval."""
    page = (PROJECT / "docs" / "inside_harnesses.md").read_text(encoding="utf-8").partition("\n## lm-eval\n")[2]
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    commands = [shlex.split(line) for line in re.findall(r"^(lm_eval .+)$", page, re.M)]
    families = json.loads(FAMILIES.read_text(encoding="utf-8"))
    return _filled(common_folder / "lm_eval", "lm_evals.py", [families, code, commands])


def _filled(folder: Path, maker: str, wanted: Any) -> Path:
    """Return a folder that a process fills, the first time that any process of the tests asks for it."""
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir()
            environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
            words = [sys.executable, str(MAKERS / maker), str(folder)]
            made = subprocess.run(
                words, input=json.dumps(wanted), text=True, capture_output=True, env=environment, timeout=480
            )
            assert made.returncode == 0, made.stderr
            (folder / "done").touch()
    return folder
