import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import cochrans_q

from robust_eval.stats.position_bias import cochran_q, place_bias

NAN = math.nan


@pytest.mark.parametrize("places", [2, 3, 5])
def test_q_is_that_of_statsmodels(places: int):
    right = (np.random.default_rng(places).random((40, places)) < np.linspace(0.3, 0.7, places)).astype(float)
    known, found = cochrans_q(right), cochran_q(right)
    assert found[:3] == (40, pytest.approx(known.statistic), places - 1)
    assert found.p_value == pytest.approx(known.pvalue)


def test_questions_with_other_numbers_of_choices_are_tested_apart_and_added():
    random = np.random.default_rng(0)
    three, five = (random.random((30, 3)) < 0.5).astype(float), (random.random((20, 5)) < 0.5).astype(float)
    padded = np.column_stack([three, np.full((30, 2), NAN)])
    both = cochran_q(np.vstack([padded, five]))
    statistic = cochrans_q(three).statistic + cochrans_q(five).statistic
    assert both[:3] == (50, pytest.approx(statistic), 6)
    assert both.p_value == pytest.approx(stats.chi2.sf(statistic, 6))


def test_questions_that_lack_a_place_are_left_out_and_those_with_all_alike_say_nothing():
    rows = [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    lacking = [[NAN, 1, 1], [1, NAN, 0], [NAN, NAN, NAN], [1, NAN, NAN]]
    assert cochran_q([*rows, *lacking])[:3] == cochran_q(rows)[:3]
    assert cochran_q([*rows, [1, 1, 1], [0, 0, 0]])[1:] == pytest.approx(cochran_q(rows)[1:])
    alike = cochran_q([[1, 1], [0, 0]])
    assert (alike.questions, alike.freedom) == (2, 0)
    assert math.isnan(alike.statistic)
    assert math.isnan(alike.p_value)
    assert cochran_q(np.empty((0, 4))).questions == 0


def test_bias_is_the_accuracy_at_a_place_minus_the_mean_of_the_others():
    accuracy = np.random.default_rng(1).random((6, 4))
    bias = place_bias(accuracy)
    for place in range(4):
        others = np.delete(accuracy, place, axis=1).mean(axis=1)
        np.testing.assert_allclose(bias[:, place], accuracy[:, place] - others)
    assert np.isnan(place_bias([[NAN, 1.0], [1.0, NAN]])).all()


def answered(random: np.random.Generator, questions: int, always_a: float) -> np.ndarray:
    """Right or not, with the right choice of each question at each of five places: a model that says A with this
    probability, and otherwise knows the answer to every second question, and guesses the others.
    """
    says_a = random.random((questions, 5)) < always_a
    known = np.where(np.arange(questions)[:, None] % 2, random.random((questions, 5)) < 0.2, True)
    return np.where(says_a, np.arange(5) == 0, known).astype(float)


def test_in_groups_places_that_matter_differently_in_each_are_no_bias_on_the_whole():
    """Each group of four prefers a place of its own: the χ² distribution rejects twice as often as it should."""
    random, groups = np.random.default_rng(4), np.arange(80) // 4
    by_chi_square, by_permutation = [], []
    for seed in range(60):
        preferred = np.repeat(random.integers(4, size=20), 4)
        right = random.random((80, 4)) < np.where(np.arange(4) == preferred[:, None], 0.7, 0.4)
        by_chi_square.append(cochran_q(right.astype(float)).p_value < 0.05)
        by_permutation.append(cochran_q(right.astype(float), groups, seed).p_value < 0.05)
    assert np.mean(by_chi_square) > 0.07
    assert 0 < np.mean(by_permutation) <= 0.1


def test_in_groups_a_bias_of_all_is_found_and_p_is_never_zero():
    random = np.random.default_rng(5)
    found = cochran_q(answered(random, 200, 0.3), np.arange(200) // 4)
    assert found.p_value == 1 / 2000
