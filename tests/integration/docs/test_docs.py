"""The commands of the README and of docs/ run, of few questions; measurements that other tests run are planned."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from doc_pages import FRONT, LAYOUTS, PAGES, TESTED_ELSEWHERE, commands, fences
from shell import SENTENCES, Shell
from tiny_model import save_tiny_model

from robust_eval.cli.main import COMMANDS
from robust_eval.config.groups import CONF, PROJECT
from robust_eval.config.overrides import checked_overrides, jobs
from robust_eval.config.schema import register
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.experiment.plan import stages_of

FIRST = [FRONT, "quickstart.md"]
"""Pages whose runs others compare or take answers from."""
WITH_COMMANDS = [
    *FIRST,
    *(name for name, text in PAGES.items() if "\n```sh\n" in text and name not in (*FIRST, *TESTED_ELSEWHERE)),
]
RUN = (*FIRST, "extend.md", "development/metrics.md")
"""Pages whose measurements run, the first of each kind; those of others are planned. One that names its folder has that
of a run of its kind, if there is one, because a later command reads it.
"""
SMOKE = "python run.py experiment=smoke"
"""The quickstart says what it shows: it runs as it stands."""
OF_THE_CLONE = {"make ui": "$(BIN)/mlflow ui ", "source .venv/bin/activate": "VENV := .venv\n"}
"""A server, which would not end, and an environment, of which the tests have one, by what the Makefile has of them."""
LIMITS = {"experiment=multiqa": 2, "experiment=certainty": 1}
"""Questions that a command of an experiment asks at most; of any other :data:`LIMIT`."""
LIMIT = 6
"""Of the first six facts, the embedded model knows one."""
PHYSICS = PROJECT.parent / "shared" / "data" / "physics_mcq"
KINDS = ("-m", "experiment=", "sampler=", "metric=", "aggregator=", "grader", "model=mine", "dry_run=")
"""The words that decide what a run does."""
PLANNED = ("experiment=profile",)
"""Kinds that tests/integration/experiment runs."""
FEWER = {
    "sampler=typed": "sampler.max_new_tokens=6 sampler.prompts=builtin:zero_shot.yaml",
    "experiment=multiqa": "sampler.perturbation.rewrites=2 sampler.perturbation.max_new_tokens=6 "
    "sampler.perturbation.prompts=builtin:zero_shot.yaml",
    "sampler.selection=none": "sampler.trials=2",
    "sampler.selection=contains": "sampler.trials=2",
    "model.path=models/mine": "sampler.trials=2 sampler.selection=none",
    "experiment=certainty": "sampler.repetition.trials=4 sampler.repetition.max_new_tokens=4 "
    "sampler.repetition.prompts=builtin:zero_shot.yaml",
}
"""What is added to a command that has such a word: the first of them that fits its sampler. Exemplars take most of the
time of a small run; a command that names its prompts keeps these. The model of one's own knows nothing here."""
OF_ITS_SAMPLER = ("experiment=multiqa", "experiment=certainty")
"""Experiments that documented commands give another sampler (``sampler=…``), which has other settings."""
SHUFFLED = "dataset.shuffle=true"
"""Added for MultiQ&A: the first facts have no rewrites; in the order of the seed, the first has."""
MOST_DATA_SETS = 2
"""Data sets that a sweep goes through."""
MOST_D = 2
"""Values of ``metric.frs.d`` that a sweep goes through."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name and do not hold: data as their authors publish it, and a model."""
    folder = tmp_path_factory.mktemp("written")
    facts = JsonLines(name="facts", path="builtin:facts.jsonl", limit=60).load()
    physics = JsonLines(name="physics", path="builtin:physics.jsonl", limit=LIMIT).load()
    asked = [
        {"id": fact.id, "question": fact.text, "answers": [{"text": text, "answer_start": 0} for text in fact.answers]}
        for fact in facts
    ]
    articles = [{"title": "facts", "paragraphs": [{"context": "A paragraph.", "qas": asked}]}]
    (folder / "dev-v1.1.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    records = [
        {"id": each.id, "diff": "D", "task": each.text, "opt": [f"A: {c}" for c in each.choices], "ans": each.correct}
        for each in physics
    ]
    (folder / "mlphys101_en.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    keys = [record | {"task": "", "opt": ""} for record in records]
    (folder / "mlphys101_gt_answers.jsonl").write_text(json.dumps(keys, indent=1))
    for model in ("llama", "gpt_corrected", "mistral_corrected", "mixtral_corrected"):
        (folder / f"mlphys101_responses_{model}.txt").write_text("['A', None, 'B', 'A']\n" * len(records))
    typed = [f"{fact.type}:other {fact.text}\n" for fact in facts]
    (folder / "train_5500.label").write_text("".join(typed[:48]), encoding="latin-1", errors="replace")
    (folder / "TREC_10.label").write_text("".join(typed[48:]), encoding="latin-1", errors="replace")
    (folder / "models" / "mine").mkdir(parents=True)
    save_tiny_model(folder / "models" / "mine")
    return folder


def write_blocks(page: str, folder: Path) -> None:
    """The files of a page, which say what they are called, and tables and questions, which its text names."""
    for kind, text in fences(page):
        if kind in LAYOUTS and (name := re.match(LAYOUTS[kind], text, re.M)):
            file = folder / name.group(1)
            if name.groups()[1:] == (", continued",):
                text = file.read_text(encoding="utf-8") + text.partition("\n")[2]
        elif kind in ("csv", "json"):
            (called,) = set(re.findall(rf"`(\w+\.{kind}l?)`", PAGES[page]))
            file = folder / called
        else:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(small_program(text) if kind == "python" else text, encoding="utf-8")


def small_program(text: str) -> str:
    """A program that runs nothing but an experiment, with as few questions and answers as :func:`small` gives it."""
    text = text.replace('["experiment=smoke"]', f'["tracking=none", "experiment=smoke", "dataset.limit={LIMIT}"]')
    for experiment, limit in LIMITS.items():
        alone = f'["{experiment}"], **'
        if alone in text:
            text = text.replace(alone, f"{json.dumps(['tracking=none', experiment, *FEWER[experiment].split()])}, **")
            text = re.sub(r'("dataset\.limit": )\d+', rf"\g<1>{limit}", text)
    return text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, written: Path) -> Path:
    """A folder outside of the repository."""
    folder = tmp_path_factory.mktemp("somewhere")
    for file in written.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def small(words: list[str]) -> list[str]:
    """A command with models and data that are here in place of those that are not, few questions and few answers.

    What a dry run would ask of a service is seen without it. Single runs are not tracked, to save time; sweeps are, and
    the runs of the README, which it compares.
    """
    dry = "dry_run=true" in words
    limit = next((most for experiment, most in LIMITS.items() if experiment in words), LIMIT)
    file = any(word.startswith("dataset.path=") for word in words)
    changed = []
    for word in words:
        key, _, value = word.partition("=")
        if key == "model.batch" and not dry:  # no files are sent to a model that is here
            continue
        if key == "model" and not dry:
            value = ",".join(dict.fromkeys(map(_model_here, value.split(","))))
        elif key == "dataset" and not file:
            value = ",".join(list(dict.fromkeys(map(_data_here, value.split(","))))[:MOST_DATA_SETS])
        elif word == "grader=references":  # no built-in question has references that are wrong
            value = "matching"
        elif key == "metric.frs.d":
            value = ",".join(value.split(",")[:MOST_D])
        elif key == "dataset.limit":
            value = str(min(limit, int(value)))
        changed.append(f"{key}={value}" if "=" in word else word)
    other = OF_ITS_SAMPLER if any(word.startswith("sampler=") for word in words) else ()
    fitting = (most.split() for word, most in FEWER.items() if word in words and word not in other)
    prompts = any(".prompts=" in word for word in words)
    unknown = (*([".prompts="] if prompts else []), *(["sampler.trials="] if "sampler=exact" in words else []))
    fewer = [] if dry else [word for word in next(fitting, []) if not any(key in word for key in unknown)]
    limited = any(word.startswith(("dataset.limit=", "sampler=recorded")) for word in words)
    few = [] if limited else [f"dataset.limit={limit}"]
    shuffled = [SHUFFLED] if "experiment=multiqa" in words else []
    return [*changed, *fewer, *few, *shuffled, *([] if "-m" in words else ["tracking=none"])]


