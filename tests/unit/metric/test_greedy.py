import math
import re

import numpy as np
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.metric.greedy import Dominant, dominant_letter, greedy_accuracy
from robust_eval.question import LETTERS, Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.interval import SHARE, degenerate_interval, mean_bounds

NAN = math.nan


def score(answers, groups=None):
    """The score of one greedy answer, a pair of outcome and verdict, to each of some questions."""
    labels = groups or [""] * len(answers)
    asked = [Question(f"q{place}", f"{place}?", group=group) for place, group in enumerate(labels)]
    rows = [
        answer_row(question.id, temperature=0.0, outcome=outcome, correct=correct)
        for question, (outcome, correct) in zip(asked, answers, strict=True)
    ]
    return greedy_accuracy(asked, answer_table(reversed(rows)))


def test_an_accuracy_of_answers_at_other_temperatures_is_not_called_greedy():
    asked = [Question("q", "?")]
    at = {
        t: greedy_accuracy(asked, answer_table([answer_row("q", temperature=t, correct=True)])) for t in (0.0, 0.7, NAN)
    }
    labels = {t: found.spec("accuracy.greedy").label for t, found in at.items()}
    titles = [present(found, asked).presentation.title for found in at.values()]
    assert list(labels.values()) == ["accuracy of all greedy answers", *["accuracy of the most frequent answers"] * 2]
    assert titles == ["Greedy answers", *["Most frequent answers"] * 2]


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


def test_questions_without_a_gold_answer_are_undefined():
    found = score([("ok", None), ("ok", None)])
    np.testing.assert_array_equal(by_question(found), [NAN, NAN])
    np.testing.assert_array_equal(found.values["accuracy.greedy"], (NAN, NAN, NAN))
    found = score([("ok", None), ("ok", True)])
    np.testing.assert_array_equal(by_question(found), [NAN, 1])
    assert found.values["accuracy.greedy"] == (1, *degenerate_interval(1, 1, SHARE))


def test_a_question_without_any_answer_is_undefined():
    asked = [Question("a", "a?"), Question("b", "b?")]
    found = greedy_accuracy(asked, answer_table([answer_row("b", temperature=0.0, correct=True)]))
    np.testing.assert_array_equal(by_question(found), [NAN, 1])


@pytest.mark.parametrize(
    ("right", "wrong", "groups"),
    [(10, 10, ["a"] * 10 + ["b"] * 10), (10, 40, ["a"] * 10 + [""] * 40)],  # a question without one is its own
)
def test_groups_of_questions_are_the_units(right, wrong, groups):
    found = score([("ok", True)] * right + [("ok", False)] * wrong, groups).values["accuracy.greedy"]
    values = np.repeat([1.0, 0.0], [right, wrong])
    labels = [group or f"question {place}" for place, group in enumerate(groups)]
    assert found == pytest.approx((right / (right + wrong), *mean_bounds(values, SHARE, labels)))


def multiple_choice(keys, labels, choices=5):
    """Questions whose right letters are ``keys``, and the graded answers ``labels`` to them (None: no letter)."""
    texts = tuple(f"choice {place}" for place in range(choices))
    asked = [
        Question(f"q{place}", f"{place}?", choices=texts, correct=LETTERS.index(key)) for place, key in enumerate(keys)
    ]
    rows = [
        answer_row(q.id, temperature=0.0, label=label, outcome="ok" if label else "invalid", correct=label == key)
        for q, key, label in zip(asked, keys, labels, strict=True)
    ]
    return asked, answer_table(rows)


# Of 40 questions C is right in 13, and the model answers it to 38.
KEYS = "C" * 13 + "A" * 9 + "B" * 9 + "D" * 5 + "E" * 4
MOSTLY_C = "C" * 38 + "EE"


def test_accuracy_with_choices_stands_beside_chance_and_the_best_constant_answer():
    asked, baseline = multiple_choice(KEYS, MOSTLY_C)
    found = present(greedy_accuracy(asked, baseline), asked)
    values = {name: found.values[name].value for name in ("accuracy.greedy", "accuracy.guessing", "accuracy.constant")}
    assert values == pytest.approx({"accuracy.greedy": 15 / 40, "accuracy.guessing": 0.2, "accuracy.constant": 13 / 40})
    assert (found.n("accuracy.guessing"), found.n("accuracy.constant")) == (40, 40)
    (claim,) = found.presentation.claims
    assert re.fullmatch(
        r"gets 38 % \(\d+ % to \d+ %\) of the questions right; guessing gets 20 %, always answering C 33 %",
        claim,
    )


def test_of_questions_with_and_without_choices_those_with_choices_have_a_sentence_of_their_own():
    asked, baseline = multiple_choice("AB", "AA", choices=2)
    free = [Question(f"f{place}", "?", answers=("x",)) for place in range(2)]
    right = [
        {**row, "question_id": each.id, "correct": True} for each, row in zip(free, baseline.to_pylist(), strict=True)
    ]
    asked = [*asked, *free]
    found = present(greedy_accuracy(asked, answer_table([*baseline.to_pylist(), *right])), asked)
    first, second = found.presentation.claims
    assert re.fullmatch(r"gets 75 % \(\d+ % to \d+ %\) of the questions right", first)
    assert second == "gets 50 % of the 2 questions with choices right; guessing gets 50 %, always answering A 50 %"


@pytest.mark.parametrize(
    ("keys", "labels", "expected"),
    [
        (KEYS, MOSTLY_C, Dominant("C", 38, 40, 13)),
        (KEYS, "C" * 30 + "A" * 5 + "ABDEB", Dominant("C", 30, 40, 13)),
        (KEYS, [*"C" * 30, *[None] * 10], Dominant("C", 30, 30, 13)),
        (KEYS, KEYS, None),
        (KEYS, "C" * 20 + "AB" * 10, None),
        ("C" * 38 + "AB", "C" * 40, None),  # it is nearly always right
        ("AB", "AA", None),  # too few to tell
        (KEYS, [None] * 40, None),
    ],
)
def test_a_letter_dominates_that_is_answered_far_more_often_than_it_is_right(keys, labels, expected):
    assert dominant_letter(*multiple_choice(keys, labels)) == expected


@pytest.mark.parametrize(("answers", "dominates"), [(1, False), (6, False), (7, True)])
def test_a_letter_that_is_never_right_dominates_only_if_there_are_answers_enough(answers: int, dominates: bool):
    assert (dominant_letter(*multiple_choice("A" * answers, "E" * answers)) is not None) == dominates


def test_no_letter_dominates_free_text():
    asked = [Question("q", "?", answers=("C",))]
    _, baseline = multiple_choice("C", "C")
    assert dominant_letter(asked, baseline) is None
