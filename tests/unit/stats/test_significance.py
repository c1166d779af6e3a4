import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.duration.survfunc import survdiff
from statsmodels.regression.linear_model import OLS
from statsmodels.stats import contingency_tables
from statsmodels.stats.multitest import multipletests

from robust_eval.stats.interval import paired_share_bounds
from robust_eval.stats.significance import (
    LogRank,
    compact_letter_display,
    holm,
    mcnemar,
    paired_difference,
    paired_p_value,
    permutation_p,
    stratified_log_rank,
    welch_p_value,
)

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
        assert sorted(map(sorted, largest)) == compact_letter_display(members, apart)


def test_groups_stand_in_the_order_of_their_members():
    assert compact_letter_display([2, 0, 1], [(0, 2)]) == [[2, 1], [0, 1]]


NAN, INF = float("nan"), float("inf")
GRID = [round(0.2 * step, 1) for step in range(1, 11)]
known_levels = st.tuples(st.sampled_from([*GRID, INF]), st.sampled_from([*GRID, INF, INF]))


def holds(breaking, unknown_from=INF):
    """(n, T) facts that hold up to their break, as far as it comes before the level of which nothing is known."""
    breaking, unknown_from = (np.atleast_1d(np.array(each, float))[:, None] for each in (breaking, unknown_from))
    is_unknown = (unknown_from <= GRID) & (breaking >= unknown_from)
    return np.where(is_unknown, NAN, breaking > GRID)


def test_a_difference_has_the_means_of_both_and_the_interval_of_the_differences():
    generator = np.random.default_rng(3)
    first, second = generator.normal(0.5, 1, 200), generator.normal(0, 1, 200)
    found = paired_difference(first, second)
    assert (found.n, found.first, found.second) == (200, first.mean(), second.mean())
    assert found.value == pytest.approx(first.mean() - second.mean())
    assert (found.low, found.high) == pytest.approx(stats.ttest_rel(first, second).confidence_interval(), rel=1e-9)


def test_two_equal_runs_are_neither_above_nor_below():
    found = paired_difference([1, 0, 0.5], [1, 0, 0.5], limits=(0, 1))
    most = 1 - 0.025 ** (1 / 3)  # the share of questions that may differ, by 1 at most, in either direction
    assert found == pytest.approx((3, 0.5, 0.5, 0, -most, most))


def test_right_and_wrong_have_the_score_interval():
    first, second = np.repeat([1, 0, 1], [5, 9, 86]), np.repeat([0, 1, 1], [5, 9, 86])
    found = paired_difference(first, second, limits=(0, 1))
    assert (found.low, found.high) == paired_share_bounds(np.repeat([1.0, -1.0, 0.0], [5, 9, 86]))


