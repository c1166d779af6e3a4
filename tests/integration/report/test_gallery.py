"""A real small run of all three methods, its figures and its gallery."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from experiments import configuration, run_experiment
from own_metric import Held
from shell import Shell
from tiny_model import save_tiny_model

from robust_eval.error import UserError
from robust_eval.metric.frs_presentation import FRS
from robust_eval.plot.files import save
from robust_eval.report.catalogue import CATALOGUE, Entry
from robust_eval.report.figures import SavedFigure, save_entries, save_figures
from robust_eval.report.findings import findings, read_findings
from robust_eval.report.gallery import snippet, write_gallery
from robust_eval.tracking.result import Result

OF_THE_METHOD = {"frs_surfaces", "f_surfaces"}
OF_CONVERSATIONS = {"facts_under_doubt", "accuracy_by_budget", "variance_of_questions"}
"""Drawn in tests/integration/experiment/test_challenge.py and test_thinking.py."""
OTHERS = [entry for entry in CATALOGUE if entry.name not in OF_CONVERSATIONS]


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
        "sampler.temperature_sweep.trials=3",
        "sampler.repetition.trials=4",
    ]
    metrics = {**configuration(*settings).metric, "held": Held()}
    return run_experiment(folder, *settings, figures=True, metrics=metrics), folder


@pytest.fixture(scope="module")
def saved(ran: tuple[Result, Path], tmp_path_factory: pytest.TempPathFactory) -> list[SavedFigure]:
    """Every figure of the catalogue that the run allows, and those of the method."""
    run = read_findings(ran[1])
    entries = [entry for entry in CATALOGUE if entry.allowed is None or entry.allowed(run)]
    return save_entries(entries, run, tmp_path_factory.mktemp("figures"))


def names(figures: list[SavedFigure]) -> list[str]:
    return [figure.entry.name for figure in figures]


def test_a_run_of_all_methods_has_every_figure(ran: tuple[Result, Path], saved: list[SavedFigure]):
    assert names(saved) == [entry.name for entry in OTHERS]
    in_its_report = {file.stem for file in (ran[1] / "figures").iterdir()}
    assert in_its_report == set(names(saved)) - OF_THE_METHOD


def test_a_run_and_its_folder_tell_the_same(ran: tuple[Result, Path], tmp_path: Path):
    result, folder = ran
    told, read = findings(result), read_findings(folder)
    for name, table in told.tables.items():
        pd.testing.assert_frame_equal(table.to_pandas(), read.tables[name].to_pandas(), obj=name)
    assert told.declared == read.declared
    assert told.settings["metric.frs.threshold"] == read.settings["metric.frs.threshold"] == 0.5
    for name, curve in told.curves.items():
        np.testing.assert_allclose([*read.curves[name].values()], [*curve.values()], err_msg=name)
    assert told.across(FRS) == read.across(FRS)
    for figure in save_figures(result, tmp_path):  # equal figures give equal files
        other = folder / "figures" / figure.svg.name
        assert figure.svg.read_bytes() == other.read_bytes()
        assert figure.svg.with_suffix(".png").read_bytes() == other.with_suffix(".png").read_bytes()


def test_figures_are_drawn_once_for_each_change_of_what_they_show(
    ran: tuple[Result, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    result, notes = ran[0], tmp_path / "notes"
    entries = [entry for entry in CATALOGUE if entry.name in ("survival", "frs_by_entropy_and_breaking")]
    monkeypatch.setattr("robust_eval.report.figures.CATALOGUE", entries)
    drawn: list[str] = []

    def draw(entries: list[Entry], *where: Any) -> list[SavedFigure]:
        drawn.extend(entry.name for entry in entries)
        return save_entries(entries, *where)

    monkeypatch.setattr("robust_eval.report.figures.save_entries", draw)
    other = replace(result, scores={name: replace(score, values={}) for name, score in result.scores.items()})
    first = save_figures(result, tmp_path / "first", notes)
    again = save_figures(result, tmp_path / "again", notes)
    assert drawn == [entry.name for entry in entries]
    assert [figure.entry for figure in again] == [figure.entry for figure in first] == entries
    files = [sorted((tmp_path / folder).iterdir()) for folder in ("first", "again")]
    assert [file.name for file in files[0]] == [file.name for file in files[1]]
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]

    files[0][0].write_bytes(b"of somebody else")  # what was changed or removed since is drawn anew
    save_figures(result, tmp_path / "anew", notes)
    assert drawn == [entry.name for entry in entries] * 2
    assert (tmp_path / "anew" / files[0][0].name).read_bytes() == files[1][0].read_bytes()
    save_figures(other, tmp_path / "other", notes)
    assert drawn == [entry.name for entry in entries] * 3
    assert len(list(notes.iterdir())) == 2


@pytest.mark.parametrize("entry", OTHERS, ids=lambda entry: entry.name)
def test_the_lines_under_a_figure_draw_it_on_plain_axes(entry: Entry, ran: tuple[Result, Path]):
    lines = snippet(entry, ran[1])
    space: dict[str, object] = {}
    exec(lines, space)
    drawn = space["drawn"]
    assert isinstance(drawn, plt.Figure)
    drawn.canvas.draw()
    assert any(axes.has_data() for axes in drawn.axes)
    assert ("run = read_findings(" in lines) is (entry.name not in OF_THE_METHOD)
    plt.close(drawn)


@pytest.mark.parametrize("entry", OTHERS, ids=lambda entry: entry.name)
def test_every_figure_has_its_words(entry: Entry):
    assert entry.shows.endswith(".")
    assert entry.tells.endswith(".")
    assert entry.reading == f"{entry.shows} {entry.tells}"
    assert entry.alternative == f"{entry.caption}. {entry.shows}"
    assert re.search(r"Fastowski|Cho|Reganova|beyond the paper|our own", entry.source)


def test_no_two_figures_share_a_name_or_a_caption():
    assert len({entry.name for entry in CATALOGUE}) == len({entry.caption for entry in CATALOGUE}) == len(CATALOGUE)


def test_drawings_keep_what_the_style_promises(saved: list[SavedFigure]):
    for figure in saved:
        drawing = figure.svg.read_text(encoding="utf-8")
        ids = re.findall(r'\bid="([^"]+)"', drawing)
        assert len(ids) == len(set(ids)), figure.entry.name
        assert set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", drawing)) <= set(ids)
        assert not re.search(r"(?:fill|stroke): (?:#ffffff|white)", drawing), figure.entry.name  # nothing lies behind
        assert "<text" in drawing
        assert "<style" not in drawing  # it would hold for the whole page
        assert "viewBox" in drawing


def test_pictures_are_white_where_nothing_is_drawn(saved: list[SavedFigure]):
    for figure in saved:
        assert plt.imread(figure.svg.with_suffix(".png"))[0, 0].tolist() == [1, 1, 1, 1]


def test_places_are_shortened_and_texts_are_not(tmp_path: Path):
    drawn, axes = plt.subplots(layout="constrained")
    axes.plot([0, 1 / 3], [0, 1 / 7])
    axes.set_title('x="0.123456789" d="1.23456"', parse_math=False)
    with plt.rc_context({"svg.fonttype": "none"}):
        drawing = save(drawn, tmp_path / "drawn").read_text()
    assert re.search(r'x=(?:"|&quot;)0\.123456789(?:"|&quot;) d=(?:"|&quot;)1\.23456', drawing)
    paths = re.findall(r'<path[^>]* d="([^"]+)"', drawing)
    assert paths
    assert not any(re.search(r"\.\d{3}", path) for path in paths)
    plt.close(drawn)


class Page(HTMLParser):
    """What figures are called for those who cannot see them, the code, and addresses that the page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.labels: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids += [found["id"]] if "id" in found else []
        self.loads += [found[name] for name in ("src", "href", "xlink:href") if name in found]
        if tag == "figure":
            self.labels.append(found["aria-label"])


