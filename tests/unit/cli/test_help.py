import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path

import pytest
from golden import Golden
from json_lines import cases

from robust_eval.cli import help as help_command
from robust_eval.cli.help import settings
from robust_eval.config.groups import GROUPS, description, first_sentence, options
from robust_eval.config.schema import SCHEMAS
from robust_eval.runtime.registry import REGISTRY


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def said(*words: str, columns: int = 80, program: str = "/usr/bin/robust-eval") -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", [program, *words])
        help_command.main()
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return said


@pytest.mark.parametrize("columns", [80, 100])
def test_the_overview_stands_on_one_screen_and_names_every_group(said, columns: int):
    lines = said(columns=columns)
    assert len(lines) <= 49
    assert max(map(len, lines)) <= columns
    assert lines[:3] == [
        "Measure how robust a language model's knowledge is.",
        "",
        "  robust-eval run                                   the built-in facts",
    ]
    assert any(
        line.startswith("  metric      the scores: frs, agreement, certainty, challenge, order,") for line in lines
    )
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= {*SCHEMAS, "experiment", "compare", "help"}
    whole = " ".join(" ".join(lines).split())
    for words in ("dry_run=true", "repeat=FOLDER", " -m ", "--hydra-help", "help model=transformers", "--cfg job"):
        assert words in whole


@pytest.mark.parametrize(
    ("program", "name"),
    [("/clone/run.py", "python run.py"), ("/x/__main__.py", "python -m robust_eval"), ("/x/y", "robust-eval")],
)
def test_examples_call_the_program_as_it_was_called(said, program: str, name: str):
    assert f"  {name} repeat=FOLDER" in "\n".join(said(program=program))
    assert f"  {name} experiment=frs model=llama32_3b" in "\n".join(said("experiment=frs", program=program))


HELP = Golden(Path(__file__).with_name("help.jsonl"))


@pytest.mark.parametrize("case", HELP.cases, ids=lambda case: " ".join(case["words"]))
def test_a_group_lists_its_options_and_an_option_its_settings_with_their_docstrings(said, case):
    HELP.check(case, lines=said(*case["words"], columns=case["columns"]))


def test_a_command_is_explained_by_itself(said, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        said("version")
    assert capsys.readouterr().out.startswith("usage: robust-eval version")


@pytest.mark.parametrize(("word", "answer"), cases(__file__, "a_name_of_nothing_is_answered_with_the_nearest"))
def test_a_name_of_nothing_is_answered_with_the_nearest(
    said, capsys: pytest.CaptureFixture[str], word: str, answer: str
):
    with pytest.raises(SystemExit) as end:
        said(word)
    assert (end.value.code, capsys.readouterr().err) == (1, f"error: {answer}\n")


def test_every_option_has_a_sentence():
    assert [name for group in GROUPS for name in options(group) if not first_sentence(description(group, name))] == []
    assert all(group.purpose for group in GROUPS.values())


@pytest.mark.parametrize("group", SCHEMAS)
def test_every_setting_has_a_docstring(group: str):
    found = [setting for option in SCHEMAS[group] if option in options(group) for setting in settings(group, option)]
    assert [setting.name for setting in found if not setting.purpose] == []


def test_a_setting_has_the_value_of_its_option_and_the_docstring_of_its_class():
    found = {setting.name: setting for setting in settings("model", "gpt4o_mini")}
    price = found["model.completion_price"]
    assert price.value == "0.6"
    assert price.purpose == "Price of a million tokens of completions, in US dollars; null: unknown."


@dataclass
class Dice:
    """A model that throws dice. It is
    fair.

    More of it.
    """

    sides: int = 6
    """Of each
    die."""


def test_an_option_without_a_file_is_explained_by_its_class(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(REGISTRY["model"], "dice", Dice)
    assert first_sentence(description("model", "dice")) == "A model that throws dice"
    assert help_command.field_docstrings(Dice) == {"sides": "Of each die."}


def test_a_class_without_source_or_docstring_is_explained_without_words(monkeypatch: pytest.MonkeyPatch):
    made = make_dataclass("Typed", [("sides", int, 6)])
    monkeypatch.setitem(REGISTRY["model"], "typed", made)
    assert description("model", "typed") == []
    assert help_command.field_docstrings(made) == {}


def test_an_option_of_ones_own_is_explained_as_ours_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    text = "# The quiz of our school.\ndefaults: [local, _self_]\nname: quiz\npath: quiz.csv  # beside this folder\n"
    (tmp_path / "conf" / "dataset" / "quiz.yaml").write_text(text)
    assert description("dataset", "quiz") == ["The quiz of our school."]
    found = {setting.name: setting for setting in settings("dataset", "quiz")}
    assert found["dataset.path"] == ("dataset.path", "quiz.csv", "The file, or a folder of files.")
    assert found["dataset.encoding"].value == "utf-8"
