import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pingouin
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from robust_eval.stats.reliability import (
    Robustness,
    cronbach_alpha,
    cronbach_interval,
    guessing,
    question_robustness,
    robustness,
)

NAN = math.nan
PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@st.composite
def graded(draw, verdicts=(0, 1), fewest=2):
    """(n questions, raters) of verdicts."""
    n, raters = draw(st.integers(fewest, 8)), draw(st.integers(fewest, 6))
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
@given(graded())
def test_alpha_and_its_interval_are_those_of_pingouin(correct):
    assume(totals_vary(correct) and cronbach_alpha(correct) < 1 - 1e-9)
    alpha, (low, high) = pingouin.cronbach_alpha(data=pd.DataFrame(correct).T, ci=0.95)
    assert cronbach_alpha(correct) == pytest.approx(alpha, abs=1e-9)
    found = cronbach_interval(correct)
    assert found.value == cronbach_alpha(correct)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5.1e-4)  # pingouin rounds to three decimals


@PROPERTY
@given(graded(verdicts=(0, 1, 1, 0, NAN)))
def test_questions_with_a_missing_rater_are_left_out(correct):
    complete = [row for row in correct if not any(map(math.isnan, row))]
    if len(complete) < 2 or not totals_vary(complete):
        assert math.isnan(cronbach_alpha(correct))
    else:
        assert cronbach_alpha(correct) == pytest.approx(float(kr20(complete)), abs=1e-12)
    np.testing.assert_equal(cronbach_interval(correct), cronbach_interval(complete or np.zeros((0, 2))))


def test_a_negative_alpha_and_its_interval_are_kept():
    # totals 2 and 1, of variance 1/2, questions of 1/2 each: 3/2 · (1 − 3)
    # with 1 and 2 degrees of freedom F is the square of Student's t, P(F < x) = s at x = 2 s² / (1 − s²)
    found = cronbach_interval([[1, 0], [0, 1], [1, 0]])
    low, high = (1 - 4 * 2 * s**2 / (1 - s**2) for s in (0.975, 0.025))
    assert found == pytest.approx((-3, low, high), rel=1e-9)
    assert cronbach_alpha([[1, 0], [0, 1], [1, 0]]) == found.value


def test_questions_on_which_raters_differ_alike_have_alpha_1_and_no_interval():
    assert cronbach_interval([[1, 1, 0, 0]] * 5) == pytest.approx((1, NAN, NAN), abs=1e-12, nan_ok=True)


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


@st.composite
def with_ensemble(draw):
    """Verdicts of raters, some of whom are missing, and of an ensemble answer that is one of theirs or not graded."""
    correct = draw(graded(verdicts=(0, 1, 0, 1, NAN), fewest=1))
    return correct, [draw(st.sampled_from([*(each for each in row if not math.isnan(each)), NAN])) for row in correct]


def mean(values):
    defined = [value for value in values if value is not None]
    return float(sum(defined, Fraction(0)) / len(defined)) if defined else NAN


@PROPERTY
@given(with_ensemble())
@example(([[NAN, NAN]], [NAN]))
@example(([[NAN, 1], [NAN, 0]], [NAN, NAN]))
@example(([[1]], [1]))
def test_the_figures_are_their_definitions_written_out_in_loops(tables):
    correct, ensemble = tables
    known = [[int(verdict) for verdict in row if not math.isnan(verdict)] for row in correct]
    expected = Robustness(
        accuracy=[None if math.isnan(row[0]) else Fraction(row[0]) for row in correct],  # the original question
        worst=[Fraction(all(row)) if row else None for row in known],
        best=[Fraction(any(row)) if row else None for row in known],
        plurality=[None if math.isnan(verdict) else Fraction(verdict) for verdict in ensemble],
        difficulty=[Fraction(sum(row), len(row)) if row else None for row in known],
    )
    for values, by_loops in zip(question_robustness(correct, ensemble), expected, strict=True):
        assert values.tolist() == pytest.approx([NAN if v is None else float(v) for v in by_loops], nan_ok=True)
    assert robustness(correct, ensemble) == pytest.approx(tuple(map(mean, expected)), abs=1e-12, nan_ok=True)


# guessing


@pytest.mark.parametrize(("choices", "raters"), [(1, 3), (2, 1), (2, 2), (2, 6), (3, 4), (4, 3), (4, 5), (5, 4)])
def test_guessing_gives_the_means_over_all_answers_that_guessers_could_give(choices, raters):
    totals = [Fraction(0)] * 5
    for answers in itertools.product(range(choices), repeat=raters):  # the right choice is 0
        votes = [answers.count(choice) for choice in range(choices)]
        winners = [choice for choice in range(choices) if votes[choice] == max(votes)]
        figures = (
            answers[0] == 0,
            votes[0] == raters,
            votes[0] > 0,
            Fraction(0 in winners, len(winners)),  # a tie is broken evenly
            Fraction(votes[0], raters),
        )
        totals = [total + figure for total, figure in zip(totals, figures, strict=True)]
    expected = Robustness(*(float(total / choices**raters) for total in totals))
    assert guessing(choices, raters) == pytest.approx(expected, abs=1e-12)