def test_the_gallery_shows_every_figure_with_its_words_and_loads_nothing(
    ran: tuple[Result, Path], saved: list[SavedFigure], tmp_path: Path
):
    written = write_gallery(ran[1], tmp_path)
    text = written.read_text(encoding="utf-8")
    page = Page(text)
    assert written == tmp_path / "gallery.html"
    assert page.labels == [figure.entry.alternative for figure in saved]
    assert len(page.ids) == len(set(page.ids))
    assert all(address.startswith(("#", "data:")) for address in page.loads)
    assert "tiny on mine" in text
    for figure in saved:
        assert figure.entry.source.replace("&", "&amp;") in text
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        f"{name}.{end}" for name in names(saved) for end in ("png", "svg")
    }


def test_the_command_writes_the_gallery_into_the_folder_of_the_run(shell: Shell, ran: tuple[Result, Path]):
    page = ran[1] / "gallery" / "gallery.html"
    done = shell.python(["-m", "robust_eval.plot", str(ran[1])])
    assert (done.returncode, done.stdout.strip()) == (0, f"gallery: {page}")
    assert page.is_file()


def test_a_link_in_a_folder_does_not_say_where_figures_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    from robust_eval.cli.plot import main

    (tmp_path / "run" / "gallery").mkdir(parents=True)
    (tmp_path / "run" / "gallery" / "gallery.html").symlink_to(tmp_path / "mine")
    monkeypatch.setattr(sys, "argv", ["robust-eval plot", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "holds a link, and no folder is trusted to say where files go: name --output" in capsys.readouterr().err


def test_what_is_no_finished_run_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    from robust_eval.cli.plot import main

    monkeypatch.setattr(sys, "argv", ["robust_eval.plot", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert "is no finished run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_table_is_named(ran: tuple[Result, Path], tmp_path: Path, copy_run: Callable[[Path, Path], None]):
    copy_run(ran[1], tmp_path)
    (tmp_path / "frs.parquet").write_bytes(b"no table")
    tables = read_findings(tmp_path).tables
    with pytest.raises(UserError, match=r"frs\.parquet cannot be read"):
        tables["frs"]


@pytest.fixture
def copy_run() -> Callable[[Path, Path], None]:
    """Copy the files of a run into another folder."""

    def copy(source: Path, target: Path) -> None:
        for file in source.iterdir():
            if file.is_file():
                (target / file.name).write_bytes(file.read_bytes())

    return copy