def test_runs_that_differ_alike_everywhere_have_an_interval_where_their_limits_are_known():
    first, second = np.full(40, 0.9), np.full(40, 0.4)
    unknown = paired_difference(first, second)
    assert (math.isnan(unknown.low), math.isnan(unknown.high)) == (True, True)
    known = paired_difference(first, second, limits=(0, 2))  # differences lie between -2 and 2
    share = 1 - 0.025 ** (1 / 40)
    assert (known.low, known.high) == pytest.approx((0.5 - 2.5 * share, 0.5 + 1.5 * share))
    grouped = paired_difference(first, second, np.arange(40) // 10, limits=(0, 2))
    share = 1 - 0.025 ** (1 / 4)
    assert (grouped.low, grouped.high) == pytest.approx((0.5 - 2.5 * share, 0.5 + 1.5 * share))


def test_questions_that_are_undefined_on_either_side_are_left_out():
    found = paired_difference([1, NAN, 0.5, 1], [0, 0, NAN, 0.5])
    assert (found.n, found.first, found.second, found.value) == (2, 1, 0.25, 0.75)
    found = paired_difference([NAN, 1.0], [1.0, NAN])
    assert found.n == 0
    assert all(math.isnan(value) for value in found[1:])


def test_groups_are_the_units():
    first, groups = [1.0] * 10 + [-1.0] * 10, ["a"] * 10 + ["b"] * 10
    found = paired_difference(first, [0.0] * 20, groups)
    assert (found.low, found.high) == pytest.approx((-12.706, 12.706), abs=0.001)  # Student's, of two units
    assert paired_difference(first, [0.0] * 20).high < 0.5


def test_the_interval_of_a_difference_covers_as_often_as_it_says():
    generator = np.random.default_rng(1)
    covered = []
    for _ in range(300):
        hardness = generator.uniform(0.2, 0.9, 60)
        found = paired_difference(generator.random(60) < hardness, generator.random(60) < hardness - 0.1, limits=(0, 1))
        covered.append(found.low <= 0.1 <= found.high)
    assert 0.91 <= np.mean(covered) <= 0.98


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(known_levels, known_levels), min_size=1, max_size=30))
def test_the_log_rank_test_is_that_of_statsmodels_with_a_stratum_for_each_question(pairs):
    first, second = (holds(*np.array(side).T) for side in zip(*pairs, strict=True))
    found = stratified_log_rank(first, second)
    known = ~np.isnan(first[:, 0] + second[:, 0])
    assert found.n == known.sum()
    if not found.first + found.second:
        assert math.isnan(found.statistic)
        assert math.isnan(found.p_value)
        return
    rows = np.concatenate([first[known], second[known]])
    status = (rows == 0).any(axis=1).astype(int)
    held = (rows == 1).sum(axis=1)
    times = np.array([0, *GRID])[held + status]  # of the break, or of the last level at which a fact is known to hold
    run, strata = np.repeat([0, 1], known.sum()), np.tile(np.arange(known.sum()), 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistic, p_value = survdiff(times, status, run, strata=strata)
    assert found.statistic == pytest.approx(statistic, abs=1e-9)
    assert found.p_value == pytest.approx(p_value, abs=1e-9)


def test_the_log_rank_test_of_groups_sums_their_signs_before_it_squares():
    # signs by group: a +1 +1 −1 = 1, b +1 +1 = 2, c −1 = −1: (1 + 2 − 1)² / (1 + 4 + 1)
    first, second = holds([0.2, 0.2, 0.6, 0.2, 0.2, 0.6]), holds([0.4] * 6)
    found = stratified_log_rank(first, second, list("aaabbc"))
    assert found[:4] == (6, 4, 2, pytest.approx(4 / 6))
    assert stratified_log_rank(first, second, list("abcdef")) == stratified_log_rank(first, second)


def test_a_fact_whose_break_is_unknown_counts_as_far_as_it_is_known_to_hold():
    # the first is known to hold below 0.6: it outlives a break at 0.4 (of the second), and not one at 0.6 or later
    unknown, other = holds([INF] * 4, [0.6] * 4), holds([0.4, 0.6, 0.8, INF])
    assert stratified_log_rank(unknown, other) == LogRank(4, 0, 1, 1.0, pytest.approx(0.317310507863))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_mcnemars_exact_p_is_that_of_statsmodels(pairs):
    table = [[pairs.count((one, other)) for other in (True, False)] for one in (True, False)]
    first, second = np.array(pairs, dtype=float).T
    assert mcnemar(first, second) == pytest.approx(contingency_tables.mcnemar(table, exact=True).pvalue)


def test_without_any_question_nothing_differs():
    assert mcnemar([], []) == 1
    assert np.isnan(paired_difference([], []).value)


def test_the_p_value_of_welch_is_that_of_the_values_and_1_where_none_differs_from_its_mean():
    one, other = np.array([0.2, 0.5, 0.9, 0.4]), np.array([0.6, 1.0, 0.8, 0.7, 0.9, 0.95])
    summaries = [(x.mean(), x.std(ddof=1), len(x)) for x in (one, other)]
    expected = stats.ttest_ind(one, other, equal_var=False).pvalue
    assert welch_p_value(*summaries) == pytest.approx(expected, rel=1e-9)
    assert welch_p_value((0.5, 0.0, 3), (0.9, 0.0, 4)) == 1.0


def test_a_permutation_p_value_is_that_of_all_swaps_and_of_all_permutations():
    random = np.random.default_rng(0)
    one, other = ((random.random((3, 5)) < p).astype(float) for p in (0.8, 0.4))
    observed = (other - one).sum()
    swapped = [
        sum((1 - 2 * s) * (other - one)[:, trial].sum() for trial, s in enumerate(swaps))
        for swaps in product((0, 1), repeat=5)
    ]
    assert permutation_p(one, other, True) == np.mean(np.array(swapped) <= observed + 1e-9)
    exact = stats.permutation_test(
        (other.sum(axis=0), one.sum(axis=0)), lambda a, b: a.sum() - b.sum(), alternative="less", n_resamples=np.inf
    ).pvalue
    assert permutation_p(one, other, False) == pytest.approx(exact, abs=0.02)


def test_a_permutation_test_leaves_missing_replies_out_of_shares():
    one, other = np.ones((2, 6)), np.ones((2, 6))
    other[:, :3] = np.nan
    assert permutation_p(one, other, True) == 1.0
