"""What a comparison says first."""

import re
from dataclasses import replace

import numpy as np
import pytest
from comparison_by_hand import frs_runs, measured

from robust_eval.report.comparison_tables import opening_table
from robust_eval.report.opening import SHARED_LETTER, opening
from robust_eval.report.terminal import print_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.contrast import contrast, differing
from robust_eval.runs.finished_runs import GreedyAnswer

BASE = np.tile(np.linspace(0.2, 0.7, 8), 4)
TRIALS = "sampler__temperature_sweep__trials"


def run(by=0.0, noise=0.0, name="small", n=32, **changed):
    """A run whose scores are those of all runs, moved by so much."""
    scores = (BASE + by + noise * np.tile([1, -1, 2, -2, 0, 1, -1, 0.5], 4))[:n]
    changed.setdefault(TRIALS, 10)
    return measured({"frs.d1": (scores, (float(scores.mean()), 0.0, 1.0))}, model__name=name, **changed)


def first(*runs):
    (said, *_), _ = opening(compare(runs))
    return said


def test_the_first_sentence_says_what_kind_of_difference_there_is():
    assert first(run(), run(0.01, 0.02, seed=1)).startswith(
        "seed=0 and seed=1 differ only in the seed: any difference between them is chance. Mean FRS, d = 1 is "
    )
    fewer = {TRIALS: 5}
    assert first(run(), run(0.01, 0.02, **fewer)).startswith(
        "trials=10 and trials=5 differ only in the number of answers "
        "(sampler.temperature_sweep.trials=10 and 5), which alone changes metrics. Mean FRS"
    )
    stricter = run(0.01, 0.02, grader__contains="nothing")
    assert first(run(grader__contains="word"), stricter).startswith(
        "contains=word and contains=nothing are the same answers scored differently (grader.contains=word and nothing)"
    )
    assert first(run(), run(0.01, 0.02)).startswith("small (1) and small (2) have the same settings: ")
    assert first(run(0.1, 0.001), run(name="large")).startswith("small is ahead of large: mean FRS, d = 1 is ")
    assert first(run(), run(0.2, 0.001, name="large")).startswith("large is ahead of small: ")
    numbers = re.compile(r"[-+]?\d\.\d+(?= |,|\))")
    forwards, backwards = (
        first(*pair) for pair in ((run(), run(0.2, 0.02, name="large")), (run(0.2, 0.02), run(name="large")))
    )
    assert (better := numbers.findall(forwards)) == numbers.findall(backwards)  # the better one stands first in both
    assert float(better[0]) - float(better[1]) == pytest.approx(float(better[2]), abs=0.0011)
    assert 0 < float(better[3]) < float(better[2]) < float(better[4])
    assert first(run(0, 0.1), run(name="large")).startswith("small and large cannot be distinguished: mean FRS, d = 1 ")


def test_values_that_would_look_alike_beside_their_difference_have_a_digit_more():
    apart = first(run(0.0006, 0.0002), run(0.0014, name="large"))  # both round to 0.451
    assert re.search(r"is 0\.4514 in the first and 0\.4506 in the second, a difference of \+0\.001 \(", apart)
    alike = first(run(0.0006, 0.0002), run(0.0008, name="large"))
    assert re.search(r"is 0\.451 in the first and 0\.451 in the second, a difference of 0\.000 \(", alike)


def test_runs_that_differ_in_d_alone_are_no_two():
    other = measured({"frs.d5": (BASE, (0.5, 0.0, 1.0))}, metric__frs__d=5, **{TRIALS: 10})
    assert first(run(), other) == (
        "These 2 runs are the same answers scored differently (metric.frs.d=1 and 5): their scores say nothing about "
        "which model is firmer."
    )


