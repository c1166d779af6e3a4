import math

import numpy as np
import pytest
from answer_rows import answer_row

from robust_eval.answer import EXACT_CURVES, answer_table
from robust_eval.error import UserError
from robust_eval.metric.score import Measured, Score
from robust_eval.metric.thinking_metric import ReasoningBudget, answers_of_traces, breaking_budget, budgets_of
from robust_eval.question import Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.variance import drawn_variance, exact_variance

QUESTIONS = [Question("a", "A?", ("x",)), Question("b", "B?", ("y",))]


def answer(name: str, form: str, label: str | None, *, trial: int = 0, weight: float = 1.0, t: float = 1.0, **other):
    right = {"a": "x", "b": "y"}[name] == label
    row = answer_row(name, rewrite=5000, temperature=t, trial=trial, form=form, label=label, correct=right)
    return row | {"weight": weight, "completion_tokens": 10} | other


def greedy(name: str) -> dict:
    top = [[math.log(p) for p in [0.91] + [0.01] * 9]]
    return answer(name, "", "x") | {"temperature": 0.0, "form": None, "top_logprobs": top, "answer_tokens": 1}


def scored(answers: list[dict], estimator: str = "trials", curves=None, **settings) -> Score:
    measured = Measured(
        answer_table([greedy("a"), greedy("b")]), answer_table(answers), curves or EXACT_CURVES.empty_table(), estimator
    )
    return present(ReasoningBudget(**settings).score(QUESTIONS, measured, 0), QUESTIONS)


DRAWN = [
    answer("a", "trace 0, budget 0", "x", trial=0),
    answer("a", "trace 0, budget 0", "z", trial=1),
    *(answer("a", "trace 0, budget 8", label, trial=n, completion_tokens=18) for n, label in enumerate("xx")),
    *(answer("a", "trace 1, budget 8", label, trial=n, completion_tokens=14) for n, label in enumerate("xz")),
    answer("b", "trace 0, budget 0", "y"),
    *(answer("b", "trace 0, budget 8", label, trial=n) for n, label in enumerate("zz")),
    *(answer("b", "trace 1, budget 8", label, trial=n) for n, label in enumerate("zy")),
]


def test_figures_are_those_of_the_counts_with_the_largest_budget():
    found = scored(DRAWN)
    figures = found.metrics()
    assert figures["thinking.accuracy.t1"].value == np.mean([0.75, 0.25])
    assert figures["thinking.accuracy.b0.t1"].value == np.mean([0.5, 1.0])
    assert figures["thinking.tokens.b8.t1"].value == np.mean([16, 10])
    between, within = drawn_variance([[2, 1], [0, 1]], [[2, 2], [2, 2]])
    assert found.by_question["thinking.between.t1"].tolist() == between.tolist()
    assert found.by_question["thinking.within.t1"].tolist() == within.tolist()
    assert figures["thinking.share_between.t1"].value == between.sum() / (between + within).sum()
    assert found.tables["thinking"]["breaking_budget"].to_pylist() == [0.0, math.inf]
    assert figures["thinking.unsettled_share.t1"].value == 0.5
    assert figures["thinking.enough.b0.t1"].value == 0.5
    assert figures["thinking.count.known"].value == 2
    assert "50 % (" in found.presentation.sentence


def test_a_fact_without_a_reply_with_some_budget_is_not_counted_as_wrong_with_every_one():
    lost = answer("a", "trace 0, budget 8", "x") | {"outcome": "error", "correct": None, "label": None}
    found = scored([answer("a", "trace 0, budget 0", "z"), lost, *DRAWN[6:]]).metrics()
    assert [found[f"thinking.count.{name}"].value for name in ("known", "unknown")] == [1, 0]


def test_where_no_reply_came_the_accuracy_is_undefined():
    figures = scored([answer("a", "trace 0, budget 8", None, outcome="error")]).metrics()
    assert math.isnan(figures["thinking.accuracy.t1"].value)


def test_answers_at_the_temperature_of_a_model_beside_others_have_no_frs():
    found = scored([*DRAWN, *({**row, "temperature": math.nan} for row in DRAWN)]).metrics()
    assert found["thinking.accuracy.own"] == found["thinking.accuracy.t1"]
    assert "thinking.frs" not in found


def test_a_median_beyond_the_largest_budget_says_so():
    found = scored([answer("b", "trace 0, budget 0", "y"), answer("b", "trace 0, budget 8", "z")])
    assert math.isnan(found.metrics()["thinking.breaking_budget.median.t1"].value)
    assert found.reasons == {"thinking.breaking_budget.median.t1": "more than the largest"}


