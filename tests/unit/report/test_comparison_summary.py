"""What a comparison says first."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from comparison_by_hand import frs_runs, measured
from golden import Golden
from rich.cells import cell_len

from robust_eval.report.comparison_summary import SHARED_LETTER, opening
from robust_eval.report.comparison_tables import opening_table
from robust_eval.report.terminal import print_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.differing_settings import contrast, differing
from robust_eval.runs.finished_runs import GreedyAnswer

BASE = np.tile(np.linspace(0.2, 0.7, 8), 4)
TRIALS = "sampler.temperature_sweep.trials"
OPENINGS = Golden(Path(__file__).with_name("openings.jsonl"))


def run(by=0.0, noise=0.0, name="small", n=32, d=1, **changed):
    """A run whose scores are those of all runs, moved by so much."""
    scores = (BASE + by + noise * np.tile([1, -1, 2, -2, 0, 1, -1, 0.5], 4))[:n]
    figures = {f"frs.d{d}": (scores, (float(scores.mean()), 0.0, 1.0))}
    return measured(figures, model__name=name, **({TRIALS: 10, "metric.frs.d": d} | changed))


def first(*runs):
    (said, *_), _ = opening(compare(runs))
    return said


@pytest.mark.parametrize("case", OPENINGS.cases, ids=lambda case: case["about"])
def test_a_comparison_opens_with_sentences_and_rankings(case):
    compared = compare([run(**each) for each in case["runs"]])
    said, rankings = opening(compared)
    assert not {ranking.sentence for ranking in rankings} - {*said}
    labels = compared.measurement_labels.full
    OPENINGS.check(
        case,
        sentences=said,
        rankings=[[[labels[place], letters] for place, letters in ranking.letters.items()] for ranking in rankings],
        significant=[pair.is_significant for pair in compared.pairs],
    )


def test_the_better_run_stands_first_with_the_same_numbers_in_either_order():
    numbers = re.compile(r"[-+]?\d\.\d+(?= |,|\))")
    forwards, backwards = (
        first(*pair) for pair in ((run(), run(0.2, 0.02, name="large")), (run(0.2, 0.02), run(name="large")))
    )
    assert (better := numbers.findall(forwards)) == numbers.findall(backwards)
    assert float(better[0]) - float(better[1]) == pytest.approx(float(better[2]), abs=0.0011)
    assert 0 < float(better[3]) < float(better[2]) < float(better[4])


def test_runs_of_other_questions_have_no_verdict_and_it_is_said():
    other = run(0.1, name="large")
    texts = [f"another {text}" for text in other.questions["question"].to_pylist()]
    place = other.questions.column_names.index("question")
    other = replace(other, questions=other.questions.set_column(place, "question", [texts]))
    assert first(run(), other) == "No two runs share a question (id and text), so there is no verdict."


def test_answers_that_differ_are_not_called_the_same():
    one, other = run(grader__contains="word"), run(0.1, grader__contains="nothing")
    moved = replace(other, greedy={name: GreedyAnswer("else", "right") for name in other.greedy})
    assert contrast(one, other).kind == "scored"
    assert contrast(one, moved).kind == "other"
    assert differing([one, other]) == {"grader.contains": ["word", "nothing"]}


def test_a_comparison_opens_with_the_best_six_runs_and_the_letters_of_their_groups():
    runs = [run(by / 10, 0.02 if by == 4 else 0.001 * (by % 3), f"model {by}") for by in (3, 1, 4, 0, 5, 2, 4.005, 6)]
    table = opening_table(compare(runs))
    assert table.title == "8 runs"
    assert table.header == ["run", "group", "mean FRS (d = 1)", "kept"]
    assert [[row[0].value, row[1].value] for row in table.rows] == [
        ["model 3", "d"],
        ["model 4", "c"],
        ["model 5", "b"],
        ["model 2", "e"],
        ["model 4.005", "c"],
        ["model 6", "a"],
    ]
    assert table.note == ("Runs that share a letter cannot be distinguished. The best 6 of 8; all follow below.")
    assert len(opening_table(compare(runs), None, None).rows) == 8


def test_without_a_verdict_on_a_pair_there_are_no_letters():
    few = [run(n=29), run(0.1, n=29, name="large")]
    scored = [run(grader__contains="word"), run(0.01, 0.02, grader__contains="nothing")]
    assert [opening_table(compare(runs)).header for runs in (few, scored)] == [["run", "mean FRS (d = 1)", "kept"]] * 2


@pytest.mark.parametrize("columns", [40, 50, 60, 70, 80, 84, 88, 120, 200])
@pytest.mark.parametrize("name", ["model", f"{'long_' * 6}model, of many words, of which one is long,", "long" * 20])
def test_in_the_terminal_the_table_fits_and_names_the_flag_for_the_other_runs(
    tmp_path, capsys, monkeypatch, columns: int, name: str
):
    monkeypatch.setenv("COLUMNS", str(columns))
    compared = compare([run(by / 10, 0.001, f"{name} {by}") for by in range(8)])
    print_comparison(compared, tmp_path)
    table, _, rest = capsys.readouterr().out.partition("┘\n")
    assert max(map(len, table.splitlines())) <= columns
    assert rest.startswith(f"2 more: robust-eval compare RUN … --all\n{SHARED_LETTER}\n")
    print_comparison(compared, tmp_path, all_runs=True)
    whole, _, rest = capsys.readouterr().out.partition("┘\n")
    if name == "model":
        assert all(f"model {by}" in whole for by in range(8))
    assert "more" not in rest


@pytest.mark.parametrize("all_runs", [False, True])
def test_the_tables_of_a_comparison_fit_every_terminal(tmp_path, capsys, monkeypatch, all_runs: bool):
    llama = compare([run(by / 10, 0.001, f"meta-llama/Llama-3.1-8B-Instruct {by}") for by in range(3)])
    figures = compare(frs_runs())
    for columns in range(40, 201, 5):
        monkeypatch.setenv("COLUMNS", str(columns))
        for compared in (llama, figures):
            print_comparison(compared, tmp_path, all_runs)
            table, _, _ = capsys.readouterr().out.partition("┘\n")
            assert max(map(len, table.splitlines())) <= columns
            if compared is llama and columns >= 80:
                assert table.count("0.000 to 1.000, n = 32") == 3
                assert table.count("meta-llama/Llama-3.1-8B-Instruct") == 3


def test_labels_in_wide_characters_fit_the_terminal(tmp_path, capsys, monkeypatch):
    compared = compare([run(by / 10, 0.001, f"{'模型' * 9} {by}") for by in range(3)])
    for columns in (40, 60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        print_comparison(compared, tmp_path)
        table, _, _ = capsys.readouterr().out.partition("┘\n")
        assert max(map(cell_len, table.splitlines())) <= columns


def test_a_narrow_terminal_says_which_figures_of_a_comparison_it_leaves_out(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "60")
    print_comparison(compare(frs_runs()), tmp_path)
    assert (
        "hidden because the window is narrow: unbroken facts, greedy accuracy; --all prints all"
        in capsys.readouterr().out
    )
    monkeypatch.setenv("COLUMNS", "120")
    print_comparison(compare(frs_runs()), tmp_path)
    assert "hidden because" not in capsys.readouterr().out


def test_a_setting_of_a_servers_own_truncation_counts_as_one():
    bodies = [{"model__extra_body__typical_p": 1.0, "name": "a"}, {"model__extra_body__typical_p": 0.9, "name": "b"}]
    runs = [run(0.1 * place, 0.001, **body) for place, body in enumerate(bodies)]
    assert contrast(*runs).kind == "truncated"
    assert contrast(run(model__vocabulary__top=1), run(model__vocabulary__top=2)).kind == "other"
