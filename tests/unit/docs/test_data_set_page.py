"""docs/data_sets.md does what it says: its blocks are written to files, run, and loaded."""

import re

import pytest
from experiments import configuration

from robust_eval.config.groups import CONF, PROJECT
from robust_eval.config.overrides import checked_overrides
from robust_eval.dataset import published
from robust_eval.error import UserError
from robust_eval.prompt.prompt import prompt_for, refuse_exemplars
from robust_eval.question import Question

PAGE = (PROJECT / "docs" / "data_sets.md").read_text(encoding="utf-8")
QUIZ = [
    Question("x", "Which river runs through Bern?", choices=("the Aare", "the Rhine", "the Rhone"), correct=0),
    Question("x", "How many strings does a violin have?", choices=("three", "four", "five"), correct=1),
]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the files of the page; the configurations are found beside those of the project."""
    quiz, riddles, prompts = blocks("yaml")
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "quiz.yaml").write_text(quiz)
    (tmp_path / "conf" / "dataset" / "riddles.yaml").write_text(riddles)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "quiz.yaml").write_text(prompts)
    (tmp_path / "quiz.csv").write_text(*blocks("csv"))
    (tmp_path / "riddles.jsonl").write_text(*blocks("json"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(published, "LAYOUTS", dict(published.LAYOUTS))
    return tmp_path


def load(project, *overrides):
    return configuration(f"hydra.searchpath=[file://{project / 'conf'}]", *overrides)


def without_ids(questions):
    return [Question("x", q.text, q.answers, q.choices, q.correct) for q in questions]


def test_a_table_needs_no_code(project):
    assert without_ids(load(project, "dataset=quiz").dataset.load()) == QUIZ


def test_the_command_for_a_table_reads_it(project):
    (line,) = (line for line in blocks("") if "quiz.csv" in line)
    overrides = [part.strip("'") for part in re.findall(r"'[^']*'|\S+", line)][2:]
    assert overrides[0] == "dataset=quiz.csv"
    asked = checked_overrides([*overrides, "dataset.correct=from_1"]).config.dataset.load()
    assert without_ids(asked) == QUIZ


def test_ten_lines_are_enough_for_records_of_any_shape(project):
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(code, {})
    with pytest.raises(UserError, match=r"^1 of the 3 records of riddles\.jsonl is unusable: 1 × no accepted answer"):
        load(project, "dataset=riddles").dataset.load()
    asked = load(project, "dataset=riddles", "dataset.max_invalid_fraction=0.5").dataset.load()
    assert without_ids(asked) == [
        Question("x", "What has hands but cannot clap?", ("a clock", "watch")),
        Question("x", "What gets wetter the more it dries?", ("a towel",)),
    ]
    assert asked.unusable == {"no accepted answer": 1}


def test_a_data_set_may_have_exemplars_of_its_own(project):
    prompts = "sampler.temperature_sweep.prompts=prompts/${dataset.name}.yaml"
    assert prompts.partition("=")[2] in PAGE
    (sampler,) = load(project, "dataset=quiz", prompts).sampler.values()
    prompt = prompt_for(QUIZ[0], 0, sampler.prompts)
    assert (prompt.system, [answer for _, answer in prompt.exemplars]) == ("Reply with a letter.", ["B"])
    refuse_exemplars(QUIZ, sampler.prompts)


def test_the_page_names_every_configured_data_set():
    named = set(re.findall(r"`([a-z0-9_]+)`", PAGE))
    assert {file.stem for file in (CONF / "dataset").glob("*.yaml")} - named == {"local", "jsonl"}
    for name in ("limit", "shuffle", "shuffle_choices", "scenario", "max_invalid_fraction"):
        assert f"`dataset.{name}=" in PAGE
    assert published.Published(name="any", layout="squad", path="x").revision in PAGE