def test_answers_that_differ_are_not_called_the_same():
    one, other = run(grader__contains="word"), run(0.1, grader__contains="nothing")
    moved = replace(other, greedy={name: GreedyAnswer("else", "right") for name in other.greedy})
    assert contrast(one, other).kind == "scored"
    assert contrast(one, moved).kind == "other"
    assert differing([one, other]) == {"grader.contains": ["word", "nothing"]}


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("model__base_url", ("http://a/v1", "http://b/v1"), "Servers differ (http://a/v1 against http://b/v1): "),
        (
            "sampler__repetition__structured",
            (True, False),
            "Restrictions of replies to letters differ (True against False): ",
        ),
        ("model__dtype", ("float32", "bfloat16"), "Number formats differ (float32 against bfloat16): "),
        ("sampler__temperature_sweep__prompts", ("a.yaml", "b.yaml"), "Prompts differ (a.yaml against b.yaml): "),
        (
            TRIALS,
            (5, 8),
            "The number of answers per question differs (5 against 8), which alone changes metrics.",
        ),
    ],
)
def test_what_else_differs_is_said(name, values, said):
    runs = [run(by, 0.1 * by, f"by {by}", **{name: value}) for by, value in zip((0.1, 0.2), values, strict=True)]
    found, _ = opening(compare(runs))
    assert found[1].startswith(said)


def test_many_runs_are_ranked_in_groups_that_cannot_be_told_apart():
    shift = {"worst": (-0.2, 0.004), "good": (0.1, 0.02), "best": (0.1005, 0.0), "middle": (0.0, 0.001)}
    compared = compare([run(by, noise, name) for name, (by, noise) in shift.items()])
    (said, *_), (ranking,) = opening(compared)
    assert [(compared.measurement_labels.full[place], letters) for place, letters in ranking.ranked][2:] == [
        ("middle", "b"),
        ("worst", "c"),
    ]
    assert {letters for _, letters in ranking.ranked[:2]} == {"a"}
    assert said == ranking.sentence
    assert said.endswith(
        "are ahead in mean FRS, d = 1, and cannot be distinguished from one another (6 pairs, each on the 32 "
        "questions that both kept). Two count as different where p is below 0.05 after Holm's correction for all pairs "
        "and the 95 % interval excludes 0."
    )


def test_a_comparison_opens_with_the_best_six_runs_and_the_letters_of_their_groups():
    runs = [run(by / 10, 0.02 if by == 4 else 0.001 * (by % 3), f"model {by}") for by in (3, 1, 4, 0, 5, 2, 4.005, 6)]
    table = opening_table(compare(runs))
    assert table.title == "8 runs"
    assert table.header == ["run", "group", "mean FRS, d = 1", "kept"]
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
    assert [opening_table(compare(runs)).header for runs in (few, scored)] == [["run", "mean FRS, d = 1", "kept"]] * 2


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_in_the_terminal_the_table_fits_and_names_the_flag_for_the_other_runs(
    tmp_path, capsys, monkeypatch, columns: int
):
    monkeypatch.setenv("COLUMNS", str(columns))
    compared = compare([run(by / 10, 0.001, f"model {by}") for by in range(8)])
    print_comparison(compared, tmp_path)
    table, _, rest = capsys.readouterr().out.partition("┘\n")
    assert max(map(len, table.splitlines())) <= columns
    assert rest.startswith(f"2 more: robust-eval compare RUN … --all\n{SHARED_LETTER}\n")
    print_comparison(compared, tmp_path, all_runs=True)
    whole, _, rest = capsys.readouterr().out.partition("┘\n")
    assert all(f"model {by}" in whole for by in range(8))
    assert "more" not in rest


def test_a_narrow_terminal_says_which_figures_of_a_comparison_it_leaves_out(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "60")
    print_comparison(compare(frs_runs()), tmp_path)
    assert "hidden in this narrow window: unbroken facts, greedy accuracy; --all prints all" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "120")
    print_comparison(compare(frs_runs()), tmp_path)
    assert "not in this" not in capsys.readouterr().out


def test_of_three_runs_each_pair_has_a_sentence_with_a_corrected_p_value():
    found, rankings = opening(compare([run(0.1 * place, 0.01 * place, name) for place, name in enumerate("abc")]))
    assert rankings == []
    assert [said.split(":")[0] for said in found] == [
        "b is ahead of a",
        "c is ahead of a",
        "c is ahead of b",
    ]
    assert all("after Holm's correction for 3 pairs" in said for said in found)


def test_the_same_answers_scored_in_many_ways_are_grouped_and_none_is_ahead():
    rules = {"exact": 0.0, "word": 0.1, "prefix": 0.15, "stem": 0.2, "near": 0.25, "substring": 0.3}
    compared = compare([run(by, 0.001, grader__contains=rule) for rule, by in rules.items()])
    assert not any(pair.is_significant for pair in compared.pairs)
    (said,), rankings = opening(compared)
    assert rankings == []
    assert said == (
        "Runs that differ only in scoring (grader.contains=exact and word and prefix and stem and near and substring) "
        "are the same answers: their scores say nothing about which model is firmer. Others are compared if both are "
        "scored in the same way."
    )


