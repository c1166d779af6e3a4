"""The jobs of docs/gate.md: what they run is run as it stands, in an empty folder, of few questions."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from junitparser import JUnitXml
from shell import Shell
from tiny_model import KNOWN, plain_settings, save_tiny_model

from robust_eval.config.groups import PROJECT

PAGE = (PROJECT / "docs" / "gate.md").read_text(encoding="utf-8")


def job(file: str) -> list[str]:
    """The lines that the job in a file runs, the baseline's first."""
    (text,) = re.findall(rf"^```yaml\n# {re.escape(file)}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    return list(_lines(yaml.safe_load(text)))


def _lines(found: object) -> Iterator[str]:
    """Every script and every step that runs something."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name == "run":
                yield str(value)
            elif name == "script":
                yield from map(str, value)
            else:
                yield from _lines(value)
    elif isinstance(found, list):
        for each in found:
            yield from _lines(each)


def test_the_documented_job_runs_in_an_empty_folder(
    shell: Shell, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    tiny = plain_settings(save_tiny_model(tmp_path_factory.mktemp("tiny"), letters=True))
    few = [*tiny, *KNOWN, "dataset.limit=6", "sampler.trials=2", "tracking=none"]
    statuses = []
    for line in job(".github/workflows/gate.yml"):
        words = shlex.split(line)
        if words[0] == "robust-eval":
            run = ["-m", "robust_eval", *words[1:], *(few if "=" in words[1] else [])]
            done = shell.python(run, tmp_path, figures=False)
            statuses.append(done.returncode)
            assert done.returncode in (0, 3), f"{line}\n{done.stdout}{done.stderr}"
        elif words[:2] != ["pip", "install"]:
            surroundings = {**os.environ, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
            subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=surroundings, check=True)
    assert statuses == [0, 0, 3]  # a run of few questions, its name, and a gate that they do not decide
    assert (tmp_path / "summary.md").read_text().startswith("# INCONCLUSIVE: ")
    (suite,) = JUnitXml.fromfile(str(tmp_path / "verdict" / "junit.xml"))
    assert [case.name for case in suite] == ["accuracy.greedy", "frs.d1", "verdict"]


def test_both_jobs_run_the_same_commands():
    here, there = (
        [line for line in job(file) if line.startswith("robust-eval ")]
        for file in (".github/workflows/gate.yml", ".gitlab-ci.yml")
    )
    assert here == there
    assert len(here) == 3
