"""What a comparison says first."""

import re
from dataclasses import replace

import numpy as np
import pytest
from comparison_by_hand import measured

from robust_eval.report.comparison import compare
from robust_eval.report.contrast import contrast, differing
from robust_eval.report.finished_runs import GreedyAnswer
from robust_eval.report.opening import opening

BASE = np.linspace(0.2, 0.7, 8)
TRIALS = "sampler__temperature_sweep__trials"


def run(by=0.0, noise=0.0, name="small", **changed):
    """A run whose scores are those of all runs, moved by so much."""
    scores = BASE + by + noise * np.array([1, -1, 2, -2, 0, 1, -1, 0.5])
    changed.setdefault(TRIALS, 10)
    return measured({"frs.d1": (scores, (float(scores.mean()), 0.0, 1.0))}, model__name=name, **changed)


def first(*runs):
    (said, *_), _ = opening(compare(runs))
    return said


def test_the_first_sentence_says_what_kind_of_difference_there_is():
    assert first(run(), run(0.01, 0.02, seed=1)).startswith(
        "seed=0 and seed=1 differ in nothing but the seed: what lies between them is chance. Mean FRS, d = 1 is "
    )
    fewer = {TRIALS: 5}
    assert first(run(), run(0.01, 0.02, **fewer)).startswith(
        "trials=10 and trials=5 differ in nothing but the number of answers "
        "(sampler.temperature_sweep.trials=10 and 5), which moves figures by itself. Mean FRS"
    )
    stricter = run(0.01, 0.02, grader__contains="nothing")
    assert first(run(grader__contains="word"), stricter).startswith(
        "contains=word and contains=nothing are the same answers scored differently (grader.contains=word and nothing)"
    )
    assert first(run(), run(0.01, 0.02)).startswith("small (1) and small (2) have the same settings; ")
    assert first(run(0.1, 0.001), run(name="large")).startswith(
        "small holds its facts more firmly than large: mean FRS, d = 1 is "
    )
    assert first(run(), run(0.2, 0.001, name="large")).startswith("large holds its facts more firmly than small: ")
    numbers = re.compile(r"[-+]?\d\.\d+(?= |,|\))")
    forwards, backwards = (
        first(*pair) for pair in ((run(), run(0.2, 0.001, name="large")), (run(0.2, 0.001), run(name="large")))
    )
    assert (better := numbers.findall(forwards)) == numbers.findall(backwards)  # the better one stands first in both
    assert float(better[0]) - float(better[1]) == pytest.approx(float(better[2]), abs=0.0011)
    assert 0 < float(better[3]) < float(better[2]) < float(better[4])
    assert first(run(0, 0.1), run(name="large")).startswith("small and large cannot be told apart: mean FRS, d = 1 ")


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
        ("model__dtype", ("float32", "bfloat16"), "Number formats differ (float32 against bfloat16): "),
        ("sampler__temperature_sweep__prompts", ("a.yaml", "b.yaml"), "Prompts differ (a.yaml against b.yaml): "),
        (
            TRIALS,
            (5, 8),
            "The number of answers to a question differs (5 against 8). Half of an even number of trials is not less",
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
    assert [(compared.names.whole[place], letters) for place, letters in ranking.ranked][2:] == [
        ("middle", "b"),
        ("worst", "c"),
    ]
    assert {letters for _, letters in ranking.ranked[:2]} == {"a"}
    assert said == ranking.said
    assert said.endswith(
        "are ahead in mean FRS, d = 1, and cannot be told from one another (6 pairs, each on the 8 questions that both "
        "kept). Two count as different where p is below 0.05 after Holm's correction for all pairs and the "
        "95 % interval leaves out 0."
    )


def test_of_three_runs_each_pair_has_a_sentence_with_a_corrected_p_value():
    found, rankings = opening(compare([run(0.1 * place, 0.01 * place, name) for place, name in enumerate("abc")]))
    assert rankings == []
    assert [said.split(":")[0] for said in found] == [
        "b holds its facts more firmly than a",
        "c holds its facts more firmly than a",
        "c holds its facts more firmly than b",
    ]
    assert all("after Holm's correction for 3 pairs" in said for said in found)
