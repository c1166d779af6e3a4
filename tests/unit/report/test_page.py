import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from answer_rows import answer_row
from comparison_by_hand import Page, ids_of_whole

from robust_eval.answer import answer_table
from robust_eval.metric.frs_specs import SPECS
from robust_eval.metric.frs_tables import type_shares
from robust_eval.metric.score import Score
from robust_eval.plot import figure_files
from robust_eval.plot.figure_files import save_figures
from robust_eval.plot.figure_registry import registered
from robust_eval.question import Question
from robust_eval.report.page import write_page
from robust_eval.report.question_table import as_data, number_columns
from robust_eval.report.run_summary import headline_rows, sentence
from robust_eval.report.score_presentation import agreement, present
from robust_eval.report.terminal import print_summary
from robust_eval.report.warnings import sampling_warnings
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.process import Stopwatch
from robust_eval.stats.estimate import Estimate
from robust_eval.tracking.result import Result

QUESTIONS = [
    Question(f"q{i}", f"Is {i} < {i + 1} & so on?", ("yes",), type=kind)
    for i, kind in enumerate(["NUM", "NUM", "", "LOC", "LOC", "LOC"])
]


@pytest.fixture(scope="module")
def result() -> Result:
    """Six facts, one of them unbroken and one undefined."""
    entropy = np.array([0.1, 0.2, 0.3, 0.4, 0.5, np.nan])
    breaking = np.array([np.inf, 0.4, 0.4, 0.2, 0.2, 0.4])
    frs = np.array([1.0, 0.6, 0.5, 0.4, 0.3, np.nan])
    score = Score(
        question_ids=[q.id for q in QUESTIONS],
        specs=SPECS,
        by_question={"frs.d1": frs},
        settings={"threshold": 0.5, "k": 10, "unbroken": "one"},
        values={
            "frs.d1": Estimate(0.56, 0.4, 0.7),
            "frs.unbroken_share": Estimate(1 / 6, 0.0, 0.4),
            "frs.breaking_temperature.median": Estimate(float("inf")),
            "frs.count.broken": Estimate(4.0),
            "frs.entropy_vs_breaking.pearson_broken": Estimate(-0.5),
        },
        curves={
            "accuracy": {0.2: Estimate(0.8, 0.7, 0.9), 0.4: Estimate(0.4, 0.3, 0.5)},
            "frs.survival": {0.2: Estimate(0.6), 0.4: Estimate(0.2)},
        },
        of_questions={"frs.unbroken_share": 6, "accuracy.t0.2": 6, "accuracy.t0.4": 1000},
        tables={
            "frs": pa.table(
                {
                    "question_id": [q.id for q in QUESTIONS],
                    "question": [q.text for q in QUESTIONS],
                    "type": [q.type for q in QUESTIONS],
                    "known": [True] * 6,
                    "entropy": entropy,
                    "breaking_temperature": breaking,
                    "frs_d1": frs,
                }
            ),
            "frs_accuracy": pa.table(
                {
                    "question_id": [q.id for q in QUESTIONS],
                    "temperature": [0.2] * 6,
                    "correct": [4.0] * 6,
                    "replies": [5.0] * 6,
                }
            ),
            "frs_types": type_shares(frs, [q.type for q in QUESTIONS]),
        },
    )
    score = present(score, QUESTIONS)
    baseline = answer_table(answer_row(q.id, temperature=0.0, text="<b>yes</b>") for q in QUESTIONS)
    return Result(
        "tiny on mine",
        {"loaded.dtype": "float32"},
        QUESTIONS,
        QUESTIONS,
        Rewritten(QUESTIONS),
        baseline,
        {"temperature_sweep": baseline},
        {},
        {"frs": "temperature_sweep"},
        {"frs": score},
        None,
        12,
        0,
        Stopwatch(),
    )


