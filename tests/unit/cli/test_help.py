import sys
from pathlib import Path

import pytest
from golden import Golden
from json_lines import cases

from robust_eval.cli import help as help_command
from robust_eval.config.schema import SCHEMAS


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def said(*words: str, columns: int = 80, program: str = "/usr/bin/robust-eval") -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", [program, *words])
        help_command.main()
        return capsys.readouterr().out.splitlines()

    return said


@pytest.mark.parametrize("columns", [80, 100])
def test_the_overview_stands_on_one_screen_and_names_every_group(said, columns: int):
    lines = said(columns=columns)
    assert len(lines) <= 47
    assert max(map(len, lines)) <= columns
    assert lines[:3] == [
        "Measure how firmly a language model holds the facts that it answers right.",
        "",
        "  robust-eval                                       built-in facts, small model",
    ]
    assert "  metric      how scored: frs, agreement, certainty, challenge, order, thinking" in lines
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= {*SCHEMAS, "experiment", "compare", "help"}
    whole = "\n".join(lines)
    for words in ("dry_run=true", "repeat=FOLDER", " -m ", "--hydra-help", "help model=transformers", "--cfg job"):
        assert words in whole


@pytest.mark.parametrize(
    ("program", "name"),
    [("/clone/run.py", "python run.py"), ("/x/__main__.py", "python -m robust_eval"), ("/x/y", "robust-eval")],
)
def test_examples_call_the_program_as_it_was_called(said, program: str, name: str):
    assert f"  {name} repeat=FOLDER" in "\n".join(said(program=program))


HELP = Golden(Path(__file__).with_name("help.jsonl"))


@pytest.mark.parametrize("case", HELP.cases, ids=lambda case: " ".join(case["words"]))
def test_a_group_lists_its_options_and_an_option_its_settings_with_their_docstrings(said, case):
    HELP.check(case, lines=said(*case["words"], columns=case["columns"]))


def test_the_second_column_begins_below_a_setting_that_is_long(said):
    lines = said("sampler=exact")
    place = next(place for place, line in enumerate(lines) if "exact.temperatures=" in line)
    assert lines[place + 1].strip() == "The grid, all above 0."


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
