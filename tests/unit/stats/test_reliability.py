import math
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pingouin
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from robust_eval.stats.reliability import cronbach_alpha, cronbach_interval

NAN = math.nan
PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)


def whole(message):
    return f"^{re.escape(message)}$"


@st.composite
def graded(draw, verdicts=(0, 1)):
    """(n questions, raters) of verdicts."""
    n, raters = draw(st.integers(2, 8)), draw(st.integers(2, 6))
    row = st.lists(st.sampled_from(verdicts), min_size=raters, max_size=raters)
    return draw(st.lists(row, min_size=n, max_size=n))


def totals_vary(correct):
    return len({sum(column) for column in zip(*correct, strict=True)}) > 1


def kr20(correct):
    """KR-20 as Kuder and Richardson write it: p q of each item, and all variances of the population."""
    n, raters = len(correct), len(correct[0])
    totals = [sum(row[rater] for row in correct) for rater in range(raters)]
    mean = Fraction(sum(totals), raters)
    variance = sum((total - mean) ** 2 for total in totals) / raters
    pq = Fraction(0)
    for row in correct:
        p = Fraction(sum(row), raters)
        pq += p * (1 - p)
    return Fraction(n, n - 1) * (1 - pq / variance)


@PROPERTY
@given(graded(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_alpha_and_its_interval_are_those_of_pingouin(correct, level):
    assume(totals_vary(correct) and cronbach_alpha(correct) < 1 - 1e-9)
    alpha, (low, high) = pingouin.cronbach_alpha(data=pd.DataFrame(correct).T, ci=level)
    assert cronbach_alpha(correct) == pytest.approx(alpha, abs=1e-9)
    found = cronbach_interval(correct, level)
    assert found.value == cronbach_alpha(correct)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5.1e-4)  # pingouin rounds to three decimals


@PROPERTY
@given(graded())
def test_alpha_is_kr_20(correct):
    assume(totals_vary(correct))
    assert cronbach_alpha(correct) == pytest.approx(float(kr20(correct)), abs=1e-12)


@PROPERTY
@given(graded(verdicts=(0, 1, 1, 0, NAN)))
def test_questions_with_a_missing_rater_are_left_out(correct):
    complete = [row for row in correct if not any(map(math.isnan, row))]
    if len(complete) < 2 or not totals_vary(complete):
        assert math.isnan(cronbach_alpha(correct))
    else:
        assert cronbach_alpha(correct) == pytest.approx(float(kr20(complete)), abs=1e-12)
    np.testing.assert_equal(cronbach_interval(correct), cronbach_interval(complete or np.zeros((0, 2))))


def test_alpha_of_a_hand_computed_table():
    # variances of the questions 1/4, 1/4, 1/3, 1/3 with ddof = 1; totals 4, 2, 2, 0 of variance 8/3
    correct = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]]
    assert cronbach_alpha(correct) == pytest.approx(4 / 3 * (1 - (7 / 6) / (8 / 3)), abs=1e-12)


def test_a_negative_alpha_and_its_interval_are_kept():
    # totals 2 and 1, of variance 1/2, questions of 1/2 each: 3/2 · (1 − 3)
    # with 1 and 2 degrees of freedom F is the square of Student's t, P(F < x) = s at x = 2 s² / (1 − s²)
    found = cronbach_interval([[1, 0], [0, 1], [1, 0]])
    low, high = (1 - 4 * 2 * s**2 / (1 - s**2) for s in (0.975, 0.025))
    assert found == pytest.approx((-3, low, high), rel=1e-9)
    assert cronbach_alpha([[1, 0], [0, 1], [1, 0]]) == found.value