def test_models_are_compared_as_they_are_scored_where_each_is_scored_in_several_ways():
    runs = [
        run(by + more, 0.001 * (1 + place), name, grader__contains=rule)
        for rule, more in (("word", 0.0), ("substring", 0.25))
        for place, (name, by) in enumerate((("small", 0.0), ("large", 0.1)))
    ]
    said, rankings = opening(compare(runs))
    assert rankings == []
    assert [each.partition(":")[0] for each in said] == [
        "Runs that differ only in scoring (grader.contains=word and substring) are the same answers",
        "large, contains=word is ahead of small, contains=word",
        "large, contains=substring is ahead of small, contains=substring",
    ]
    assert "Holm's correction for 2 pairs" in said[1]


def test_of_three_runs_the_same_answers_are_named_first():
    runs = [run(0.1, 0.001, "large"), run(), run(0.2, grader__contains="all")]
    for each in runs[:2]:
        each.settings["grader.contains"] = "word"
    said, _ = opening(compare(runs))
    assert "are the same answers scored differently (grader.contains=word and all)" in said[0]
    assert "large, contains=word is ahead of small, contains=word: " in said[1]
    assert said[2].startswith(
        "large, contains=word and small, contains=all are also scored differently, so there is no "
    )


@pytest.mark.parametrize(("n", "judged"), [(29, False), (30, True)])
def test_below_thirty_shared_questions_there_is_no_verdict(n, judged):
    compared = compare([run(n=n), run(0.2, 0.001, "large", n=n)])
    (said, *_), _ = opening(compared)
    assert compared.pairs[0].is_significant == judged
    few = "small and large share too few independent questions for a verdict (30 are needed). Mean FRS, d = 1 is "
    assert said.startswith("large is ahead of small: " if judged else few)


def test_of_many_pairs_those_with_too_few_questions_are_counted_and_in_no_ranking():
    runs = [run(0.1 * place, 0.001 * place, name) for place, name in enumerate("abcd")]
    said, (ranking,) = opening(compare([*runs, run(0.2, 0.001, "e", n=8)]))
    assert said[0] == "4 pairs share fewer than 30 independent questions, too few for a verdict."
    assert [place for place, _ in ranking.ranked] == [3, 2, 1, 0]


@pytest.mark.parametrize("setting", ["top_k", "top_p", "min_p", "preset"])
def test_a_truncated_distribution_is_another_measurement_and_no_firmer_model(setting):
    compared = compare(
        [run(**{f"model__generation__{setting}": 0}), run(0.2, 0.2, **{f"model__generation__{setting}": 1})]
    )
    (said, *_), _ = opening(compared)
    assert not compared.pairs[0].is_significant
    assert "would decide" not in said
    assert said.startswith(
        f"{setting}=0 and {setting}=1 are truncated differently (model.generation.{setting}=0 and 1): truncation "
        "removes the tail that high temperatures draw from, so the runs do not measure the same thing. Mean FRS, d "
    )


def test_a_setting_of_a_servers_own_truncation_counts_as_one():
    bodies = [{"model__extra_body__typical_p": 1.0, "name": "a"}, {"model__extra_body__typical_p": 0.9, "name": "b"}]
    runs = [run(0.1 * place, 0.001, **body) for place, body in enumerate(bodies)]
    assert contrast(*runs).kind == "truncated"
    assert contrast(run(model__vocabulary__top=1), run(model__vocabulary__top=2)).kind == "other"


def test_many_runs_are_ranked_among_those_that_are_truncated_alike():
    runs = [
        run(0.05 * place + 0.2 * (k > 0), 0.001 * place, name, model__generation__top_k=k)
        for k in (0, 10)
        for place, name in enumerate("abcd")
    ]
    said, rankings = opening(compare(runs))
    assert said[0] == (
        "Truncation differs (model.generation.top_k=0 and 10): truncation removes the tail that high temperatures draw "
        "from, so the runs do not measure the same thing. Runs that differ in it are not ranked against one another."
    )
    assert [[place for place, _ in each.ranked] for each in rankings] == [[3, 2, 1, 0], [7, 6, 5, 4]]
