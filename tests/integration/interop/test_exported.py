"""A run with answers of all kinds, given to other harnesses: their readers take it, and it comes back whole."""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hostile_run import hostile_run
from inspect_ai._view.fastapi_server import view_server_app
from inspect_ai.log import read_eval_log
from starlette.testclient import TestClient

import robust_eval
from robust_eval.answer import GRADED_COLUMNS, NO_REPLY, SAMPLER
from robust_eval.cli.export_run import WRITERS, main
from robust_eval.tracking.run_folder import GRADED

PLACE = ["question_id", SAMPLER, "rewrite", "temperature", "trial"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> robust_eval.Evaluation:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("robust_eval.plot.figure_files.registered", list)  # most of the time of a small run
        return hostile_run(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def exported(run: robust_eval.Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run in each format."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patched:
        for to in WRITERS:
            patched.setattr("sys.argv", ["export", str(run.folder), "--to", to, "--output", str(folder / to)])
            main()
    return folder


@pytest.fixture(scope="module")
def every_eval_ever(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with the package, which is installed by itself: what it needs is here, but for Python 3.12."""
    folder = tmp_path_factory.mktemp("every_eval_ever")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    got = subprocess.run([*pip, "--ignore-requires-python", "--target", str(folder), "every-eval-ever==0.3.0"])
    if got.returncode:
        pytest.skip("the package index cannot be reached")
    return os.environ | {"PYTHONPATH": str(folder)}


def test_the_answers_come_back_to_the_last_digit(run: robust_eval.Evaluation, exported: Path):
    graded = pq.read_table(run.folder / GRADED).drop_columns(["ensemble"]).to_pandas().sort_values(PLACE)
    ours = run.metrics[~run.metrics["name"].str.contains("time|seconds")].set_index("name")[["value", "low", "high"]]
    for to in ("inspect", "every-eval-ever"):
        folders = {file.parent for file in (exported / to).rglob("*") if file.is_file()}
        (loaded,) = robust_eval.load_answers(*folders)
        again = loaded.score(tracking="none")
        theirs = pq.read_table(again.folder / GRADED).drop_columns(["ensemble"]).to_pandas().sort_values(PLACE)
        pd.testing.assert_frame_equal(theirs.reset_index(drop=True), graded.reset_index(drop=True), check_like=True)
        found = again.metrics.set_index("name")[["value", "low", "high"]].loc[ours.index]
        pd.testing.assert_frame_equal(found, ours, check_exact=True)
        assert {*again.questions["question_id"]} == {*run.questions["question_id"]}


def test_the_viewer_of_inspect_opens_the_log_with_our_scores_and_figures(run: robust_eval.Evaluation, exported: Path):
    (file,) = (exported / "inspect").glob("*.eval")
    log = read_eval_log(str(file))
    assert (log.status, log.eval.model, log.eval.task) == ("success", "org/made up: =1", "facts & figures")
    assert log.results is not None
    metrics = {name: each.value for name, each in log.results.scores[0].metrics.items()}
    figures = run.metrics.set_index("name")
    for name in ("frs", "accuracy.greedy", "certainty.entropy.t1"):
        assert [metrics[f"{name}{end}"] for end in ("", ".low", ".high")] == list(
            figures.loc[name, ["value", "low", "high"]]
        )
    graded = pq.read_table(run.folder / GRADED).to_pylist()
    judged = [row["correct"] for row in graded if row["correct"] is not None and row["outcome"] not in NO_REPLY]
    values = [score.value for sample in log.samples or [] for score in (sample.scores or {}).values()]
    assert sorted(value for value in values if isinstance(value, str)) == sorted("CI"[not right] for right in judged)
    assert len(values) == len(graded)
    assert log.reductions is not None
    (frs,) = (each for each in log.reductions if each.scorer == "frs.d1")
    assert math.isclose(sum(one.value for one in frs.samples) / len(frs.samples), metrics["frs.d1"])
    with TestClient(view_server_app(default_dir=str(file.parent))) as viewer:
        (listed,) = viewer.get("/log-files").json()["files"]
        assert (listed["task"], listed["task_id"]) == ("facts-figures", log.eval.task_id)
        shown = viewer.get(f"/logs/{quote(listed['name'], safe='')}").json()
    assert shown["results"]["scores"][0]["metrics"]["frs"]["value"] == metrics["frs"]
    assert len(shown["samples"]) == len(graded)


def test_the_validator_of_every_eval_ever_takes_the_record(exported: Path, every_eval_ever: dict[str, str]):
    folder = exported / "every-eval-ever"
    files = [str(file.relative_to(folder)) for file in folder.rglob("*.json*")]
    program = [sys.executable, "-m", "every_eval_ever"]
    ran = subprocess.run(
        [*program, "validate", "--format", "json", *files],
        cwd=folder,
        env=every_eval_ever,
        capture_output=True,
        text=True,
    )
    said = json.loads(ran.stdout)
    assert {(each["file_type"], each["valid"], len(each["errors"])) for each in said} == {
        ("aggregate", True, 0),
        ("instance", True, 0),
    }
    record = json.loads(next(folder.rglob("*[!s].json")).read_text())
    results = {each["evaluation_result_id"]: each["score_details"] for each in record["evaluation_results"]}
    assert results["frs"]["uncertainty"]["confidence_interval"]["lower"] < results["frs"]["score"]


def test_tables_hold_no_formula_and_every_text(run: robust_eval.Evaluation, exported: Path):
    tables = {}
    for name in ("answers", "questions", "metrics"):
        with open(exported / "csv" / f"{name}.csv", encoding="utf-8", newline="") as file:
            tables[name] = list(csv.DictReader(file))
    cells = [cell for rows in tables.values() for row in rows for pair in row.items() for cell in pair]
    assert [cell for cell in cells if cell.strip().startswith(("=", "+", "@", "-")) and not _is_number(cell)] == []
    graded = pq.read_table(run.folder / GRADED).to_pylist()
    texts = [row["text"].removeprefix("'") for row in tables["answers"]]
    assert sorted(texts) == sorted(row["text"] for row in graded)
    assert {*tables["answers"][0]} >= {*PLACE, *GRADED_COLUMNS, "text"}
    assert {row["id"].removeprefix("'") for row in tables["questions"]} == {row["question_id"] for row in graded}
    frs = run.metrics.set_index("name").loc["frs.d1"]
    (row,) = (row for row in tables["metrics"] if row["name"] == "frs.d1")
    assert [float(row[name]) for name in ("value", "low", "high")] == [frs["value"], frs["low"], frs["high"]]
    of_questions = [float(row["frs.d1"]) for row in tables["questions"]]
    assert math.isclose(sum(of_questions) / len(of_questions), frs["value"])


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["export", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    return " ".join(capsys.readouterr().err.split())


def test_probabilities_of_answers_go_where_there_is_a_place_for_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    question = {"id": "it", "question": "Capital of Italy?", "choices": ["Rome", "Milan"], "correct": "A"}
    shares = [("A", 0.7), ("B", 0.3)]
    run = robust_eval.score(
        [
            {"question_id": "it", "text": text, "temperature": 1.0, "trial": trial, "weight": share}
            for trial, (text, share) in enumerate(shares)
        ],
        [question],
        tracking="none",
    )
    said = refused(monkeypatch, capsys, str(run.folder), "--to", "every-eval-ever", "--output", "record")
    assert said.endswith("cannot store: export it with --to inspect or --to csv")
    monkeypatch.setattr("sys.argv", ["export", str(run.folder), "--to", "inspect", "--output", "inspect"])
    main()
    (loaded,) = robust_eval.load_answers("inspect")
    assert loaded.answers[["text", "weight"]].values.tolist() == [list(each) for each in shares]


@pytest.mark.parametrize("to", ["inspect", "every-eval-ever"])
def test_replies_without_a_letter_come_back_with_the_reason(monkeypatch: pytest.MonkeyPatch, to: str):
    question = {"id": "it", "question": "Capital of Italy?", "choices": ["Rome", "Milan"], "correct": "A"}
    replies = [{"question_id": "it", "text": text, "temperature": 1.0} for text in ("A", "B", "-6.7")]
    run = robust_eval.score(replies, [question], ["certainty"], tracking="none")
    monkeypatch.setattr("sys.argv", ["export", str(run.folder), "--to", to, "--output", "out"])
    main()
    (loaded,) = robust_eval.load_answers(*{file.parent for file in Path("out").rglob("*") if file.is_file()})
    for each in (run, loaded.score(["certainty"], tracking="none")):
        assert each.metrics.set_index("name")["value"]["invalid.no_letter"] == 1


def test_what_cannot_be_written_is_said_in_a_sentence(
    run: robust_eval.Evaluation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    Path("begun").mkdir()
    assert "begun" in refused(monkeypatch, capsys, "begun", "--to", "csv")
    Path("file").touch()
    said = refused(monkeypatch, capsys, str(run.folder), "--to", "csv", "--output", "file")
    assert said.startswith("error: the run cannot be written to file: ")
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    said = refused(monkeypatch, capsys, str(run.folder), "--to", "inspect", "--output", "out")
    assert said.endswith("inspect_ai, which writes its logs, is not installed: pip install 'robust_eval[inspect]'")
