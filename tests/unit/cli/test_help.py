import sys

import pytest
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


def test_a_group_lists_its_options_with_a_line_each(said):
    assert said("store", columns=200) == [
        "store: where answers are kept",
        "",
        "  store=none     Everything is asked anew, and nothing is kept of a run that is stopped",
        "  store=parquet  Parquet files, one for each block of answers, on a disk that several machines share",
        "  store=sqlite   One file that all runs share: what it has is not asked again (the default)",
    ]


def test_an_option_shows_its_settings_with_the_docstrings_of_their_class(said):
    assert said("sampler=recorded", "store=none", "engine=local", "experiment=frs") == [
        "sampler=recorded",
        "Answers that somebody else collected: python run.py sampler=recorded",
        "sampler.file=answers.jsonl model.name=gpt-3.5",
        "It chooses model=recorded",
        "",
        "  sampler.recorded.file=…            Parquet, CSV, TSV or JSON Lines, by its",
        "                                     suffix; ``answers.parquet`` of any run is",
        "                                     such a file.",
        "  sampler.recorded.columns=null      What the file calls the columns that have",
        "                                     another name here, for example {text:",
        "                                     reply}; null: none has.",
        "  sampler.recorded.temperature=null  At which all answers were drawn, where the",
        "                                     file has no column that says so; .nan: at",
        "                                     the model's own.",
        "  sampler.recorded.selection=none    Which questions go on: those whose answer",
        "                                     at temperature 0 is an exact_match of an",
        "                                     accepted answer, contains one, or all",
        "                                     (none: no selection).",
        "  (… must be given)",
        "sampler.file does as well, where no other chosen sampler has that setting.",
        "",
        "store=none",
        "Everything is asked anew, and nothing is kept of a run that is stopped.",
        "",
        "engine=local",
        "On this machine.",
        "",
        "  engine.threads=null  CPU threads of torch; null: as many as are fastest on",
        "                       this machine, measured once. Set it when several runs",
        "                       share a machine.",
        "",
        "experiment=frs",
        "The Factual Robustness Score of the paper (Fastowski, Prenkaj, Kasneci): this is",
        "also what runs without a preset.",
        "  python run.py experiment=frs",
        "  python run.py experiment=frs model=llama32_3b",
        "It chooses sampler=temperature_sweep metric=frs",
    ]


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
