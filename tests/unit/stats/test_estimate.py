import math

import numpy as np
import pytest
from scipy import stats

from robust_eval.stats.estimate import estimate, mean_estimate, proportion
from robust_eval.stats.interval import SHARE


def pearson(x, y):
    return stats.pearsonr(x, y).statistic


def test_undefined_questions_are_left_out_of_a_mean_and_of_its_interval():
    values = np.array([np.nan, 0.0, np.nan, 1.0])
    assert mean_estimate(values, None, (0.0, 2.0)) == mean_estimate(np.array([0.0, 1.0]), None, (0.0, 2.0))


def test_the_mean_of_undefined_questions_is_undefined():
    result = mean_estimate(np.array([np.nan, np.nan]), ["g", "g"])
    assert result == pytest.approx((math.nan, math.nan, math.nan), nan_ok=True)


def test_groups_stay_with_their_questions_when_undefined_ones_are_left_out():
    values = np.array([np.nan, 0.0, 0.0, 1.0, 1.0])
    labels = ["h", "g", "g", "h", "h"]
    assert mean_estimate(values, labels, SHARE) == mean_estimate(values[1:], labels[1:], SHARE)
    assert mean_estimate(values, labels, SHARE) != mean_estimate(values[1:], ["h", "g", "h", "g"], SHARE)


def test_an_estimate_takes_only_the_defined_questions_of_every_array():
    x = np.array([1.0, 2.0, 3.0, np.nan, 5.0, 9.0])
    y = np.array([2.0, 1.0, 4.0, 7.0, np.nan, 8.0])
    defined = ~np.isnan(x) & ~np.isnan(y)
    result = estimate(pearson_where_defined, [x, y], None, seed=0, defined=defined)
    assert result.value == pytest.approx(pearson([1, 2, 3, 9], [2, 1, 4, 8]), rel=1e-12)
    assert -1 <= result.low < result.value < result.high <= 1 + 1e-12


def pearson_where_defined(x, y):
    return pearson(x, y) if np.ptp(x) > 0 and np.ptp(y) > 0 else math.nan


def test_a_share_of_nothing_is_undefined():
    assert all(math.isnan(number) for number in proportion(0, 0))
