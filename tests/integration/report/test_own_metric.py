"""A metric of one's own looks like ours: in the terminal, the report, a comparison, the tracker and the files."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from experiments import run_experiment
from own_metric import BELOW, HELD, LENGTH, Held
from tiny_model import save_tiny_model

from robust_eval.metric.metric_spec import as_json, from_json
from robust_eval.report.comparison_page import write_comparison
from robust_eval.report.comparison_tables import comparison_tables
from robust_eval.report.mlflow_tables import run_note, run_tables
from robust_eval.report.page import write_page
from robust_eval.report.question_table import number_columns
from robust_eval.report.terminal import print_comparison, print_summary
from robust_eval.runs.comparison import Comparison, compare
from robust_eval.runs.finished_runs import read_run
from robust_eval.runtime.text import number
from robust_eval.tracking.result import Result

LABELS = [
    "questions answered right every time at t = 0.5",
    "questions answered right every time at t = 1",
    "questions answered right every time at t = 3",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path, Path]:
    """Two runs of a tiny model, whose answers are random, under different seeds; the result is the first's."""
    data = tmp_path_factory.mktemp("data")
    lines = [
        {"id": f"q{place}", "question": f"What is number {place}?", "answers": [*"abcdefgh"]} for place in range(12)
    ]
    (data / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sampler = "sampler.temperature_sweep"
    settings = [
        *("model=transformers", f"model.path={save_tiny_model(data / 'model')}", "model.name=tiny"),
        *("model.prompt_style=plain", "dataset=jsonl", f"dataset.path={data}/mine.jsonl", "dataset.name=mine"),
        *(f"{sampler}.selection=none", f"{sampler}.trials=1", f"{sampler}.temperatures=[0.5,1,3]"),
        *("grader.contains=substring", "tracking=none", f"paths.mlruns={data}/mlruns"),
    ]
    first, second = data / "first", data / "second"
    first.mkdir()
    second.mkdir()
    result = run_experiment(first, *settings, metrics={"held": Held()})
    run_experiment(second, *settings, "seed=1", metrics={"held": Held()})
    return result, first, second


@pytest.fixture(scope="module")
def compared(folders: tuple[Result, Path, Path]) -> Comparison:
    return compare([read_run(folder) for folder in folders[1:]])


@pytest.fixture(scope="module")
def written(compared: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the comparison."""
    folder = tmp_path_factory.mktemp("comparison")
    write_comparison(compared, folder)
    return folder


def test_its_figures_stand_in_the_terminal_under_their_labels(
    folders: tuple[Result, Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "160")
    print_summary(folders[0], folders[1], "store", None)
    shown = [line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert shown == ["length of the question (characters)", *LABELS, "accuracy of all greedy answers"]


def test_its_headline_figure_is_a_column_of_the_questions(folders: tuple[Result, Path, Path], tmp_path: Path):
    result, folder, _ = folders
    (column,) = number_columns(result)
    assert (column.name, column.label, column.description) == ("held", "right every time", LABELS[1])
    questions = pq.read_table(folder / "questions.parquet")
    assert column.numbers.tolist() == questions["held.t1"].to_pylist()
    write_page(result, [], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<caption>held</caption>" in page
    assert all(label in page for label in LABELS)


def test_its_folder_says_what_its_figures_are(folders: tuple[Result, Path, Path]):
    found = json.loads((folders[1] / "metrics.json").read_text(encoding="utf-8"))
    assert found[:3] == as_json([HELD, BELOW, LENGTH])
    assert from_json(found)[:3] == [HELD, BELOW, LENGTH]


def test_runs_are_compared_in_it_as_a_whole_and_question_by_question(compared: Comparison):
    tables = {table.title: table for table in comparison_tables(compared)}
    assert tables["Runs"].header[3:] == [*(f"{label} ↑" for label in LABELS), "accuracy of all greedy answers ↑"]
    assert [row[2].value for row in tables["Pairs"].rows] == [LABELS[0]]
    differ = [title for title in tables if title.startswith("Questions with the largest differences")]
    assert differ == ["Questions with the largest differences: right every time at t = 1, mine"]
    assert "ties go to the question asked first. " in tables[differ[0]].note


def test_a_comparison_in_the_terminal_and_on_its_page_shows_it(
    compared: Comparison, written: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "160")
    print_comparison(compared, written)
    heading = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("┃"))
    assert [cell.strip() for cell in heading.strip("┃").split("┃")] == [
        *("run", "right every time, t = 1", "greedy accuracy", "kept"),
    ]
    assert LABELS[2] in (written / "comparison.html").read_text(encoding="utf-8")
    assert "held.t1" in pq.read_table(written / "questions.parquet").column_names


def test_a_comparison_draws_it_as_its_metric_declares_it(written: Path):
    page = (written / "comparison.html").read_text(encoding="utf-8")
    for file, caption, along in (
        ("held_by_temperature", "Questions answered right every time against temperature, mine", "temperature t"),
        ("held_below_by_below", "Right every time below t = …, mine", "temperature"),
    ):
        drawn = (written / "figures" / f"{file}.svg").read_text(encoding="utf-8")
        texts = re.findall(r"<text[^>]*>([^<]+)</text>", drawn)
        assert {along, "0.0", "1.0", "seed=1"} <= set(texts)
        assert caption in " ".join(texts)
        assert f'aria-label="{caption}"' in page
    assert f"<figcaption><p>{BELOW.explained}</p></figcaption>" in page


def test_a_comparison_has_its_values_by_data_set_beside_their_companion(compared: Comparison):
    table = next(table for table in comparison_tables(compared) if table.title.endswith(" by data set"))
    heading, length = "right every time below t = …", "length of the question (characters)"
    assert table.title == "Right every time below t = … by data set"
    assert (table.header, table.note) == (["run", "below", f"{heading}, mine", length], "Read it with the length.")
    first, second = (run.metrics for run in compared.runs)
    assert [[cell.value for cell in row[1:]] for row in table.rows] == [
        [t, number(figures[f"held.below{t}"].value), number(figures["held.length"].value, LENGTH.form)]
        for figures in (first, second)
        for t in ("1", "3")
    ]


def test_the_tracker_shows_it(folders: tuple[Result, Path, Path]):
    assert all(f"| {label} |" in run_note(folders[0]) for label in LABELS)
    assert list(run_tables(folders[0])["questions"].column_names) == ["question", "greedy answer", "status", "held.t1"]
