import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robust_eval.stats.correlation import kendall, pearson, spearman

SMALL = st.integers(0, 4)  # with many ties, as worst cases and unbroken facts have


@settings(deadline=None)
@given(st.lists(st.tuples(SMALL, SMALL), min_size=3, max_size=30))
def test_coefficients_are_those_of_scipy_whatever_is_tied(pairs: list[tuple[int, int]]):
    x, y = np.array(pairs, dtype=float).T
    found = [pearson(x, y), spearman(x, y), kendall(x, y)]
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert np.isnan(found).all()
    else:
        reference = [statistic(x, y).statistic for statistic in (stats.pearsonr, stats.spearmanr, stats.kendalltau)]
        assert found == pytest.approx(reference, abs=1e-12)


def test_ranks_may_be_of_infinite_values():
    assert spearman(np.array([1.0, math.inf, 2.0]), np.array([3.0, 5.0, 4.0])) == pytest.approx(1)
