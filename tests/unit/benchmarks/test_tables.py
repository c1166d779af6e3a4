import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import without_paths
from support.result_tables import FIGURES, TABLES
from tables import MARKED, MARKED_FIGURE, PAGES, RESULTS, written

from robust_eval.config.schema import PROJECT

ORIGIN = {
    "origin.command": "python benchmarks/estimators.py --questions 2",
    "origin.time": "26 November 2026, 10:15 UTC",
    "origin.processor": "a processor",
    "origin.cores": "2",
    "origin.version.torch": "2.13.0",
    "origin.version.transformers": "5.23.0",
    "origin.git.commit": "0123456789abcdef+changes",
}
FOUND = {
    **{f"{name}_sampled_k10": 0.125 for name in ("rmse", "rmse_breaking", "wrong_breaking")},
    **{f"{name}_exact": 0.5 for name in ("rmse", "rmse_breaking", "wrong_breaking", "coverage")},
}
SETTINGS = {"questions": 2, "nodes": 8, "few_nodes": 4, "precision": 0.05}
ESTIMATORS = {**SETTINGS, **FOUND, "forwards_sampled_k10": 1528.4, "forwards_exact": 150.0} | ORIGIN
PAGE = "before\n\n<!-- table estimators -->\nold\n<!-- end of table -->\n\nafter\n"


def test_what_the_documentation_says_is_what_the_files_of_runs_say():
    script = [sys.executable, str(PROJECT / "benchmarks" / "tables.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_table_and_figure_stands_in_one_page_and_every_file_has_a_table():
    marked = [name for page in PAGES for name, _ in MARKED.findall(page.read_text(encoding="utf-8"))]
    assert sorted(marked) == sorted(TABLES)
    named = [name for page in PAGES for name, _ in MARKED_FIGURE.findall(page.read_text(encoding="utf-8"))]
    assert sorted(named) == sorted(FIGURES)
    assert {file.stem for file in RESULTS.glob("*.json")} <= {table.results for table in TABLES.values()}


def test_a_table_is_written_with_what_it_is_of(tmp_path: Path):
    (tmp_path / "estimators.json").write_text(json.dumps(ESTIMATORS))
    page = written(PAGE, tmp_path)
    head, rule, *rows, empty, origin = page.split("-->")[1].strip().removesuffix("<!-- end of table").splitlines()
    assert head.split(" | ")[1:3] == ["error of an accuracy (root-mean-square)", "error of the grid's t_b"]
    assert rule == "| --- | --- | --- | --- | --- | --- |"
    assert rows == [
        "| 10 trials | 0.125 | 0.12 | 12 % | 1,528 | |",
        "| exact, 8 nodes | 0.500 | 0.50 | 50 % | 150 | 50.0 % |",
    ]
    assert empty == ""
    assert origin == (
        "`python benchmarks/estimators.py --questions 2`, 2 questions, 26 November 2026, a processor, 2 cores, "
        "torch 2.13.0, transformers 5.23.0, commit 0123456 with changes."
    )
    assert page.startswith("before\n\n<!-- table estimators -->\n")
    assert page.endswith("<!-- end of table -->\n\nafter\n")
    assert written(page, tmp_path) == page


def test_a_table_that_no_run_has_figures_of_stays_and_an_unknown_one_is_refused(tmp_path: Path):
    assert written(PAGE, tmp_path) == PAGE
    (tmp_path / "sampling.json").write_text(json.dumps({"label_tree": "tree"} | ORIGIN))
    with_100_trials = PAGE.replace("table estimators", "table sampling_k100")
    assert written(with_100_trials, tmp_path) == with_100_trials
    with pytest.raises(SystemExit, match="there is no table others; there are sampling, "):
        written(PAGE.replace("estimators", "others"), tmp_path)


def test_a_page_that_says_something_else_is_found(tmp_path: Path):
    (tmp_path / "estimators.json").write_text(json.dumps(ESTIMATORS))
    page = written(PAGE, tmp_path)
    assert written(page.replace("1,528", "1,527"), tmp_path) == page


def test_a_command_is_recorded_without_places_of_this_machine():
    assert without_paths("python benchmarks/sampling.py --json /tmp/x.json --peers /home/me/peers/bin/python") == (
        "python benchmarks/sampling.py --peers python"
    )


def test_a_figure_in_a_sentence_is_written(tmp_path: Path):
    sentence = "It takes <!--times_generate-->old<!----> times as long.\n"
    assert written(sentence, tmp_path) == sentence
    (tmp_path / "sampling.json").write_text(json.dumps({"ratio_vs_generate": 25.84}))
    assert written(sentence, tmp_path) == "It takes <!--times_generate-->26<!----> times as long.\n"
    with pytest.raises(SystemExit, match="there is no figure others; there are times_generate, "):
        written(sentence.replace("times_generate", "others"), tmp_path)
