import math

import numpy as np
import pytest
from scipy import stats

from robust_eval.stats.correlation import pearson
from robust_eval.stats.estimate import estimate, proportion


def test_an_estimate_takes_only_the_defined_questions_of_every_array():
    x = np.array([1.0, 2.0, 3.0, np.nan, 5.0, 9.0])
    y = np.array([2.0, 1.0, 4.0, 7.0, np.nan, 8.0])
    defined = ~np.isnan(x) & ~np.isnan(y)
    result = estimate(pearson, [x, y], None, seed=0, defined=defined)
    assert result.value == pytest.approx(stats.pearsonr([1, 2, 3, 9], [2, 1, 4, 8]).statistic, rel=1e-12)
    assert -1 <= result.low < result.value < result.high <= 1 + 1e-12


def test_a_share_of_nothing_is_undefined():
    assert all(math.isnan(number) for number in proportion(0, 0))
