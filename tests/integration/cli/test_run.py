"""What reaches Hydra of a command line, and what a sweep is told."""

import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from json_lines import cases
from shell import PROJECT, Shell

from robust_eval.cli import run as command_line
from robust_eval.tracking.run_folder import CONFIG, ERROR

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
    monkeypatch.setattr(command_line, "command", nullcontext)  # which heeds signals, for all that follows as well
    mlruns = tmp_path / "my (runs)"
    swept = ["dataset=local", "-m", f"dataset.path={FILE},b.csv", f"paths.mlruns={mlruns}"]
    monkeypatch.setattr(sys, "argv", ["run.py", *swept, *(line.format(tmp_path) for line in given)])
    monkeypatch.setattr(command_line, "launch", lambda: None)
    command_line.main()
    _, _, overrides, jobs, folder = told
    assert (overrides, jobs) == ([f"dataset.path='{FILE}',b.csv"], 2)
    assert folder == tmp_path / "all (of them)" if given else folder.parents[1] == mlruns / "sweeps"
    assert f"hydra.sweep.dir='{folder}'" in sys.argv
    assert sys.argv[1:3] == ["-m", "dataset=local"]  # Hydra reads consecutive overrides


def test_the_options_that_are_chosen_stand_above_the_configuration_that_is_shown(shell: Shell, tmp_path: Path):
    words = ["experiment=multiqa", "metric=[agreement,certainty]", "rewriter=llm", "rewriter.model=smollm2_360m"]
    shown = shell.python(["run.py", *words, "sampler.trials=3", f"paths.mlruns={tmp_path / 'mlruns'}", "--cfg", "job"])
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[0] == (
        "# aggregator=clusters dataset=facts engine=local experiment=multiqa grader=matching "
        "metric=[agreement,certainty] model=smollm2_135m rewriter.model=smollm2_360m "
        "reader=by_prompt_style rewriter=llm sampler=perturbation store=sqlite tracking=mlflow"
    )
    assert yaml.safe_load(shown.stdout)["sampler"]["perturbation"]["trials"] == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "answer"), cases(__file__, "a_command_line_that_asks_for_nothing_is_answered_in_one_sentence")
)
def test_a_command_line_that_asks_for_nothing_is_answered_in_one_sentence(
    shell: Shell, tmp_path: Path, words: list[str], answer: str
):
    shown = shell.python([str(PROJECT / "run.py"), *words], tmp_path)
    assert (shown.returncode, shown.stdout, len(shown.stderr.splitlines())) == (1, "", 1)
    assert shown.stderr.startswith(f"error: {answer}")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["run", "--help"], ["seed=1", "--help"]], ids=" ".join)
def test_help_is_the_overview_wherever_it_is_asked_for(shell: Shell, tmp_path: Path, words: list[str]):
    shown = shell.python([str(PROJECT / "run.py"), *words], tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("Measure how robust a language model's knowledge is.\n")
    assert list(tmp_path.iterdir()) == []


def test_the_command_alone_is_answered_with_help(shell: Shell, tmp_path: Path):
    shown = shell.python(["-m", "robust_eval"], tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == shell.python(["-m", "robust_eval", "--help"], tmp_path).stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--version"], ["seed=1", "--version"], ["compare", "--version"]], ids=" ".join)
def test_the_version_is_that_of_this_program_wherever_it_is_asked_for(shell: Shell, tmp_path: Path, words: list[str]):
    shown = shell.python(["-m", "robust_eval", *words], tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"robust_eval {version('robust_eval')}\n")


def test_the_options_of_hydra_are_told_by_its_own_help(shell: Shell):
    assert shell.python(["run.py", "--hydra-help"]).stdout.startswith("Hydra (")


def test_settings_of_hydra_hold_in_a_run(shell: Shell, tmp_path: Path):
    overrides = ["experiment=smoke", "dataset.limit=6", "tracking=none", f"paths.mlruns={tmp_path / 'mlruns'}"]
    of_hydra = ["hydra.run.dir=runs/${hydra.job.name}", "hydra.output_subdir=composed"]
    ran = shell.python([str(PROJECT / "run.py"), *overrides, *of_hydra], tmp_path, figures=False)
    assert ran.returncode == 0, ran.stderr
    folder = tmp_path / "runs" / "run"
    assert (folder / "summary.json").is_file()
    written = {file.stem: yaml.safe_load(file.read_text()) for file in (folder / "composed").iterdir()}
    assert set(written) == {"config", "hydra", "overrides"}
    assert written["overrides"] == overrides
    settings = written["hydra"]["hydra"]
    assert (settings["mode"], settings["overrides"]["hydra"]) == ("RUN", [*of_hydra, "hydra.mode=RUN"])
    assert settings["runtime"]["output_dir"] == str(folder)


def test_a_folder_of_a_run_that_cannot_be_made_is_named(shell: Shell, tmp_path: Path):
    (tmp_path / "file").touch()
    words = ["experiment=smoke", "tracking=none", "hydra.run.dir=file/run"]
    ran = shell.python([str(PROJECT / "run.py"), *words], tmp_path)
    answer = "error: hydra.run.dir: file/run cannot be created (Not a directory); choose another folder\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", answer)


def test_a_folder_of_another_run_is_refused_without_a_record_of_failure(shell: Shell, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / CONFIG).write_text("seed: 1\n")
    words = ["experiment=smoke", "tracking=none", "hydra.run.dir=mine"]
    ran = shell.python([str(PROJECT / "run.py"), *words], tmp_path)
    answer = f"error: {tmp_path / 'mine'} contains a run with other settings: choose another folder (hydra.run.dir)\n"
    assert (ran.returncode, ran.stderr) == (1, answer)
    assert not (tmp_path / "mine" / ERROR).exists()
