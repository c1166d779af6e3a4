"""A real small run of all three methods, and its figures."""

import contextlib
import io
import json
import re
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from experiments import configuration, run_experiment
from own_metric import Held
from PIL import Image
from tiny_model import save_tiny_model

from robust_eval.cli.compare import show
from robust_eval.cli.plot import main as plot
from robust_eval.error import UserError
from robust_eval.metric.frs_specs import FRS
from robust_eval.plot import figure_files
from robust_eval.plot.figure_files import save, save_for_paper
from robust_eval.plot.figure_registry import RegisteredFigure, registered
from robust_eval.plot.style import COLUMN, TWO_COLUMNS
from robust_eval.report.run_summary import headline_rows
from robust_eval.report.terminal import print_summary
from robust_eval.runs.figure_data import figure_data, read_figure_data
from robust_eval.tracking.result import Result

OF_THE_METHOD = {"frs_surfaces", "f_surfaces"}
OF_CONVERSATIONS = {"facts_under_pushback", "accuracy_by_budget", "variance_of_questions"}
"""Drawn in tests/integration/experiment/test_challenge.py and test_thinking.py."""
OTHERS = [entry for entry in registered() if entry.name not in OF_CONVERSATIONS]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """All methods and a metric of one's own, on a few questions with types, categories and rewrites.

    The model is tiny, and its answers are random.
    """
    folder = tmp_path_factory.mktemp("run")
    questions = tmp_path_factory.mktemp("data") / "questions.jsonl"
    records = [
        {
            "id": f"q{place}",
            "question": f"What is number {place}?",
            **({"answers": ["kkkkk"]} if place < 10 else {"choices": ["e", "f"], "correct": place % 2}),
            "type": ["NUM", "LOC"][place % 2],
            "category": ["odd", "even"][place // 2 % 2],
            "rewrites": [f"Which one is number {place}?", f"Tell me number {place}."],
        }
        for place in range(12)
    ]
    questions.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    settings = [
        "experiment=profile",
        "aggregator=text",
        "grader.contains=substring",
        "model=transformers",
        f"model.path={save_tiny_model(tmp_path_factory.mktemp('model'), letters=True)}",
        "model.name=tiny",
        "model.prompt_style=plain",
        "dataset=jsonl",
        f"dataset.path={questions}",
        "dataset.name=mine",
        "tracking=none",
        f"paths.mlruns={folder.parent / 'mlruns'}",
        "sampler.temperature_sweep.selection=none",
        "sampler.temperature_sweep.temperatures=[0.5,1,1.5,2]",
        "sampler.temperature_sweep.trials=3",
        "sampler.repetition.trials=4",
    ]
    metrics = {**configuration(*settings).metric, "held": Held()}
    return run_experiment(folder, *settings, figures=True, metrics=metrics), folder


@pytest.fixture(scope="module")
def drawn(ran: tuple[Result, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure of the catalogue that the run allows, and those of the method, as the command draws them."""
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", ["robust-eval plot", str(ran[1]), "--output", str(folder)])
        plot()
    assert printed.getvalue().replace("\n", "") == f"figures: {folder}"
    return folder


def test_a_run_of_all_methods_has_every_figure(ran: tuple[Result, Path], drawn: Path):
    assert {file.stem for file in drawn.iterdir()} == {entry.name for entry in OTHERS}
    in_its_report = {file.stem for file in (ran[1] / "figures").iterdir()}
    assert in_its_report == {entry.name for entry in OTHERS} - OF_THE_METHOD


def test_a_run_and_its_folder_tell_the_same(ran: tuple[Result, Path], drawn: Path):
    result, folder = ran
    told, read = figure_data(result), read_figure_data(folder)
    for name, table in told.tables.items():
        pd.testing.assert_frame_equal(table.to_pandas(), read.tables[name].to_pandas(), obj=name)
    assert told.specs == read.specs
    for name, curve in told.curves.items():
        np.testing.assert_allclose([*read.curves[name].values()], [*curve.values()], err_msg=name)
    assert told.by_parameter(FRS) == read.by_parameter(FRS)
    for file in (folder / "figures").iterdir():  # drawn of the run itself: equal figures give equal files
        assert file.read_bytes() == (drawn / file.name).read_bytes(), file.name


@pytest.mark.parametrize("entry", OTHERS, ids=lambda entry: entry.name)
def test_every_figure_has_its_words(entry: RegisteredFigure):
    assert entry.shows.endswith(".")
    assert entry.interpretation.endswith(".")
    assert entry.reading == f"{entry.shows} {entry.interpretation}"
    assert entry.alternative == f"{entry.caption}. {entry.shows}"
    assert re.search(r"Fastowski|Cho|Reganova|not in the paper|our own", entry.source)


def test_no_two_figures_share_a_name_or_a_caption():
    assert (
        len({entry.name for entry in registered()})
        == len({entry.caption for entry in registered()})
        == len(registered())
    )


def test_drawings_keep_what_the_style_promises(drawn: Path):
    for file in drawn.glob("*.svg"):
        drawing = file.read_text(encoding="utf-8")
        ids = re.findall(r'\bid="([^"]+)"', drawing)
        assert len(ids) == len(set(ids)), file.name
        assert set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", drawing)) <= set(ids)
        assert not re.search(r"(?:fill|stroke): (?:#ffffff|white)", drawing), file.name  # nothing lies behind
        assert "<text" in drawing
        assert "<style" not in drawing  # it would hold for the whole page
        assert "viewBox" in drawing


def test_pictures_are_white_where_nothing_is_drawn(drawn: Path):
    for file in drawn.glob("*.png"):
        assert plt.imread(file)[0, 0].tolist() == [1, 1, 1, 1]


def figure_rows(text: str) -> list[list[str]]:
    """The rows of the first table of figures in a terminal's text."""
    table, _, _ = text.partition("└")
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]


def test_a_run_ends_with_twelve_figures_and_a_command_shows_them_and_the_others(
    ran: tuple[Result, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    result, folder = ran
    monkeypatch.setenv("COLUMNS", "200")
    print_summary(result, folder, "store", None)
    ended = capsys.readouterr().out

    def shown(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["robust-eval show", str(folder), *options])
        show()
        return capsys.readouterr().out

    main, every = figure_rows(ended), figure_rows(shown("--all"))
    assert len(main) == 12
    assert figure_rows(shown()) == main
    assert [row for row in every if row in main] == main
    assert f"\n{len(every) - 12} more: robust-eval show {folder} --all\n" in ended
    assert len(every) == sum(len(headline_rows(score)) for score in result.scores.values())
    assert "more:" not in shown("--all")


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_the_table_of_figures_fits_its_window(
    ran: tuple[Result, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", ["robust-eval show", str(ran[1])])
    show()
    table, _, _ = capsys.readouterr().out.partition("└")
    assert max(map(len, table.splitlines()[1:])) <= columns
    assert "…" not in table


def test_figures_of_a_paper_have_no_title_fit_its_columns_and_come_with_fonts_and_captions(
    ran: tuple[Result, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn = []
    monkeypatch.setattr(figure_files, "save", lambda fig, *_, **__: drawn.append(fig) or save(fig, *_, **__))
    wide = "reply_certainty_by_temperature"
    names = ["accuracy_by_temperature", "frs_density", wide]
    entries = [entry for entry in registered() if entry.name in names]
    save_for_paper(entries, figure_data(ran[0]), tmp_path, "m on facts: 9 of 12 questions kept")
    assert [fig.get_suptitle() for fig in drawn] == [""] * 3
    assert all(axes.get_title() == "" for fig in drawn[:1] for axes in fig.axes)
    for name in names:
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.width == pytest.approx(300 * (TWO_COLUMNS if name == wide else COLUMN), abs=1)
        assert b"/FontFile2" in (tmp_path / f"{name}.pdf").read_bytes()
        assert "<text" not in (tmp_path / f"{name}.svg").read_text()
    captions = (tmp_path / "captions.md").read_text()
    assert captions.startswith(
        "## accuracy_by_temperature\n\nAccuracy against temperature. m on facts: 9 of 12 questions"
    )


def test_a_link_in_a_folder_does_not_say_where_figures_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "run" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "figures" / "survival.svg").symlink_to(tmp_path / "mine")
    monkeypatch.setattr(sys, "argv", ["robust-eval plot", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match="1"):
        plot()
    assert "contains a symbolic link, which may point elsewhere: set --output" in capsys.readouterr().err


def test_what_is_no_finished_run_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(sys, "argv", ["robust-eval plot", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        plot()
    assert stopped.value.code == 1
    assert "is not a finished run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_table_is_named(ran: tuple[Result, Path], tmp_path: Path):
    shutil.copytree(ran[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / "frs.parquet").write_bytes(b"no table")
    tables = read_figure_data(tmp_path).tables
    with pytest.raises(UserError, match=r"frs\.parquet cannot be read"):
        tables["frs"]
