"""The package as it is installed: from a wheel, in an empty folder, with an empty home."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from robust_eval.config.groups import PROJECT

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution of which it is built."""
    place = tmp_path_factory.mktemp("dist")
    words = ["-m", "build", "--no-isolation", "--outdir", str(place), str(PROJECT)]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=_surroundings(place))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return next(place.glob("*.whl")), next(place.glob("*.tar.gz"))


PLUGIN = """
from dataclasses import dataclass

import robust_eval
from robust_eval import MetricSpec, Score


@dataclass
class Halves(robust_eval.Metric):
    weight: float = 0.5

    axis = "trial"

    def check(self, temperatures, repetitions):
        pass

    def score(self, questions, measured, seed):
        score = Score([question.id for question in questions], specs=[MetricSpec("halves", "what a plugin counts")])
        right = robust_eval.grid(score.question_ids, measured.graded).correct[:, 0]
        score.add_mean("halves", right * self.weight, None)
        return score
"""
"""A metric of somebody else."""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of somebody else, which names a metric as an entry point."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "halves.py").write_text(PLUGIN)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "halves"\nversion = "1"\n[project.entry-points."robust_eval.metrics"]\n'
        'halves = "halves:Halves"\n[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[tool.hatch.build]\ninclude = ["halves.py"]\n'
    )
    return folder


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and a plugin, which sees what else is installed here, but not this
    repository.
    """
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    # Of a folder that is named here no .pth file is read, as that of an editable installation.
    (site / "tested.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "--disable-pip-version-check"]
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    # compiled once, and not by each command anew
    subprocess.run([*pip, "install", *offline, "--compile", str(built[0]), str(plugin)], check=True)
    return place


@pytest.fixture(scope="module")
def run(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Path]]:
    """Run a command in an empty folder, with an empty home; what is installed stays as it is."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("empty")
    before = _files(installed)

    def run(*words: str, program: str = "robust-eval") -> "subprocess.CompletedProcess[str]":
        command = [str(installed / "bin" / program), *words]
        return subprocess.run(command, cwd=folder, env=_surroundings(home), capture_output=True, text=True)

    yield run, folder
    assert _files(installed) == before
    assert {path.name for path in home.iterdir()} <= {".cache", ".config", ".local"}
    assert {path.name for path in folder.iterdir()} <= {"mlruns"}


def _surroundings(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE")}
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    more = {"HOME": str(home), "HF_HUB_OFFLINE": "1", "COLUMNS": "200", **threads}
    return kept | more | {"PYTHONDONTWRITEBYTECODE": "1"}


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_a_wheel_holds_the_package_and_the_settings_and_nothing_else(built: tuple[Path, Path]):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "robust_eval", "conf"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {f"robust_eval/{name}" if name.startswith("conf/") else name for name in listed.stdout.splitlines()}
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == wanted


def test_the_descriptions_of_both_are_those_that_the_index_takes(built: tuple[Path, Path]):
    words = ["-m", "twine", "check", "--strict", *map(str, built)]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


FEW = ("dataset.limit=2", "sampler.selection=none", "sampler.trials=1", "sampler.temperatures=[0.5,2.0]")


def test_a_run_with_a_metric_of_a_plugin_is_found_by_python(run: tuple[Run, Path], installed: Path):
    command, folder = run
    place = folder / "mlruns" / "plugin"
    ran = command("metric=[frs,halves]", "metric.halves.weight=2", *FEW, f"hydra.run.dir={place}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "what a plugin counts" in ran.stdout
    assert f"report:  {place / 'report.html'}" in ran.stdout
    assert (place / "report.html").is_file()
    assert (folder / "mlruns" / "mlflow.db").is_file()
    program = f"""
import robust_eval
import robust_eval.config.schema as schema
from robust_eval.config import groups
from robust_eval.plot import figure_files

figure_files.registered = list  # the command has drawn them
run = robust_eval.run(["tracking=none", *{FEW}])
print(schema.__file__, groups.CONF)
print(int(run.metrics.set_index("name").loc["prompts.asked", "value"]), run.folder)
"""
    ran = command("-c", program, program="python")
    assert ran.returncode == 0, ran.stderr
    (site,) = installed.glob("lib/python*/site-packages")
    where, told = ran.stdout.splitlines()
    assert where.split() == [str(site / "robust_eval" / name) for name in ("config/schema.py", "conf")]
    asked, written = told.split()
    assert asked == "0"  # the command has asked the same
    assert Path(written).is_relative_to(folder / "mlruns" / "runs")


def test_an_option_that_neither_we_nor_a_plugin_have_is_answered_with_those_of_both(run: tuple[Run, Path]):
    wrong = run[0]("metric=[frs,halfs]", *FEW, "tracking=none")
    assert wrong.stderr == (
        "error: there is no metric=halfs (did you mean halves?); options are agreement, certainty, challenge, frs, "
        "halves, order, reliability, thinking, uncertainty, variance\n"
    )


def test_a_word_that_is_no_command_is_answered_with_those_that_are(run: tuple[Run, Path]):
    ran = run[0]("-m", "robust_eval", "compair", program="python")
    assert ran.returncode == 1
    assert ran.stderr == (
        "error: compair is not a command (did you mean compare?); commands are run, compare, gate, baseline, ask, "
        "label, grade, graders, show, plot, import, export, train-question-types, help, completion, version, and "
        "settings are KEY=VALUE\n"
    )


def test_help_and_completion_read_the_settings_that_are_installed(run: tuple[Run, Path]):
    shown = [line.rstrip() for line in run[0]("--help").stdout.splitlines()]
    assert "  engine      the processes that run the model: local, ray" in shown
    assert run[0]("help", "engine=local").stdout.splitlines()[0] == "engine=local"
    assert run[0]("completion", "bash", "--", "robust-eval engine=r", "=").stdout == "ray\n"


def test_the_version_is_told(run: tuple[Run, Path]):
    assert run[0]("version").stdout.splitlines()[0] == "robust_eval 0.1.0"
