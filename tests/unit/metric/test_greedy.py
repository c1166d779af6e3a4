import math

import numpy as np
import pytest

from robust_eval.answer import answer_table
from robust_eval.metric.greedy import greedy_accuracy
from robust_eval.metric.interval import SHARE, alike_interval
from robust_eval.question import Question

NAN = math.nan


def score(answers, groups=None, seed=0):
    """The score of one greedy answer, a pair of outcome and verdict, to each of some questions."""
    labels = groups or [""] * len(answers)
    asked = [Question(f"q{place}", f"{place}?", group=group) for place, group in enumerate(labels)]
    rows = [
        {
            "question_id": question.id,
            "rewrite": 0,
            "temperature": 0.0,
            "trial": 0,
            "text": "",
            "outcome": outcome,
            "correct": correct,
            "weight": 1.0,
        }
        for question, (outcome, correct) in zip(asked, answers, strict=True)
    ]
    return greedy_accuracy(asked, answer_table(reversed(rows)), seed)


def by_question(found):
    assert list(found.by_question) == ["accuracy.greedy"]
    return found.by_question["accuracy.greedy"]


def test_the_greedy_accuracy_is_the_share_of_right_answers():
    found = score([("ok", True), ("ok", False), ("ok", True), ("ok", True)])
    assert found.question_ids == ["q0", "q1", "q2", "q3"]
    assert list(found.values) == ["accuracy.greedy"]
    assert found.values["accuracy.greedy"].value == 0.75
    assert by_question(found).tolist() == [1, 0, 1, 1]
    assert (found.curves, found.tables) == ({}, {})


@pytest.mark.parametrize("outcome", ["filtered_prompt", "filtered_reply", "error"])
def test_answers_without_a_reply_are_left_out(outcome):
    found = score([("ok", True), (outcome, None), (outcome, False), ("ok", False), ("ok", False)])
    np.testing.assert_array_equal(by_question(found), [1, NAN, NAN, 0, 0])
    assert found.values["accuracy.greedy"].value == pytest.approx(1 / 3)


@pytest.mark.parametrize("outcome", ["refused", "empty", "invalid"])
def test_replies_that_answer_nothing_are_wrong(outcome):
    found = score([("ok", True), (outcome, None), (outcome, False)])  # of the second nobody knows the answer
    np.testing.assert_array_equal(by_question(found), [1, NAN, 0])
    assert found.values["accuracy.greedy"].value == pytest.approx(1 / 2)


def test_questions_without_a_gold_answer_are_undefined():
    found = score([("ok", None), ("ok", None)])
    np.testing.assert_array_equal(by_question(found), [NAN, NAN])
    np.testing.assert_array_equal(found.values["accuracy.greedy"], (NAN, NAN, NAN))
    found = score([("ok", None), ("ok", True)])
    np.testing.assert_array_equal(by_question(found), [NAN, 1])
    assert found.values["accuracy.greedy"] == (1, *alike_interval(1, 1, SHARE))


def test_a_question_without_any_answer_is_undefined():
    asked = [Question("a", "a?"), Question("b", "b?")]
    row = {"question_id": "b", "rewrite": 0, "temperature": 0.0, "trial": 0, "text": "", "outcome": "ok"}
    found = greedy_accuracy(asked, answer_table([row | {"correct": True, "weight": 1.0}]), 0)
    np.testing.assert_array_equal(by_question(found), [NAN, 1])


def test_the_interval_is_that_of_independent_answers():
    found = score([("ok", place < 60) for place in range(100)])
    margin = 1.96 * math.sqrt(0.6 * 0.4 / 100)
    assert found.values["accuracy.greedy"] == pytest.approx((0.6, 0.6 - margin, 0.6 + margin), abs=0.015)


def test_questions_of_a_group_are_resampled_together():
    answers = [("ok", True)] * 10 + [("ok", False)] * 10
    found = score(answers, ["a"] * 10 + ["b"] * 10)
    assert found.values["accuracy.greedy"] == (0.5, 0, 1)


def test_questions_without_a_group_are_resampled_alone_where_others_have_one():
    # the group counts as one of 41 units, and its ten right answers come and go together
    answers = [("ok", True)] * 10 + [("ok", False)] * 40
    found = score(answers, ["a"] * 10 + [""] * 40).values["accuracy.greedy"]
    draws = np.random.default_rng(5).poisson(1, 100_000)  # how often the group is drawn, nearly
    low, high = np.quantile(10 * draws / (41 + 9 * draws), [0.025, 0.975])
    assert found == pytest.approx((0.2, low, high), abs=0.02)


def test_the_seed_makes_the_interval():
    answers = [("ok", place % 3 == 0) for place in range(50)]
    assert score(answers, seed=1).values == score(answers, seed=1).values
    assert score(answers, seed=1).values != score(answers, seed=2).values
