import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests

from robust_eval.stats.significance import alike_groups, holm, paired_p_value

RANDOM = np.random.default_rng(0)


def test_the_p_value_is_that_of_the_paired_t_test():
    first, second = RANDOM.normal(size=40), RANDOM.normal(0.3, size=40)
    assert paired_p_value(first - second) == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert paired_p_value([*(first - second), math.nan]) == paired_p_value(first - second)


def test_with_groups_it_is_that_of_the_variance_between_them():
    groups = np.repeat(np.arange(12), 5)
    values = RANDOM.normal(0.2, size=60) + RANDOM.normal(size=12)[groups]
    fit = OLS(values, np.ones(60)).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False})
    error = float(fit.bse[0]) * math.sqrt(12 / 11)
    assert paired_p_value(values, groups) == pytest.approx(2 * stats.t.sf(abs(values.mean()) / error, 11))


def test_questions_that_all_differ_alike_have_the_p_value_of_the_sign_test():
    assert paired_p_value([0.5] * 8) == pytest.approx(stats.binomtest(8, 8).pvalue)
    assert paired_p_value([-0.5] * 8, [f"g{row // 2}" for row in range(8)]) == pytest.approx(2 / 2**4)
    assert (paired_p_value([0.0] * 8), paired_p_value([0.5])) == (1.0, 1.0)
    assert math.isnan(paired_p_value([math.nan]))


def test_corrected_p_values_are_those_of_holm():
    p_values = RANDOM.uniform(size=30) ** 3
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert np.isnan(holm([math.nan, 0.02])).tolist() == [True, False]
    assert holm([math.nan, 0.02])[1] == 0.02


def test_groups_are_all_largest_ones_of_which_no_two_are_apart():
    for _ in range(30):
        members = list(range(6))
        apart = [pair for pair in combinations(members, 2) if RANDOM.uniform() < 0.4]
        whole = [
            set(some)
            for size in range(1, 7)
            for some in combinations(members, size)
            if not any(first in some and second in some for first, second in apart)
        ]
        largest = [group for group in whole if not any(group < other for other in whole)]
        assert sorted(map(sorted, largest)) == alike_groups(members, apart)


def test_groups_stand_in_the_order_of_their_members():
    assert alike_groups([2, 0, 1], [(0, 2)]) == [[2, 1], [0, 1]]
