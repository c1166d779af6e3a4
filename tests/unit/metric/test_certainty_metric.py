import math

import numpy as np
import pytest
from answer_rows import answer_row
from scipy import stats

from robust_eval.answer import ABSTENTION, answer_table
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.score import Measured
from robust_eval.question import Question
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, degenerate_interval, mean_bounds


def answer(question_id, temperature, label, correct, outcome="ok", weight=0.25):
    return answer_row(
        question_id,
        temperature=temperature,
        text=label or "",
        label=label,
        correct=correct,
        outcome=outcome,
        weight=weight,
    )


def answers(question_id, temperature, letters, right):
    """One answer for each letter; a dash is an invalid reply, of which a grader says that it is not right."""
    return [
        answer(question_id, temperature, None, False, "invalid")
        if letter == "-"
        else answer(question_id, temperature, letter, letter == right)
        for letter in letters
    ]


CHOICES = ("1", "2", "3", "4", "5")


def certainty(
    rows, *question_ids, groups=(), categories=(), choices=CHOICES, correct=0, estimator="trials", **settings
):
    none = [""] * len(question_ids)
    questions = [
        Question(question_id, "?", (), choices, correct if choices else None, category=category, group=group)
        for question_id, group, category in zip(question_ids, groups or none, categories or none, strict=True)
    ]
    measured = Measured(answer_table([]), answer_table(rows), estimator=estimator)
    return AnswerCertainty(**settings).score(questions, measured, seed=0)


def student(one: float, other: float, highest: float) -> tuple[float, float, float]:
    """The mean of two values from 0 on, and Student's interval with one degree of freedom."""
    mean, half = (one + other) / 2, 12.706204736174705 * abs(one - other) / 2
    return mean, max(0.0, mean - half), min(highest, mean + half)


def test_answer_certainty_of_a_small_table():
    rows = [
        *answers("q1", 0.7, "BBBA", right="B"),
        *answers("q2", 0.7, "ACAC", right="A"),
        *answers("q1", 1.4, "ABCD", right="B"),
        *answers("q2", 1.4, "EEEE", right="A"),
    ]
    score = certainty(rows, "q1", "q2")
    q1 = math.log(4) - 0.75 * math.log(3)
    q2 = math.log(2)
    assert {name: estimate.value for name, estimate in score.values.items()} == {
        "certainty.count.undefined": 0.0,
        "certainty.count.invalid": 0.0,
    }
    assert set(score.curves) == {
        "certainty.entropy",
        "certainty.entropy_miller_madow",
        "certainty.error_rate",
        "certainty.count.certain_right",
        "certainty.count.certain_wrong",
    }
    assert score.curves["certainty.count.certain_right"] == {0.7: Estimate(0), 1.4: Estimate(0)}
    assert score.curves["certainty.count.certain_wrong"] == {0.7: Estimate(0), 1.4: Estimate(1)}  # EEEE
    assert list(score.curves["certainty.entropy"]) == [0.7, 1.4]
    assert score.curves["certainty.entropy"][0.7] == pytest.approx(student(q1, q2, math.log(5)), rel=1e-9)
    assert score.curves["certainty.entropy"][1.4] == pytest.approx(student(math.log(4), 0, math.log(5)), rel=1e-9)
    assert score.curves["certainty.error_rate"] == {
        0.7: pytest.approx(student(0.25, 0.5, 1.0)),
        1.4: pytest.approx(student(0.75, 1.0, 1.0)),
    }
    assert set(score.tables) == {"certainty"}
    table = score.tables["certainty"].to_pydict()
    assert table.pop("question_id") == ["q1", "q1", "q2", "q2"]
    assert table.pop("temperature") == [0.7, 1.4, 0.7, 1.4]
    assert table.pop("entropy") == pytest.approx([q1, math.log(4), q2, 0.0], rel=1e-12)
    assert table.pop("error_rate") == [0.25, 0.75, 0.5, 1.0]
    # one label more than one, two, four and one of them: 1/8, 3/8 (but no more than ln 5), 1/8, nothing
    corrected = [q1 + 1 / 8, math.log(5), q2 + 1 / 8, 0.0]
    assert table.pop("entropy_miller_madow") == pytest.approx(corrected, rel=1e-12)
    assert table.pop("category") == [""] * 4
    assert table.pop("labels") == [2, 4, 2, 1]
    assert table.pop("invalid") == [0.0] * 4
    assert table.pop("most") == pytest.approx([math.log(5)] * 4)
    assert table == {}