def test_questions_on_which_raters_differ_alike_have_alpha_1_and_no_interval():
    assert cronbach_interval([[1, 1, 0, 0]] * 5) == pytest.approx((1, NAN, NAN), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_the_interval_has_equal_tails_of_feldts_distribution(level):
    generator = np.random.default_rng(7)
    n, raters = 12, 7
    correct = (generator.random((n, raters)) < np.linspace(0.1, 0.9, raters)).astype(int)
    alpha, low, high = cronbach_interval(correct, level)
    assert low < alpha < high

    def below(bound):
        """P(F < (1 − bound) / (1 − α)), by the incomplete beta function."""
        one, two = raters - 1, (raters - 1) * (n - 1)
        x = (1 - bound) / (1 - float(kr20(correct.tolist())))
        return betainc(one / 2, two / 2, one * x / (one * x + two))

    assert (below(low), below(high)) == pytest.approx(((1 + level) / 2, (1 - level) / 2), abs=1e-9)


def test_the_interval_is_one_of_95_percent_unless_told_otherwise():
    correct = [[1, 1, 0], [1, 0, 0], [1, 1, 0]]
    assert cronbach_interval(correct) == cronbach_interval(correct, 0.95)
    assert cronbach_interval(correct, 0.9).low > cronbach_interval(correct).low


def test_the_transpose_takes_raters_as_items():
    generator = np.random.default_rng(8)
    correct = (generator.random((20, 5)) < generator.uniform(0.1, 0.9, (20, 1))).astype(int)
    alpha, interval = pingouin.cronbach_alpha(data=pd.DataFrame(correct))
    found = cronbach_interval(correct.T)
    assert found.value == pytest.approx(alpha, abs=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(interval), abs=5.1e-4)
    assert found.value > 0.5 > cronbach_alpha(correct)  # questions differ in hardness, raters do not


def test_the_transpose_leaves_out_raters_who_miss_a_question():
    correct = np.array([[1, 1, NAN, 1], [1, 0, 1, 0], [0, 0, 1, 0], [1, 0, 0, 1]])
    complete = [[1, 1, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]]  # the other three raters, a row each
    assert cronbach_alpha(correct.T) == pytest.approx(float(kr20(complete)), abs=1e-12)


@PROPERTY
@given(graded(), st.randoms(use_true_random=False))
def test_the_order_of_questions_and_raters_does_not_matter(correct, random):
    raters = random.sample(range(len(correct[0])), len(correct[0]))
    shuffled = [[row[rater] for rater in raters] for row in random.sample(correct, len(correct))]
    assert cronbach_interval(shuffled) == pytest.approx(cronbach_interval(correct), rel=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    "correct",
    [
        [[1, 0, 1]],  # one question
        [[1, 0, 1], [1, NAN, 0]],  # one complete question
        [[NAN, 1], [1, NAN]],
        [[1], [0], [1]],  # one rater
        [[1, 1, 1], [0, 0, 0]],  # equal totals, and equal answers
        [[1, 0], [0, 1]],  # equal totals of different answers
        [[1, 0, 1, 1, 0, 0], [0, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1]],
        [[1, 1, 0, NAN], [1, 0, 0, NAN]],  # a rater who never answers leaves no question complete
        np.zeros((0, 3)),
        np.zeros((3, 0)),
    ],
)
def test_alpha_and_its_interval_are_undefined_without_two_questions_two_raters_or_totals_that_vary(correct):
    assert math.isnan(cronbach_alpha(correct))
    found = cronbach_interval(correct)
    assert all(map(math.isnan, found))
    assert len(found) == 3


@pytest.mark.parametrize("raters", [2, 3, 1000])
def test_one_right_answer_more_is_enough_for_totals_to_vary(raters):
    correct = [[1] + [0] * (raters - 1), [1] * raters]
    # the totals vary as the first question does, the second not at all: 2 · (1 − 1)
    assert cronbach_alpha(correct) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("estimate", [cronbach_alpha, cronbach_interval])
@pytest.mark.parametrize(("correct", "shape"), [([1, 0], "(2,)"), ([], "(0,)"), (1, "()"), ([[[1, 0]]], "(1, 1, 2)")])
def test_verdicts_that_are_no_table_are_refused(estimate, correct, shape):
    with pytest.raises(ValueError, match=whole(f"correct must be (questions, raters), not {shape}")):
        estimate(correct)


@pytest.mark.parametrize("estimate", [cronbach_alpha, cronbach_interval])
@pytest.mark.parametrize("verdict", [0.5, 2, -1, math.inf])
def test_verdicts_other_than_0_1_and_nan_are_refused_even_in_questions_left_out(estimate, verdict):
    with pytest.raises(ValueError, match=whole("correct must hold 0, 1 and NaN alone")):
        estimate([[1, 0, 1], [NAN, 1, verdict], [0, 0, 1]])


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, 95, NAN])
def test_a_level_outside_0_to_1_is_refused(level):
    with pytest.raises(ValueError, match=whole(f"level must lie between 0 and 1, not {level}")):
        cronbach_interval([[1, 1, 0], [1, 0, 0]], level)


def test_booleans_are_verdicts_and_stay_as_they_are():
    correct = np.array([[True, True, False], [True, False, False], [True, True, False]])
    before = correct.copy()
    assert cronbach_interval(correct) == cronbach_interval([[1, 1, 0], [1, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(correct, before)
