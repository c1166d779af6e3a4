import math

import numpy as np
import pytest
from statsmodels.duration.survfunc import SurvfuncRight

from robust_eval.stats.interval import SHARE, mean_bounds
from robust_eval.stats.survival import holds_beyond, kaplan_meier

NAN = math.nan
GRID = np.array([0.5, 1.0, 1.5])
BREAKING = np.array([0.5, 1.0, 1.5, math.inf, NAN, NAN, NAN])
ACCURACY = np.array(
    [[0.1] * 3, [0.9, 0.1, NAN], [0.9, 0.9, 0.1], [0.9] * 3, [0.9, NAN, 0.1], [0.9, 0.9, NAN], [NAN, 0.9, 0.9]]
)
"""The last three are known to hold at 0.5, up to 1.0, and nowhere."""


def test_facts_with_an_unknown_break_are_at_risk_as_far_as_they_are_known():
    holds = holds_beyond(BREAKING, ACCURACY, GRID)
    expected = [[0] * 3, [1, 0, 0], [1, 1, 0], [1] * 3, [1, NAN, NAN], [1, 1, NAN], [NAN] * 3]
    np.testing.assert_array_equal(holds, expected)

    # at risk 6, 4, 2 of which 1 breaks each: 5/6, 5/6 · 3/4, 5/6 · 3/4 · 1/2
    assert [each.value for each in kaplan_meier(holds)] == pytest.approx([5 / 6, 5 / 8, 5 / 16], rel=1e-12)


def test_the_curve_and_greenwoods_variance_are_those_of_statsmodels():
    generator = np.random.default_rng(0)
    breaks, known = (
        generator.integers(1, 12, 80),
        generator.integers(0, 12, 80),
    )  # known up to a level, which may be none
    levels = np.arange(1, 11)
    seen = levels[None] <= np.minimum(known, 10)[:, None]
    holds = np.where(breaks[:, None] <= levels, np.where(breaks <= known, 0.0, NAN)[:, None], np.where(seen, 1.0, NAN))
    times, status = np.minimum(np.minimum(breaks, known), 10), (breaks <= known) & (breaks <= 10)
    theirs = SurvfuncRight(times[known > 0], status[known > 0])

    found = kaplan_meier(holds)
    ours = [found[int(t) - 1].value for t in theirs.surv_times]
    assert ours == pytest.approx(theirs.surv_prob.tolist(), rel=1e-12)
    last = found[int(theirs.surv_times[-1]) - 1]
    low, high = score_interval(ours[-1], theirs.surv_prob_se[-1], int((known > 0).sum()))
    assert (last.low, last.high) == pytest.approx((low, high), rel=1e-9)


def score_interval(share, error, n):
    """Wilson's, by the effective number, with Student's quantile."""
    from scipy import stats

    number, quantile = share * (1 - share) / error**2, stats.t.ppf(0.975, n - 1)
    middle = (share + quantile**2 / (2 * number)) / (1 + quantile**2 / number)
    half = quantile / (1 + quantile**2 / number) * math.sqrt(error**2 + (quantile / (2 * number)) ** 2)
    return middle - half, middle + half


@pytest.mark.parametrize("groups", [None, list("aabbcdef"), ["a"] * 8])
def test_where_all_is_known_the_intervals_are_those_of_shares(groups):
    breaking = np.array([0.5, 1.0, 1.0, 1.5, 1.5, math.inf, 1.5, math.inf])
    holds = holds_beyond(breaking, np.ones((8, 3)), GRID)
    for column, found in enumerate(kaplan_meier(holds, groups)):
        expected = (holds[:, column].mean(), *mean_bounds(holds[:, column], SHARE, groups))
        assert found == pytest.approx(expected, rel=1e-12)


def test_where_all_hold_or_break_the_interval_is_exact_and_nothing_known_is_no_estimate():
    all_hold, all_break = kaplan_meier(np.tile([1.0, 0.0], (5, 1)))
    assert all_hold == (1.0, *mean_bounds(np.ones(5), SHARE))
    assert all_break == (0.0, *mean_bounds(np.zeros(5), SHARE))
    assert np.isnan(kaplan_meier(np.array([[1.0, NAN], [0.0, 0.0]]))[1].value)
    assert np.isnan(kaplan_meier(np.full((2, 2), NAN))[0].value)
