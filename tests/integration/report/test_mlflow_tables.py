import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from comparison_by_hand import NAN, SMALL, STRANGE, Page, frs_runs, measured, run
from markdown_it import MarkdownIt

from robust_eval.answer import answer_table
from robust_eval.metric import certainty_metric, frs_specs
from robust_eval.metric.presentation import Presentation
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.report import mlflow_tables
from robust_eval.report.comparison_summary import sentences
from robust_eval.report.comparison_tables import pair_table, runs_table
from robust_eval.report.mlflow_tables import comparison_note, comparison_tables, run_note, run_tables
from robust_eval.report.warnings import few
from robust_eval.rewriter.base import Rewritten
from robust_eval.runs.comparison import compare
from robust_eval.runtime.process import Stopwatch
from robust_eval.stats.estimate import Estimate
from robust_eval.tracking.result import Result


def rendered(note):
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(note)
    return Page(html), html


def cells(table):
    return [[f"{cell.value} ({cell.interval})" if cell.interval else cell.value for cell in row] for row in table.rows]


def test_the_note_of_a_comparison_shows_its_runs_and_pairs():
    compared = compare(frs_runs())
    page, html = rendered(comparison_note(compared))
    runs, pairs = runs_table(compared), pair_table(compared)
    assert page.tables == [[runs.header, *cells(runs)], [pairs.header, *cells(pairs)]]
    said = "\n".join(f"<li>{sentence}</li>" for sentence in [*sentences(compared), few(*compared.smallest_sample)])
    assert re.sub(r"<table>.*?</table>\n", "", html, flags=re.DOTALL) == (
        f"<ul>\n{said}\n</ul>\n"
        "<p><strong>Runs</strong></p>\n<p><strong>Pairs</strong></p>\n"
        "<p>The full report is comparison.html, under Artifacts.</p>\n"
    )


def test_a_long_note_is_shortened_by_whole_rows(monkeypatch):
    assert mlflow_tables.LONGEST == 8000
    monkeypatch.setattr(mlflow_tables, "LONGEST", longest := 4000)
    runs = [measured(SMALL, model__name=f"model number {place}", seed=place) for place in range(24)]
    compared = compare(runs)
    note = comparison_note(compared)
    assert 0.9 * longest < len(note) <= longest
    page, html = rendered(note)
    shown = page.tables[0][1:]
    assert shown == cells(runs_table(compared))[: len(shown)]
    assert f"<p>Runs: {24 - len(shown)} more in comparison.html.</p>" in html
    assert "<p>Pairs: 276 more in comparison.html.</p>" in html
    assert html.endswith("<p>The full report is comparison.html, under Artifacts.</p>\n")