def _model_here(name: str) -> str:
    """The embedded model in place of a preset that names another, on the hub or behind a server."""
    preset = CONF / "model" / f"{name}.yaml"
    settings = yaml.safe_load(preset.read_text()) if preset.is_file() else {}
    elsewhere = settings.get("path", "???") != "???" or settings.get("base_url", "???") != "???"
    return "smollm2_135m" if elsewhere else name


def _data_here(name: str) -> str:
    """Built-in questions of the same scenario in place of a data set on the hub."""
    preset = CONF / "dataset" / f"{name}.yaml"
    settings = yaml.safe_load(preset.read_text()) if preset.is_file() else {}
    if not settings.get("hub"):
        return name
    return {"multiple_choice": "physics", "extractive": "passages", "abstractive": "facts"}[settings["scenario"]]


class Commands:
    """Commands of the pages, each run once in one folder."""

    def __init__(self, shell: Shell, place: Path) -> None:
        self.shell = shell
        self.place = place
        self.finished: dict[tuple[str, ...], Path] = {PLANNED: place}
        """The folder of a run of each kind."""
        self._results: dict[str, subprocess.CompletedProcess[str]] = {}

    def run(self, line: str, page: str) -> subprocess.CompletedProcess[str]:
        """Run a command of a page as it stands, but for what :func:`small` says."""
        if line.startswith("make ") and line != "make ui":
            line = made_by(line)
        if line not in self._results:
            self._results[line] = self._ran(line, page)
        return self._results[line]

    def _ran(self, line: str, page: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(line.replace("REPOSITORY", str(PROJECT)))
        if line in OF_THE_CLONE:
            assert OF_THE_CLONE[line] in (PROJECT / "Makefile").read_text()
            return subprocess.CompletedProcess(words, 0)
        if words[0] == "robust-eval":  # the command of an installed package
            words = ["python", "-m", "robust_eval", *words[1:]]
        assert words[0] == "python", f"nothing says how to run {line!r}"
        of_module = 1 + (words[1] == "-m")
        program, arguments = words[1 : 1 + of_module], words[1 + of_module :]
        kind = tuple(word for word in arguments if word.startswith(KINDS))
        measures = program in (["run.py"], ["-m", "robust_eval"]) and not COMMANDS.keys() & {*arguments[:1]}
        if program == ["run.py"]:
            checked_overrides([word for word in arguments if "=" in word and not word.startswith("dry_run=")])
            program = [str(PROJECT / "run.py")]
        if line != SMOKE and (measures or program in (["mine.py"], ["always_right.py"])):
            arguments = [word for word in small(arguments) if page != FRONT or word != "tracking=none"]
        elif arguments[:1] == ["train-question-types"]:
            arguments = [*arguments, "--encoder", SENTENCES, "--epochs", "1"]
        if not measures or not all("=" in word or word == "-m" for word in arguments):
            return self.shell.python([*program, *arguments], self.place, figures=False)
        folder = next((word.partition("=")[2] for word in arguments if word.startswith("hydra.run.dir=")), "")
        known = kind in self.finished
        if known and folder:
            shutil.copytree(self.finished[kind], self.place / folder)
        if page != FRONT and (known or not (page in RUN or folder)):
            return planned(arguments)
        ran = self.shell.python([*program, *arguments], self.place, figures=False)
        self.finished[kind] = self.place / (folder or max(self.place.glob("mlruns/runs/[0-9]*/*"), default=""))
        return ran


def made_by(line: str) -> str:
    """The command that make would run, without installing anything."""
    words = shlex.split(line)
    dry = [words[0], "--dry-run", "--no-print-directory", "--old-file=install", *words[1:]]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(dry, cwd=PROJECT, env=outside, capture_output=True, text=True, check=True).stdout
    return shown.strip().removeprefix(".venv/bin/")


def planned(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Plan a measurement in this process."""
    settings = [word for word in arguments if word != "-m" and not word.startswith("dry_run=")]
    for _, config in jobs(checked_overrides(settings).overrides):
        stages_of(config)
    return subprocess.CompletedProcess(arguments, 0)


@pytest.fixture(scope="module")
def documented(shell: Shell, place: Path) -> Commands:
    return Commands(shell, place)


@pytest.fixture(autouse=True)
def _in_the_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    monkeypatch.chdir(place)


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_command_of_a_page_runs(page: str, documented: Commands, place: Path):
    write_blocks(page, place)
    for line in commands(page):
        result = documented.run(line, page)
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"


@pytest.mark.skipif(not PHYSICS.is_dir(), reason="the published answers are not at hand")
def test_the_published_answers_to_the_physics_questions_give_the_rows_of_the_page(shell: Shell, tmp_path: Path):
    for file in PHYSICS.iterdir():
        (tmp_path / file.name).symlink_to(file)
    found: list[tuple[str, ...]] = []
    for line in commands("reproduce.md"):
        program, *words = shlex.split(line)[1:]
        if program == "import":
            assert shell.python(["-m", "robust_eval", program, *words], tmp_path).returncode == 0
        elif "sampler=recorded" in words:
            own = ["tracking=none", f"paths.mlruns={tmp_path}", f"hydra.run.dir={tmp_path}/run{len(found)}"]
            ran = shell.python([str(PROJECT / program), *words, *own], tmp_path, figures=False)
            assert ran.returncode == 0, ran.stderr
            summary = json.loads((tmp_path / f"run{len(found)}" / "summary.json").read_text())
            accuracy, entropy = 1 - summary["certainty.error_rate.t0.7"], summary["certainty.entropy.t0.7"]
            found.append((f"{accuracy:.4f}", f"{entropy:.4f}", f"{summary['outcomes.invalid']:.0f} of 16,460"))
    rows = re.findall(r"^\| .+ \| (0\.\d{4}) \| (0\.\d{4}) \| (\d+ of 16,460|the same)", PAGES["reproduce.md"], re.M)
    assert found == [*rows[:4], (*rows[4][:2], rows[3][2])]


def test_the_quickstart_knows_what_the_terminal_says(documented: Commands):
    ran = documented.run(SMOKE, "quickstart.md")
    first, _, _ = PAGES["quickstart.md"].partition("## The first measurement")
    named = re.findall(r"^\| `(.+?)` \|", first, flags=re.MULTILINE)
    assert len(named) == 9
    assert [words for words in named if words not in ran.stdout + ran.stderr] == []


def test_the_readme_shows_what_its_experiments_say(documented: Commands):
    shown = re.findall(r"^```sh\n(python run\.py [^\n]+)\n```\n+```text\n(.*?)^```$", PAGES[FRONT], re.M | re.S)
    assert len(shown) == [kind for kind, _ in fences(FRONT)].count("text") == 1
    for line, text in shown:
        ran = documented.run(line, FRONT)
        named = re.findall(r"^│ (\S.*?) +│", text, flags=re.MULTILINE)
        assert len(named) >= 3
        assert [label for label in named if f"│ {label} " not in ran.stdout] == []