def test_exactly_enumerated_answers_enter_with_their_probability():
    rows = [
        answer("q1", 1.0, "A", True, weight=0.7),
        answer("q1", 1.0, "B", False, weight=0.2),
        answer("q1", 1.0, "B", False, weight=0.1),
    ]
    score = certainty(rows, "q1", estimator="exact")
    table = score.tables["certainty"].to_pydict()
    assert table["entropy"] == pytest.approx([stats.entropy([0.7, 0.3])], rel=1e-12)
    assert table["error_rate"] == pytest.approx([0.3], rel=1e-12)
    assert "certainty.entropy_miller_madow" not in score.curves  # the distribution is known: there is no bias


@pytest.mark.parametrize("outcome", ["filtered_prompt", "filtered_reply", "error"])
def test_requests_without_a_reply_leave_the_denominators(outcome):
    rows = [
        *answers("q1", 0.7, "BBBA", right="B"),
        answer("q1", 0.7, None, None, outcome),
        answer("q1", 0.7, "C", None, outcome),  # whatever label somebody gave it
    ]
    table = certainty(rows, "q1").tables["certainty"].to_pydict()
    assert table["entropy"] == pytest.approx([stats.entropy([3, 1])], rel=1e-12)
    assert table["error_rate"] == [0.25]


def test_a_question_without_any_reply_is_undefined_and_left_out_of_the_means():
    rows = [*answers("q1", 0.7, "BBBA", right="B"), *[answer("q2", 0.7, None, None, "error")] * 4]
    score = certainty(rows, "q1", "q2")
    table = score.tables["certainty"].to_pydict()
    assert table["entropy"] == pytest.approx([stats.entropy([3, 1]), math.nan], rel=1e-12, nan_ok=True)
    assert table["error_rate"] == pytest.approx([0.25, math.nan], nan_ok=True)
    assert score.curves["certainty.error_rate"] == {0.7: (0.25, *degenerate_interval(0.25, 1, SHARE))}
    assert score.values["certainty.count.undefined"].value == 1.0
    assert score.values["certainty.count.invalid"].value == 0.0


@pytest.mark.parametrize(
    ("said", "invalid", "entropy", "error"),
    [
        ("BB-A-", "drop", stats.entropy([2, 1]), 1 / 3),
        ("BB-A-", "as_published", stats.entropy([2, 1]), 1 / 3),
        ("BB-A-", "as_label", stats.entropy([2, 1, 2]), 3 / 5),
        ("----", "drop", math.nan, math.nan),
        ("----", "as_published", 0.0, 1.0),
        ("----", "as_label", 0.0, 1.0),
        ("BBBB", "as_label", 0.0, 0.0),
    ],
)
def test_what_becomes_of_replies_that_answer_nothing(said, invalid, entropy, error):
    score = certainty(answers("q1", 0.7, said, right="B"), "q1", invalid=invalid)
    table = score.tables["certainty"].to_pydict()
    assert table["entropy"] == pytest.approx([entropy], rel=1e-12, nan_ok=True)
    assert table["error_rate"] == pytest.approx([error], rel=1e-12, nan_ok=True)
    assert table["invalid"] == [said.count("-")]
    assert score.values["certainty.count.invalid"].value == said.count("-")
    assert score.values["certainty.count.undefined"].value == float(math.isnan(entropy))
    corner = score.curves["certainty.count.certain_wrong"][0.7].value
    assert corner == float(said == "----" and invalid != "drop")


@pytest.mark.parametrize("invalid", ["drop", "as_label", "as_published"])
@pytest.mark.parametrize("said", ["BB-", "---"])
def test_where_nobody_knows_the_answer_nothing_is_wrong(invalid, said):
    rows = [
        answer("q1", 0.7, None if letter == "-" else letter, None, "invalid" if letter == "-" else "ok")
        for letter in said
    ]
    score = certainty(rows, "q1", correct=None, invalid=invalid)
    assert math.isnan(score.curves["certainty.error_rate"][0.7].value)
    assert score.curves["certainty.count.certain_wrong"][0.7].value == 0