def test_enumerated_answers_count_what_they_are_likely_and_their_error_is_no_variance():
    answers = [
        *(answer("a", f"trace {z}, budget 8", "x", weight=p, rewrite=z) for z, p in enumerate((0.9, 0.4))),
        *(answer("a", f"trace {z}, budget 8", "z", weight=1 - p, rewrite=z) for z, p in enumerate((0.9, 0.4))),
    ]
    curves = EXACT_CURVES.empty_table().from_pylist(
        [
            {"question_id": "a", "rewrite": z, "temperature": 1.0, "accuracy": p, "standard_error": 0.1}
            | {"lower": 0.0, "upper": 1.0}
            for z, p in enumerate((0.9, 0.4))
        ],
        schema=EXACT_CURVES,
    )
    found = scored(answers, "exact", curves)
    between, within = exact_variance([[0.9, 0.4]], [[0.01, 0.01]])
    assert found.by_question["thinking.between.t1"][0] == pytest.approx(between[0])
    assert found.by_question["thinking.within.t1"][0] == pytest.approx(within[0])
    assert math.isnan(found.by_question["thinking.between.t1"][1])
    assert found.metrics()["thinking.accuracy.t1"].value == pytest.approx(0.65)


def test_a_question_whose_answers_never_vary_has_no_share():
    answers = [
        answer(name, f"trace {z}, budget 8", label, trial=n)
        for name, label in (("a", "x"), ("b", "z"))
        for z in range(2)
        for n in range(2)
    ]
    figures = scored(answers).metrics()
    assert figures["thinking.between.t1"].value == figures["thinking.within.t1"].value == 0
    assert math.isnan(figures["thinking.share_between.t1"].value)
    assert figures["thinking.kappa.t1"].value == 1


def test_thoughts_are_raters_that_say_what_most_answers_after_them_say():
    table = answers_of_traces(answer_table(DRAWN), 8)
    found = [(row["question_id"], row["rewrite"], row["trial"], row["label"]) for row in table.to_pylist()]
    assert found == [("a", 0, 0, "x"), ("a", 1, 0, "x"), ("b", 0, 0, "z"), ("b", 1, 0, "z")]
    weighed = [answer("a", "trace 0, budget 8", label, weight=w) for label, w in (("x", 0.3), ("z", 0.4), ("x", 0.3))]
    assert answers_of_traces(answer_table(weighed), 8)["label"].to_pylist() == ["x"]


def test_efforts_of_a_service_are_budgets_in_their_order_and_each_trial_a_thought():
    answers = [answer("a", f"budget {effort}", "x", trial=trial) for effort in ("high", "low") for trial in range(3)]
    assert budgets_of(answer_table(answers)) == ["low", "high"]
    found = scored(answers)
    assert found.tables["thinking_budgets"]["budget"].to_pylist() == ["low", "high"]
    assert found.spec("thinking.accuracy.low.t1").label == "accuracy, budget low"
    counted = "median breaking budget, counted from 1 (low, high)"
    assert found.spec("thinking.breaking_budget.median.t1").label == counted
    assert found.tables["thinking"]["breaking_budget"].to_pylist()[0] == 1
    assert math.isnan(found.metrics()["thinking.share_between.t1"].value)


def test_frs_after_thought_is_that_of_the_mean_over_thoughts():
    accuracy = {0.5: (1.0, 0.5), 1.0: (0.5, 0.0), 2.0: (0.0, 0.0)}
    answers = [
        answer(name, f"trace {z}, budget 8", label, trial=n, t=t)
        for name, right in (("a", "x"), ("b", "y"))
        for t, shares in accuracy.items()
        for z, share in enumerate(shares)
        for n, label in enumerate(right * 2 if share == 1 else f"{right}z" if share else "zz")
    ]
    found = scored(answers, d=2.0)
    h = -(0.91 * math.log(0.91) + 9 * 0.01 * math.log(0.01)) / math.log(10) / 1.0
    expected = factual_robustness_score(np.array([h]), np.array([1.0]), 2.0)
    assert found.by_question["thinking.frs"] == pytest.approx([expected[0], math.nan], nan_ok=True)  # b is not known
    assert found.metrics()["thinking.breaking_temperature.mean_broken"].value == 1.0
    assert found.metrics()["thinking.unbroken_share"].value == 0.0


@pytest.mark.parametrize("forms", [["choices CAB"], ["budget low", "budget 8"]])
def test_answers_without_a_budget_or_of_two_units_are_refused(forms: list[str]):
    with pytest.raises(UserError, match=r"^metric=thinking needs answers that state their reasoning budget"):
        scored([answer("a", form, "x") for form in forms])


@pytest.mark.parametrize(
    ("accuracy", "found"),
    [
        ([0.0, 0.5, 1.0], 64),
        ([0.5, 0.5, 0.5], 0),
        ([0.9, 0.4, 0.9], 256),
        ([0.9, 0.9, 0.4], np.inf),
        ([0.4, 0.4, 0.4], np.nan),
        ([0.9, np.nan, 0.9], np.nan),
        ([0.3 + 0.2, 0.7 - 0.2, 0.1 * 5], 0),
    ],
)
def test_a_fact_needs_the_smallest_budget_from_which_on_it_is_known(accuracy: list[float], found: float):
    np.testing.assert_array_equal(breaking_budget([accuracy], [0, 64, 256]), [found])