def test_the_page_is_whole_and_loads_nothing(result: Result, tmp_path: Path):
    write_page(result, save_figures(result, tmp_path / "figures"), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids_of_whole(Page(text))
    assert text.count("<figure") == 6
    assert "The same points as a figure: figures/frs_by_entropy_and_breaking.svg." in text
    assert sentence(result) in text
    assert "loaded.dtype" in text


def test_texts_of_questions_and_models_are_escaped(result: Result, tmp_path: Path):
    write_page(result, [], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<b>yes</b>" not in text
    assert "&lt;b&gt;yes&lt;/b&gt;" in text
    assert "Is 0 &lt; 1 &amp; so on?" in text


def test_the_extremes_are_ordered_and_leave_out_the_undefined(result: Result, tmp_path: Path):
    write_page(result, [], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    shown = [int(found) for found in re.findall(r"Is (\d) &lt;", text)]
    assert shown == [4, 3, 0, 1]  # the two least robust, then the two most robust, of five that are defined


def types_section(result: Result, folder: Path) -> str:
    """The part of the page on question types, as plain text."""
    write_page(result, [], folder / "report.html")
    _, _, rest = (folder / "report.html").read_text().partition("<h2>Question types")
    section, _, _ = rest.partition("<h2")
    return " ".join(re.sub(r"<[^>]+>", " ", section).split())


def test_the_types_among_the_most_and_the_least_robust_facts_are_shown_with_what_was_left_out(
    result: Result, tmp_path: Path
):
    said = types_section(result, tmp_path)
    assert "ranked by FRS (d = 1). Share: a type's facts among the 2 most robust of all 5, divided by its facts" in said
    assert "The paper takes 1,000 at each end; there are too few facts for that. Facts without a type: 1." in said
    assert "predicts" not in said
    assert re.findall(r"(no type|Location|Numerical) (\d) ([\d.]+) ([\d.]+) (\S+)", said) == [
        ("no type", "1", "0.0", "0.0", "undefined"),
        ("Location", "2", "0.0", "2.0", "0.000"),
        ("Numerical", "2", "2.0", "0.0", "1.000"),
    ]


def test_predicted_types_are_said(result: Result, tmp_path: Path):
    predicted = replace(result, description={"loaded.question_types.predicted": 4})
    assert "4 of the questions asked have a type predicted by the classifier." in types_section(predicted, tmp_path)


def test_where_no_question_has_a_type_it_is_said_how_they_get_one(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frs = result.scores["frs"]
    shares = type_shares(frs.tables["frs"]["frs_d1"].to_numpy(), [""] * 6)
    untyped = replace(result, scores={"frs": replace(frs, tables={**frs.tables, "frs_types": shares})})
    assert types_section(untyped, tmp_path).endswith(
        "None: the questions have no types. To let a classifier assign them, set question_types to an output folder "
        "of robust-eval train-question-types."
    )
    of_types = [entry for entry in registered() if entry.name == "question_types"]
    monkeypatch.setattr(figure_files, "registered", lambda: of_types)
    assert len(of_types) == 1
    assert save_figures(untyped, tmp_path / "figures") == []


def test_one_known_fact_has_no_part_on_types(result: Result, tmp_path: Path):
    frs = result.scores["frs"]
    one = replace(frs, tables={**frs.tables, "frs_types": type_shares(np.array([0.5]), ["NUM"])})
    assert types_section(replace(result, scores={"frs": one}), tmp_path) == ""


@pytest.mark.parametrize(("form", "is_printed"), [(None, True), ("choices BA", False)])
def test_token_usage_is_printed_for_rewrites_alone(
    result: Result, form: str | None, is_printed: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    answers = answer_table(
        answer_row("q0", rewrite=rewrite, form=form if rewrite else None, prompt_tokens=9, completion_tokens=1)
        for rewrite in (0, 2001)
    )
    print_summary(replace(result, graded_by_sampler={"order": answers}), tmp_path, "store", None)
    assert ("tokens (prompt + completion): answering 18 + 2" in capsys.readouterr().out) == is_printed


def test_a_letter_that_dominates_is_a_warning_in_the_page_and_the_terminal(
    result: Result, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    asked = [
        replace(question, choices=("yes", "no"), correct=place % 2) for place, question in enumerate(QUESTIONS)
    ] * 3
    asked = [replace(question, id=f"q{place}") for place, question in enumerate(asked)]
    baseline = answer_table(
        answer_row(question.id, temperature=0.0, text="A", label="A", correct=question.correct == 0)
        for question in asked
    )
    run = replace(result, questions=asked, graded_baseline=baseline)
    (warned,) = sampling_warnings(run)
    assert warned.problem == (
        "The model answers A to 18 of 18 questions with choices, and A is right in 9: it may be choosing a "
        "position, not an answer."
    )
    assert list(sampling_warnings(result)) == []
    write_page(run, [], tmp_path / "report.html")
    assert warned.problem in (tmp_path / "report.html").read_text(encoding="utf-8")
    print_summary(run, tmp_path, "store", None)
    assert f"{warned.problem} {warned.remedy}" in capsys.readouterr().out.replace("\n", " ")


def test_the_run_in_one_sentence(result: Result):
    assert sentence(result) == (
        "6 of 6 questions were kept and asked again at rising temperatures: their mean Factual Robustness Score is "
        "0.560 (95 % interval 0.400 to 0.700, d = 1, n = 5), and 17 % (0 % to 40 %) of them never broke."
    )


def test_questions_that_could_not_be_asked_are_none_of_those_that_were_not_kept(result: Result, tmp_path: Path):
    """Four of six have a greedy answer, as where two have no rewrites; three of these were kept."""
    some = replace(result, graded_baseline=result.graded_baseline.slice(0, 4), kept=result.questions[1:4])
    assert sentence(some).startswith("3 of 4 questions were kept and asked again ")
    counts = {name: some.counts()[f"questions.{name}"] for name in ("loaded", "asked", "kept")}
    assert counts == {"loaded": 6, "asked": 4, "kept": 3}
    write_page(some, [], tmp_path / "report.html")
    assert "None, 6 questions, of which 4 could be asked" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_where_recorded_answers_keep_questions_without_a_greedy_answer_they_count_as_asked(result: Result):
    assert replace(result, graded_baseline=result.graded_baseline.slice(0, 4)).candidates() == list(result.questions)
    assert replace(result, graded_baseline=result.graded_baseline.slice(0, 0), kept=[]).candidates() == list(
        result.questions
    )


def test_prompts_and_replies_are_counted_apart(result: Result, tmp_path: Path):
    lost = pa.array(["error", *["ok"] * 5])
    place = result.graded_baseline.schema.get_field_index("outcome")
    trials = pa.concat_tables([result.graded_baseline] * 10)
    asked = replace(
        result,
        graded_baseline=result.graded_baseline.set_column(place, result.graded_baseline.schema.field("outcome"), lost),
        graded_by_sampler={"temperature_sweep": trials},
    )
    counts = {name: asked.counts()[name] for name in ("prompts.asked", "prompts.cached", "replies.received")}
    assert counts == {"prompts.asked": 12, "prompts.cached": 0, "replies.received": 65}
    write_page(asked, [], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<dt>replies</dt><dd>" in text
    assert "12 requested, 0 cached" in text


def test_the_row_of_table_4_says_how_many_questions_its_figures_rest_on(
    result: Result, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    names = ("accuracy", "plurality", "worst", "best", "difficulty", "certainty", "m2", "kappa", "alpha")
    rests = dict.fromkeys([f"agreement.{name}.t1" for name in names], 4) | {"agreement.alpha.t1": 2}
    score = Score(
        question_ids=[question.id for question in QUESTIONS[:4]],
        curves={f"agreement.{name}": {1.0: Estimate(0.0625)} for name in names},
        by_question={f"agreement.{name}.t1": np.full(4, 0.0625) for name in ("difficulty", "certainty")},
        of_questions=rests,
    )
    score.presentation = agreement(score, QUESTIONS[:4])
    print_summary(replace(result, scores={"agreement": score}), tmp_path, "store", None)
    row = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│ 1 ")][-1]
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["1", "2 to 4", *["6.3"] * 9]


def test_a_figure_of_many_digits_is_rounded_to_the_same_number_wherever_it_is_shown(
    result: Result, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    table = result.scores["frs"].tables["frs"]
    column = table.schema.get_field_index("frs_d1")
    fact = table.set_column(column, "frs_d1", pa.array([0.654527, 0.6, 0.5, 0.4, 0.3, np.nan]))
    frs = replace(
        result.scores["frs"],
        values={**result.scores["frs"].values, "frs.d1": Estimate(0.654527, 0.704545, 0.7045)},
        by_question={"frs.d1": fact["frs_d1"].to_numpy()},
        tables={**result.scores["frs"].tables, "frs": fact},
    )
    run = replace(result, scores={"frs": present(frs, QUESTIONS)})
    print_summary(run, tmp_path, "store", None)
    write_page(run, [], tmp_path / "report.html")
    shown = capsys.readouterr().out + (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"0\.65\d+", shown)) == {"0.655"}
    # the terminal's table; the page's scale, its headline, its two tables, and the fact among the extremes
    assert shown.count("0.655") == 6
    assert as_data(number_columns(run)[0], [0])["numbers"] == [0.654527]  # of which the page's script makes 0.655


def test_the_headline_shows_what_a_person_wants_first(result: Result):
    assert [row[:4] for row in headline_rows(result.scores["frs"])] == [
        ("mean FRS (d = 1)", "0.560", "0.400 to 0.700", "5"),
        ("share of facts unbroken at every t", "0.167", "0.000 to 0.400", "6"),
        ("median breaking temperature", "unbroken", "", ""),
        ("broken facts", "4", "", ""),
        ("accuracy at t = 0.2", "0.800", "0.700 to 0.900", "6"),
        ("accuracy at t = 0.4", "0.400", "0.300 to 0.500", "1,000"),
    ]


def test_a_metric_without_labels_shows_all_its_figures_by_name():
    score = Score(values={"mine.mean": Estimate(0.5)}, curves={"mine.curve": {0.5: Estimate(0.25, 0.1, 0.4)}})
    assert [row[:4] for row in headline_rows(score)] == [
        ("mine.mean", "0.500", "", ""),
        ("mine.curve.t0.5", "0.250", "0.100 to 0.400", ""),
    ]
