"""engine=ray on the command line: where Ray is not installed, and where a run starts it for itself."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from experiments import RUN_WITHOUT_FIGURES
from shell import Shell
from tiny_model import save_tiny_model

from robust_eval.config.schema import PROJECT

WITHOUT_RAY = """
import runpy, sys
assert "ray" not in sys.modules, "Ray is imported"
class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] != "ray", "Ray is imported"
from importlib import util
found = util.find_spec
util.find_spec = lambda name, package=None: None if name == "ray" else found(name, package)
sys.meta_path.insert(0, Refuse())
sys.argv[0] = "run.py"
runpy.run_path("run.py", run_name="__main__")
"""


MARK = "STARTED_BY_A_TEST"
"""In the environment of a run, and of every process that comes of it; its value is the number of this process."""


def run(*overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT_FIGURES, *overrides, "tracking=none"],
        cwd=PROJECT,
        env=os.environ
        | {"COLUMNS": "200", "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", MARK: str(os.getpid())},
        capture_output=True,
        text=True,
        timeout=300,
    )


def settings(model: Path, mlruns: Path) -> list[str]:
    fixed = ["model=transformers", f"model.path={model}", "model.name=tiny", "model.prompt_style=plain"]
    fixed += ["dataset.limit=6", "sampler.selection=none", "sampler.trials=2", f"paths.mlruns={mlruns}"]
    return [*fixed, f"hydra.run.dir={mlruns / 'run'}"]


def test_without_ray_everything_else_runs_and_it_is_said_how_to_install_it(shell: Shell, tmp_path: Path):
    model = save_tiny_model(tmp_path / "model")
    here = [*settings(model, tmp_path / "here"), "engine.threads=1", "tracking=none"]
    done = shell.python(["-c", WITHOUT_RAY, *here], figures=False)
    assert done.returncode == 0, done.stderr
    refused = shell.python(["-c", WITHOUT_RAY, *settings(model, tmp_path / "there"), "engine=ray", "tracking=none"])
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == 'error: engine: Ray is not installed: pip install -e ".[ray]", or choose engine=local\n'


def test_a_run_starts_ray_for_itself_ends_it_and_leaves_the_terminal_alone(shell: Shell, tmp_path: Path):
    model = save_tiny_model(tmp_path / "model")
    here = shell.python(
        ["run.py", *settings(model, tmp_path / "here"), "engine.threads=1", "tracking=none"], figures=False
    )
    there = run(*settings(model, tmp_path / "there"), "engine=ray", "engine.actors=1")
    assert (here.returncode, there.returncode) == (0, 0), there.stderr

    def said(text: str) -> list[str]:
        kept = [line for line in text.splitlines() if not line.startswith(("torch threads", "store:"))]
        return [line.replace("/there", "/here") for line in kept]

    blocks = tmp_path / "there" / "store" / "blocks"
    assert f"MB in {len(list(blocks.glob('*.parquet')))} blocks in {blocks}" in there.stdout
    assert said(there.stdout) == said(here.stdout)
    assert said(there.stderr) == said(here.stderr)
    for name in ("answers", "graded"):
        tables = [pq.read_table(tmp_path / where / "run" / f"{name}.parquet") for where in ("here", "there")]
        assert tables[0].equals(tables[1]), name
    started = [process for process in psutil.process_iter(["environ"]) if MARK in (process.info["environ"] or {})]
    own = [process for process in started if process.info["environ"][MARK] == str(os.getpid())]
    _, left = psutil.wait_procs(own, timeout=30)  # an actor ends when it finds that nobody is there any more
    assert left == []
