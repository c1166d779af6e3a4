"""People say which answers of a run are right, at a terminal or on a page, and its figures are corrected."""

import http.client
import io
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from answer_rows import changed
from browser import Opened, chromium
from labelled_run import FALSE, TEMPERATURES, labelled_run, truth
from playwright.sync_api import Browser, expect

from robust_eval.cli import label as command
from robust_eval.experiment.scoring import LabelledRun
from robust_eval.labels.label_records import LABELS
from robust_eval.labels.labelling import Labelling, sample
from robust_eval.report.comparison_page import write_comparison
from robust_eval.report.label_server import label_server
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import read_run
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.tracking.run_folder import CONFIG, TRACKED

HOSTILE = [
    "<script>window.hacked = true; alert(1)</script>",
    "</p><img src=x onerror='window.hacked = true'>",
    "{{ 7 * 7 }} ${window.hacked = true}",
    "\x1b]0;hacked\x07\x1b[31m\u202egnorw",
    "javascript:alert(1)",
]
Label = Callable[..., str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    labelled_run(folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be labelled."""
    return Path(copytree(made / "run", tmp_path / "run"))


@pytest.fixture
def label(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Label:
    """The command, with what is typed; what it prints."""

    def label(*words: object, typed: str = "") -> str:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["robust-eval label", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        command.main()
        return capsys.readouterr().out

    return label


def by_truth(run: Path, by: str = "answer", size: int = 10_000, who: str = "ann") -> None:
    """Label a sample as the replies say of themselves."""
    drawn = sample(LabelledRun.read(run).graded, by, size, 0)
    rows = [{**row._asdict(), "label": truth(row.text), "labeller": who} for row in drawn]
    write_parquet(pa.Table.from_pylist(rows, LABELS), run / "labels.parquet")


def summary(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "summary.json").read_text()))


def shares(run: Path) -> dict[float, float]:
    """The share of replies that are truly right, by temperature."""
    graded = pq.read_table(run / "graded.parquet").to_pandas()
    graded["true"] = graded["text"].map(truth) == "right"
    return dict(graded.groupby("temperature")["true"].mean())


def test_labels_are_typed_saved_continued_and_correct_the_figures(run: Path, label: Label):
    before = summary(run)
    printed = label(run, "--sample", 30, "--labeller", "ann", typed="r\nx\nu\nb\nw\nq\n")
    assert "somebody on questions: r right, w wrong, a abstained, u unclear, b back, q stop" in printed
    assert re.search(r"\n\[1 of \d+\] Which town is number \d+\?\n  = Alder\d+ton\n  reply: ", printed)
    assert printed.count("[2 of ") == 3  # after x, which says nothing, and when it was said anew
    labels = pq.read_table(run / "labels.parquet").to_pandas()
    assert labels["label"].tolist() == ["right", "wrong"]
    assert "Not corrected: frs.d1" in " ".join(printed.split())  # two labels are too few

    label(run, "--sample", 30, "--labeller", "ann", typed="r\n" * 40)
    assert len(pq.read_table(run / "labels.parquet")) == 30
    printed = label(run, "--sample", 30, "--labeller", "bob", typed="w\n" * 40)
    assert re.search(r"ann and bob agree on 1 of \d+ replies: Cohen's κ = ", printed)
    after = summary(run)
    assert {name: value for name, value in after.items() if "corrected" not in name} == before


def test_a_metric_that_the_answers_cannot_score_is_not_corrected(run: Path, label: Label):
    config = run / CONFIG
    config.write_text(re.sub(r"^metric:$", "metric:\n  order: {}", config.read_text(), flags=re.MULTILINE))
    label(run, "--sample", 30, "--labeller", "ann", typed="r\n" * 40)
    corrected = [name for name in summary(run) if "corrected" in name]
    assert corrected
    assert not any(name.startswith("order") for name in corrected)


def test_uncertain_replies_are_asked_first_in_turns_with_others(run: Path, label: Label):
    graded = pq.read_table(run / "graded.parquet")
    assert "uncertain replies" not in label(run, "--sample", 4, typed="q\n")

    doubts = {row: row % 50 == 0 for row in range(graded.num_rows)}
    write_parquet(changed(graded, uncertain=doubts), run / "graded.parquet")
    printed = label(run, "--sample", 6, "--labeller", "ann", typed="r\n" * 6)
    assert printed.startswith("at first, every other reply is an uncertain one")
    strata = pq.read_table(run / "labels.parquet")["stratum"].to_pylist()
    assert [stratum.endswith(", uncertain") for stratum in strata] == [True, False] * 3
    assert "uncertain replies" not in label(run, "--by", "question", typed="q\n")


def test_all_answers_labelled_the_corrected_figures_are_those_of_the_labels(run: Path, label: Label):
    by_truth(run)
    printed = label(run, "--sample", 10_000, "--labeller", "ann")

    true, found = shares(run), summary(run)
    for t in TEMPERATURES:
        assert found[f"accuracy_corrected.t{t:g}"] == pytest.approx(true[t], abs=1e-12)
        assert found[f"agreement.corrected.difficulty.t{t:g}"] == pytest.approx(true[t], abs=1e-12)
        assert found[f"certainty.corrected.error_rate.t{t:g}"] == pytest.approx(1 - true[t], abs=1e-12)
        assert found[f"accuracy_corrected.t{t:g}.low"] < true[t] < found[f"accuracy_corrected.t{t:g}.high"]
        assert abs(found[f"accuracy.t{t:g}"] - true[t]) > 0.001
    assert found["accuracy.greedy_corrected"] == 1
    assert "Corrected for the errors of the grader, based on the labels of 520 answers" in printed
    assert "agreement.worst.t1" in printed.split("Not corrected: ", 1)[1]
    assert "needs questions with a label for every answer (label --by question)" in printed


def test_labels_of_abstentions_tell_how_many_the_grader_finds(run: Path, label: Label):
    printed = label(run, "--sample", 30, "--labeller", "ann", typed="a\n" * 3 + "w\n" * 27)
    found = summary(run)
    assert re.search(r"Sensitivity of abstention detection: 0.0 % \(0.0 % to 70.8 %\); labels: \d+.", printed)
    assert (found["abstention.sensitivity"], found["abstention.specificity"]) == (0, 1)

    label(run, "--sample", 30, "--labeller", "ann", "--read", relabelled(run, "wrong"))
    assert "abstention.sensitivity" not in summary(run)


def relabelled(run: Path, word: str) -> Path:
    """A file with the labels of the run, all of this word."""
    file = run / "again.parquet"
    labels = pq.read_table(run / "labels.parquet").to_pylist()
    write_parquet(pa.Table.from_pylist([row | {"label": word} for row in labels], LABELS), file)
    return file


def test_whole_questions_correct_the_vote_the_worst_and_the_best_rater(run: Path, label: Label):
    by_truth(run, "question", 40)
    label(run, "--by", "question", "--sample", 40, "--labeller", "ann")

    graded = pq.read_table(run / "graded.parquet").to_pandas()
    graded["true"] = graded["text"].map(truth) == "right"
    found = summary(run)
    for t in TEMPERATURES:
        here = graded[graded["temperature"] == t]
        of_questions = here.groupby("question_id")["true"]
        assert found[f"agreement.corrected.worst.t{t:g}"] == pytest.approx(of_questions.min().mean(), abs=1e-12)
        assert found[f"agreement.corrected.best.t{t:g}"] == pytest.approx(of_questions.max().mean(), abs=1e-12)
        voted = here[here["ensemble"]]["true"].mean()
        assert found[f"agreement.corrected.plurality.t{t:g}"] == pytest.approx(voted, abs=1e-12)


def test_some_labels_correct_in_every_place_where_figures_are_shown(
    run: Path, label: Label, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    by_truth(run, size=150)
    printed = label(run, "--sample", 150, "--labeller", "ann")

    true, found = shares(run), summary(run)
    errors = [abs(found[f"accuracy_corrected.t{t:g}"] - true[t]) for t in TEMPERATURES]
    assert np.mean(errors) < 0.08
    assert re.search(r"accuracy at t = 1 +│ +0\.500 │ 0\.428 to 0\.572 │ +0\.\d{3} │", printed)
    page = (run / "report.html").read_text()
    assert "Corrected for the errors of the grader, based on the labels of 150 answers" in page
    assert page.count("<!-- corrected metrics -->") == page.count("<!-- end of corrected metrics -->") == 1
    label(run, "--sample", 150, "--labeller", "ann")
    assert (run / "report.html").read_text() == page

    read = read_run(run)
    assert {"accuracy_corrected.t1", "frs.corrected.d1", "agreement.corrected.accuracy.t1"} <= {*read.headline_metrics}
    monkeypatch.setattr("robust_eval.report.comparison_gallery.save_comparison_figures", lambda *_: [])
    write_comparison(compare([read, read_run(run)]), tmp_path / "compared")
    assert "accuracy, corrected by labels at t = 1" in (tmp_path / "compared" / "comparison.html").read_text()


def test_corrected_figures_stand_in_the_tracker_beside_the_uncorrected_ones(
    label: Label, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    labelled_run(tmp_path, 40, metrics="[frs]", tracking="mlflow")
    run, database = tmp_path / "run", tmp_path / "mlruns" / "mlflow.db"
    client = mlflow.MlflowClient(f"sqlite:///{database}")
    run_id = (run / TRACKED).read_text().strip()
    before = client.get_run(run_id).data.metrics
    assert not any("corrected" in name for name in before)

    by_truth(run, size=150)
    own = ["--sample", 150, "--labeller", "ann", "--mlruns", tmp_path / "mlruns"]
    label(run, *own)
    recorded, found = client.get_run(run_id), summary(run)
    assert recorded.info.status == "FINISHED"
    assert {name: recorded.data.metrics[name] for name in before} == before
    more = {name: value for name, value in recorded.data.metrics.items() if name not in before}
    assert {"accuracy_corrected.t1", "accuracy.greedy_corrected", "frs.corrected.d1", "frs.corrected.d1.low"} <= {*more}
    assert all(found[name] == pytest.approx(value) for name, value in more.items() if not name.startswith("curve/"))
    curve = client.get_metric_history(run_id, "curve/accuracy_corrected by t in hundredths")
    assert {point.step: point.value for point in curve} == pytest.approx(
        {round(100 * t): found[f"accuracy_corrected.t{t:g}"] for t in TEMPERATURES}
    )

    database.unlink()  # whoever labels has not always the tracker at hand
    label(run, *own)
    assert f"the corrected metrics are not in MLflow: there is no sqlite:///{database}" in caplog.text
    assert not database.exists()


@pytest.mark.parametrize("theirs", ["server", "database"])
def test_a_folder_does_not_say_to_which_tracker_figures_go(
    theirs: str,
    run: Path,
    label: Label,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """A key in MLFLOW_TRACKING_TOKEN would go there as well."""
    monkeypatch.chdir(tmp_path)
    (run / TRACKED).write_text("0" * 32)
    config = yaml.safe_load((run / "config.yaml").read_text())
    with socket.create_server(("127.0.0.1", 0)) as collector:
        address = f"http://127.0.0.1:{collector.getsockname()[1]}"
        config["tracking"] = {"experiment": "robust_eval", "uri": address if theirs == "server" else None}
        (run / "config.yaml").write_text(yaml.safe_dump(config))
        by_truth(run, size=150)
        label(run, "--sample", 150, "--labeller", "ann")
        collector.setblocking(False)
        with pytest.raises(BlockingIOError):
            collector.accept()
    wanted = f"--uri {address}" if theirs == "server" else f"--mlruns {config['paths']['mlruns']}"
    assert caplog.messages == [f"the corrected metrics are not in MLflow: to record them with the run, add {wanted}"]


def test_a_run_that_is_scored_anew_reads_the_labels_of_its_folder_or_of_a_file(made: Path, run: Path, tmp_path: Path):
    by_truth(run, size=150)
    LabelledRun.read(run)
    file = run / "labels.parquet"
    table = pq.read_table(file).to_pandas()[["question_id", "text", "label"]]
    table.to_csv(tmp_path / "mine.csv", index=False)
    result = labelled_run(tmp_path / "anew", 40, f"labels={tmp_path / 'mine.csv'}", metrics="[frs]")
    assert "accuracy_corrected.t1" in result.summary()
    assert result.scores["corrected"].presentation.tables[0].rows
    assert "Corrected for the errors" in (tmp_path / "anew" / "run" / "report.html").read_text()

    (again := tmp_path / "again" / "run").mkdir(parents=True)
    (again / "labels.parquet").write_bytes(file.read_bytes())
    assert "accuracy_corrected.t1" in labelled_run(tmp_path / "again", 40, metrics="[frs]").summary()


def test_labels_made_elsewhere_are_taken(run: Path, label: Label, tmp_path: Path):
    graded = pq.read_table(run / "graded.parquet").to_pandas().head(60)
    mine = pd.DataFrame({"id": graded["question_id"], "reply": graded["text"], "label": graded["text"].map(truth)})
    mine.drop_duplicates().to_json(tmp_path / "mine.jsonl", orient="records", lines=True)
    printed = label(run, "--read", tmp_path / "mine.jsonl")
    assert re.match(r"\d+ labels of \d+ answers imported: ", printed)
    assert summary(run)["accuracy.greedy_corrected"] == 1

    mine.assign(id="nobody").to_json(tmp_path / "others.jsonl", orient="records", lines=True)
    with pytest.raises(SystemExit):
        label(run, "--read", tmp_path / "others.jsonl")


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def served(run: Path) -> Iterator[tuple[Labelling, str, threading.Event]]:
    labelled = LabelledRun.read(run)
    drawn = sample(labelled.graded, "answer", 12, 0)
    drawn = [row._replace(text=HOSTILE[place]) if place < len(HOSTILE) else row for place, row in enumerate(drawn)]
    labelling = Labelling(run / "labels.parquet", drawn, labelled.questions, "ann")
    with label_server(labelling, "<b>a run</b>") as (address, ended):
        yield labelling, address, ended


class Tab(Opened):
    """The page in a window of its own."""

    def __init__(self, browser: Browser, address: str) -> None:
        super().__init__(browser, address)
        self.reached(0)

    def reached(self, done: int) -> None:
        expect(self.page.locator("#progress")).to_contain_text(f" {done} of ", timeout=60_000)

    @property
    def number(self) -> str | None:
        return self.page.locator("#reply").get_attribute("data-number")


def test_the_page_works_with_the_keyboard_alone_and_hostile_replies_are_inert(
    browser: Browser, served: tuple[Labelling, str, threading.Event]
):
    labelling, address, ended = served
    tab = Tab(browser, address)
    seen = []
    for done, key in enumerate("rwurw"):
        seen.append(tab.page.locator("#reply").text_content())
        tab.page.keyboard.press(key)
        tab.reached(done + 1)
    assert seen == [
        text.replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\u202e", "\\u202e") for text in HOSTILE
    ]
    assert tab.page.evaluate("window.hacked") is None
    tab.page.keyboard.press("b")
    expect(tab.page.locator("#reply")).to_have_attribute("data-number", "4", timeout=60_000)
    tab.page.keyboard.press("a")
    expect(tab.page.locator("#reply")).to_have_attribute("data-number", "5", timeout=60_000)
    tab.page.keyboard.press("Tab")  # to the question, the reply, and then the buttons, one after the other
    for _ in range(2):
        tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")
    tab.reached(6)
    assert [labelling.item(number).label for number in range(6)] == [
        "right",
        "wrong",
        "unclear",
        "right",
        "abstained",
        "right",
    ]
    assert tab.violations() == []
    assert not ended.is_set()
    tab.page.keyboard.press("s")
    expect(tab.page.locator("#notice")).to_contain_text("stopped", timeout=60_000)
    assert ended.is_set()
    assert tab.troubles == []
    tab.page.close()


def test_two_tabs_at_once_lose_nothing(browser: Browser, served: tuple[Labelling, str, threading.Event], run: Path):
    labelling, address, ended = served
    one, other = Tab(browser, address), Tab(browser, address)
    assert (one.number, other.number) == ("0", "1")
    done = 0
    while done < len(labelling):
        for tab in (one, other)[: len(labelling) - done]:
            tab.page.keyboard.press("r")
            done += 1
            tab.reached(done)
    assert ended.is_set()
    assert pq.read_table(run / "labels.parquet")["label"].to_pylist() == ["right"] * 12
    assert one.troubles == other.troubles == []
    one.page.close()
    other.page.close()


def test_a_stranger_gets_nothing_from_the_server(served: tuple[Labelling, str, threading.Event]):
    labelling, address, _ = served
    host, _, secret = address.removeprefix("http://").partition("/")
    text, of_json = {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}
    label, said = f"/{secret}label", {"tab": "x", "number": 0, "label": "right", "seen": None}
    asked: list[tuple[str, str, dict[str, str], str]] = [
        ("GET", "/", {}, ""),
        ("GET", f"/{secret}", {"Host": "evil.example:80"}, ""),
        ("POST", label, text, json.dumps(said)),
        ("POST", label, of_json, '{"tab": "x", "number": true, "label": "right"}'),
        ("POST", label, of_json, json.dumps(said | {"number": 99})),
        ("POST", label, of_json, "[" * 9000),
    ]
    for method, path, headers, body in asked:
        connection = http.client.HTTPConnection(host)
        connection.request(method, path, body, headers)
        assert connection.getresponse().status in (400, 404)
        connection.close()
    assert labelling.done == 0
    assert FALSE not in str(served)