def test_names_are_no_more_than_text_in_a_note():
    name = f"{STRANGE} [x](javascript:1) ![](http://a.org/b.png) https://b.org www.c.org d@e.org \u202e$x$\n# head"
    note = comparison_note(compare(frs_runs(small=name)))
    assert [sign for sign in ("://", "www.", "@") if sign in note] == []  # what some readers make links of
    page, html = rendered(note)
    assert set(page.tags) == {"ul", "li", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.tables[0][1][0] == f"{' '.join(name.split())} (d=1)".replace("\u202e", "\\u202e")
    assert "&lt;b&gt;" in html


def result(n, frs=None):
    questions = [Question(f"q{place}", f"{place}, <b>or</b> not?", ("yes",)) for place in range(n)]
    score = Score(question_ids=[question.id for question in questions], specs=frs_specs.SPECS)
    score.add_mean("frs.d1", np.linspace(0, 1, n) if frs is None else np.asarray(frs), None)
    score.add_mean("frs.d2", np.zeros(n), None)
    score.values["frs.unbroken_share"] = Estimate(0.5, 0.25, 0.75)
    score.presentation = Presentation("Temperature", "at rising temperatures.")
    certainty = Score(question_ids=score.question_ids, specs=certainty_metric.SPECS)
    certainty.add_curve("certainty.entropy", np.full((n, 2), [0.5, 0.25]), [0.2, 1.0], None)
    condition = {"rewrite": 0, "temperature": 0.0, "trial": 0, "outcome": "ok", "weight": 1.0}
    baseline = answer_table({"question_id": each.id, "text": f"yes {each.id}", **condition} for each in questions)
    scores = {"frs": score, "certainty": certainty}
    return Result(
        "tiny",
        {},
        questions,
        questions[:-1],
        Rewritten(questions),
        baseline,
        {},
        {},
        {},
        scores,
        None,
        0,
        0,
        Stopwatch(),
    )


def test_the_note_of_a_run_is_its_sentence_and_its_figures():
    page, html = rendered(run_note(result(3)))
    assert html.startswith("<ul>\n<li>2 of 3 questions were kept and asked again at rising temperatures.</li>\n")
    assert [row[0] for row in page.tables[0]] == [
        *("metric", "mean FRS (d = 1)", "mean FRS (d = 2)", "share of facts unbroken at every t"),
        *("answer entropy (nats) at t = 0.2", "answer entropy (nats) at t = 1"),
    ]
    assert page.tables[0][3] == ["share of facts unbroken at every t", "0.500", "0.250 to 0.750", ""]
    assert html.endswith("<p>The full report is report.html, under Artifacts.</p>\n")


def test_the_questions_of_a_run_have_their_answers_and_main_figures():
    assert run_tables(result(2))["questions"].to_pylist() == [
        {
            "question": f"{place}, <b>or</b> not?",
            "greedy answer": f"yes q{place}",
            "status": "kept, not judged" if place == 0 else "not kept, not judged",
            "frs.d1": float(place),
            "certainty.entropy.t1": 0.25,
        }
        for place in range(2)
    ]


def test_all_figures_of_a_run_are_in_a_table():
    run = result(2)
    rows = {row["metric"]: row for row in run_tables(run)["metrics"].to_pylist()}
    assert rows["frs.unbroken_share"] == {
        "metric": "frs.unbroken_share",
        "label": "share of facts unbroken at every t",
        "value": 0.5,
        "low": 0.25,
        "high": 0.75,
        "n": None,
    }
    counted = {name: row["value"] for name, row in rows.items() if name in run.counts()}
    assert counted == pytest.approx(run.counts(), nan_ok=True)
    assert {"certainty.entropy.t0.2", "certainty.entropy.t1"} <= {*rows}  # every point of a curve


def test_of_many_questions_some_of_every_kind_and_of_both_ends_are_shown():
    scores = np.random.default_rng(0).permutation(1200) / 1200
    scores[7] = NAN
    run = result(1200, scores)
    _, (name, table) = run_tables(replace(run, kept=run.questions[:900])).items()
    assert name == "questions_1000_of_1200"
    assert Counter(table["status"].to_pylist()) == {"kept, not judged": 700, "not kept, not judged": 300}
    found, known = set(table["frs.d1"].to_pylist()), np.sort(scores[:900][~np.isnan(scores[:900])])
    assert {*known[:233], *known[-233:]} <= found
    places = [int(text.partition(",")[0]) for text in table["question"].to_pylist()]
    assert places == sorted(places)


def test_the_tables_of_a_comparison_hold_what_differs_most():
    compared = compare(frs_runs())
    tables = comparison_tables(compared)
    assert list(tables) == ["runs", "pairs", "questions_that_differ_most"]
    rows = tables["questions_that_differ_most"].to_pylist()
    assert [(row["metric"], row["question"], row["value, small"], row["value, large"]) for row in rows] == [
        ("kept", "c?", 1.0, 0.0),
        ("kept", "d?", 0.0, 1.0),
        ("frs.d1", "a?", 0.5, 0.25),
        ("frs.d1", "b?", 0.75, 0.5),
    ]
    assert (rows[0]["greedy answer, large"], rows[0]["verdict, large"]) == ("C by large", "wrong")
    assert tables["runs"].num_rows == sum(len(each.metrics) for each in compared.runs)
    assert tables["pairs"].num_rows == len(compared.pairs[0].differences)


def test_a_table_that_is_cut_off_says_so():
    runs = [measured(SMALL, model__name=f"{place}", seed=place) for place in range(21)]
    compared = compare(runs)
    tables = comparison_tables(compared)
    assert {name: table.num_rows for name, table in tables.items()} == {"runs": 147, "pairs_first_1000": 1000}


def test_a_comparison_of_one_run_has_no_questions_that_differ():
    compared = compare([run({"frs.d1": [0.5, NAN]}, {"frs.d1": (0.5,)})])
    assert {name: table.num_rows for name, table in comparison_tables(compared).items()} == {"runs": 1, "pairs": 0}