def test_the_largest_entropy_counts_the_choices_and_in_free_text_the_answers():
    rows = answers("q1", 0.7, "ABCABCABC", right="A")
    free = answers("q1", 0.7, "AB-", right="A")
    assert certainty(rows, "q1").tables["certainty"]["most"].to_pylist() == pytest.approx([math.log(5)])
    assert certainty(rows, "q1", invalid="as_label").tables["certainty"]["most"].to_pylist() == pytest.approx(
        [math.log(6)]
    )
    assert certainty(rows, "q1", choices=()).tables["certainty"]["most"].to_pylist() == pytest.approx([math.log(9)])
    assert certainty(free, "q1", choices=()).tables["certainty"]["most"].to_pylist() == pytest.approx([math.log(2)])


def test_the_corners_are_questions_with_little_entropy_that_are_all_right_or_all_wrong():
    letters = {"q1": "B" * 60, "q2": "A" * 60, "q3": "A" * 59 + "B", "q4": "B" * 30 + "A" * 30, "q5": "-"}
    rows = [row for question_id, said in letters.items() for row in answers(question_id, 0.7, said, right="B")]
    score = certainty(rows, *letters)
    corners = {name: score.curves[f"certainty.count.certain_{name}"][0.7].value for name in ("right", "wrong")}
    assert corners == {"right": 1.0, "wrong": 1.0}  # q3 is certain, and neither all right nor all wrong


def test_an_abstention_is_a_wrong_answer_with_a_label_of_its_own():
    rows = [*answers("q1", 1.0, "AA", right="A"), *[answer("q1", 1.0, ABSTENTION, False, "abstained")] * 2]
    score = certainty([*rows, *answers("q2", 1.0, "AAAB", right="A")], "q1", "q2")
    assert score.by_question["certainty.entropy.t1"][0] == pytest.approx(math.log(2))
    assert score.by_question["certainty.error_rate.t1"].tolist() == [0.5, 0.25]
    assert score.tables["certainty"]["most"].to_pylist() == pytest.approx([math.log(6), math.log(5)])
    assert score.values["certainty.count.invalid"].value == 0


def test_the_means_of_a_category_are_those_of_its_questions():
    letters = {"q1": "BBBA", "q2": "AAAA", "q3": "ABAB"}
    rows = [row for question_id, said in letters.items() for row in answers(question_id, 0.7, said, right="B")]
    score = certainty(rows, *letters, categories=["F", "D", "F"])
    alone = certainty([row for row in rows if row["question_id"] != "q2"], "q1", "q3")
    definitions, facts = score.tables["certainty_by_category"].to_pylist()
    assert (definitions["category"], definitions["questions"], definitions["temperature"]) == ("D", 1, 0.7)
    assert (definitions["entropy"], definitions["error_rate"]) == (0.0, 1.0)
    assert (definitions["entropy_low"], definitions["entropy_high"]) == degenerate_interval(0.0, 1, (0, math.log(5)))
    assert (facts["category"], facts["questions"]) == ("F", 2)
    for name in ("entropy", "entropy_miller_madow", "error_rate"):
        expected = alone.curves[f"certainty.{name}"][0.7]
        assert (facts[name], facts[f"{name}_low"], facts[f"{name}_high"]) == pytest.approx(expected)
    assert "certainty_by_category" not in alone.tables


def test_questions_of_a_group_are_resampled_together():
    letters = {"q1": "AAAA", "q2": "BBBB", "q3": "AAAA", "q4": "BBBB"}
    rows = [row for question_id, said in letters.items() for row in answers(question_id, 0.7, said, right="A")]
    alone = certainty(rows, *letters).curves["certainty.error_rate"][0.7]
    grouped = certainty(rows, *letters, groups=["g", "g", "h", "h"]).curves["certainty.error_rate"][0.7]
    wrong = np.array([0.0, 1.0, 0.0, 1.0])
    assert alone == (0.5, *mean_bounds(wrong, SHARE))
    assert grouped == (0.5, *mean_bounds(wrong, SHARE, ["g", "g", "h", "h"]))
