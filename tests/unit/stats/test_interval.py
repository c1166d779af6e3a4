import math

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.stats.proportion import proportion_confint

from robust_eval.stats.estimate import Estimate, mean_interval, paired_share_interval, share_interval
from robust_eval.stats.interval import (
    SHARE,
    UNKNOWN,
    bootstrap,
    bounded_mean_interval,
    degenerate_interval,
    independent,
    mean_bounds,
    paired_share_bounds,
)


def mean_unless_all_zero(values):
    """Undefined (NaN) in a resample that holds nothing but zeros."""
    return np.where((values == 0).all(axis=0), np.nan, values.mean(axis=0))


def correlation(x, y):
    return stats.pearsonr(x, y).statistic


@pytest.mark.parametrize(("statistic", "level"), [(np.mean, 0.5), (np.mean, 0.95), (np.median, 0.8), (np.std, 0.99)])
def test_the_interval_is_the_percentile_interval_of_scipy(statistic, level):
    sample = np.random.default_rng(3).exponential(size=401)
    options = {"n_resamples": 10_000, "batch": 1000, "method": "percentile", "confidence_level": level}
    expected = stats.bootstrap((sample,), statistic, rng=np.random.default_rng(4), **options).confidence_interval
    low, high = bootstrap(statistic, sample, level=level, resamples=10_000)
    assert (low, high) == pytest.approx(tuple(expected), abs=0.06 * (expected.high - expected.low))


def test_the_interval_of_a_correlation_is_that_of_scipy():
    generator = np.random.default_rng(5)
    x = generator.normal(size=150)
    y = x + generator.normal(size=150)
    expected = stats.bootstrap(
        (x, y), correlation, paired=True, vectorized=False, n_resamples=500, method="percentile", rng=generator
    ).confidence_interval
    low, high = bootstrap(correlation, x, y, resamples=500)
    assert (low, high) == pytest.approx(tuple(expected), abs=0.15 * (expected.high - expected.low))


@pytest.mark.parametrize(
    ("values", "groups", "level", "expected"),
    [
        # four resamples of (0, 1), equally likely, have the means 0, 1/2, 1/2, 1
        ([0.0, 1.0], None, 0.95, (0.0, 1.0)),
        ([0.0, 1.0], None, 0.4, (0.5, 0.5)),
        # two groups, {0, 0, 0} and {1}, drawn twice: means 0, 1/4 (twice as likely), 1
        ([0.0, 1.0, 0.0, 0.0], ["a", "b", "a", "a"], 0.95, (0.0, 1.0)),
        ([0.0, 1.0, 0.0, 0.0], ["a", "b", "a", "a"], 0.4, (0.25, 0.25)),
        ([0.7], None, 0.95, (0.7, 0.7)),
        ([0.0, 1.0, 5.0], ["a", "a", "a"], 0.95, (2.0, 2.0)),
        ([], None, 0.95, (math.nan, math.nan)),
    ],
)
def test_the_interval_of_few_questions_can_be_counted(values, groups, level, expected):
    assert bootstrap(np.mean, values, groups=groups, level=level) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("groups", [None, np.arange(60) // 3])
def test_several_arrays_are_resampled_together(groups):
    x = np.random.default_rng(8).normal(size=60)

    def mean_difference(first, second):
        return (first - second).mean()

    assert bootstrap(mean_difference, x, x - 3.0, groups=groups) == pytest.approx((3.0, 3.0), abs=1e-12)
    assert bootstrap(correlation, x, 2 * x, groups=groups, resamples=50) == pytest.approx((1.0, 1.0), abs=1e-12)


@pytest.mark.parametrize("groups", [None, np.arange(50) // 2])
def test_the_seed_alone_decides_the_resamples(groups):
    sample = np.random.default_rng(11).normal(size=50)
    first = bootstrap(np.mean, sample, groups=groups, seed=5)
    assert bootstrap(np.mean, sample, groups=groups, seed=5) == first
    assert bootstrap(np.mean, sample, groups=groups, seed=6) != first


@pytest.mark.parametrize("groups", [None, ["a", "b"]])
def test_undefined_resamples_are_left_out(groups):
    # of the resamples of (0, 1), one in four is undefined; the others have the means 1/2, 1/2, 1
    assert bootstrap(mean_unless_all_zero, [0.0, 1.0], groups=groups) == (0.5, 1.0)


def test_undefined_resamples_of_one_column_leave_the_others_alone():
    table = np.column_stack([[0.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
    low, high = bootstrap(mean_unless_all_zero, table)
    np.testing.assert_array_equal(low, [0.5, np.nan, 1.0])
    np.testing.assert_array_equal(high, [1.0, np.nan, 2.0])


@pytest.mark.parametrize("n", [1, 5, 29, 30, 200, 6000])
def test_the_exact_interval_of_zeros_and_of_ones_is_that_of_clopper_and_pearson(n):
    most = 1 - 0.025 ** (1 / n)
    assert degenerate_interval(0.0, n, SHARE) == pytest.approx((0, most), rel=1e-9)
    assert degenerate_interval(1.0, n, SHARE) == pytest.approx((1 - most, 1), rel=1e-9)
    assert degenerate_interval(0.0, n, (0, 1.609)) == pytest.approx((0, 1.609 * most), rel=1e-9)
    assert degenerate_interval(0.65, n, (-1, 1)) == pytest.approx((0.65 - 1.65 * most, 0.65 + 0.35 * most), rel=1e-9)


@pytest.mark.parametrize("other", [0.0, 0.4, 0.66, 1.0])
@pytest.mark.parametrize("differing", [0.002, 0.02, 0.1, 0.3, 0.7])
def test_intervals_of_questions_that_may_all_be_alike_cover_as_often_as_they_say(other, differing):
    """Most questions are worth 0.65, some something else: the mean is missed by less than 2.5 % of the samples that are
    all alike; the bootstrap's interval, which had no width, missed it by all of them.
    """
    generator = np.random.default_rng(13)
    mean = 0.65 + differing * (other - 0.65)
    missed = 0
    for differ in generator.random((400, 12)) < differing:
        if not differ.any():
            low, high = mean_bounds(np.full(12, 0.65), SHARE)
            missed += not low <= mean <= high
    assert missed <= 0.025 * 400 + 3 * math.sqrt(400 * 0.025 * 0.975)


def test_what_differs_by_rounding_is_alike():
    sample = 0.6545 + 1e-16 * np.arange(30)
    assert mean_bounds(sample, SHARE) == pytest.approx(degenerate_interval(0.6545, 30, SHARE), rel=1e-12)
    assert mean_bounds(np.array([1 + 2e-16] * 5), SHARE) == degenerate_interval(1.0, 5, SHARE)


def test_questions_that_are_alike_have_no_interval_where_their_limits_are_not_known_or_leave_no_choice():
    for limits in (UNKNOWN, (0, math.inf), (0.7, 0.7)):
        assert all(math.isnan(bound) for bound in mean_bounds(np.full(9, 0.7), limits))
    assert all(math.isnan(bound) for bound in mean_bounds(np.zeros(0), SHARE))


def test_groups_are_the_independent_units():
    assert (independent(4, None), independent(4, ["a", "b", "a", "c"])) == (4, 3)


def test_only_the_interval_over_groups_covers_where_questions_of_a_group_are_alike():
    generator = np.random.default_rng(14)
    groups = np.repeat(np.arange(30), 6)
    covered = {"groups": 0, "questions": 0}
    for seed in range(100):
        sample = np.repeat(generator.normal(size=30), 6) + 0.3 * generator.normal(size=180)
        low, high = bootstrap(np.mean, sample, groups=groups, seed=seed, resamples=200)
        covered["groups"] += low <= 0 <= high
        low, high = bootstrap(np.mean, sample, seed=seed, resamples=200)
        covered["questions"] += low <= 0 <= high
    assert 0.88 <= covered["groups"] / 100 <= 0.98
    assert covered["questions"] / 100 < 0.75


# mean_bounds


def test_the_interval_of_a_mean_is_students():
    sample = np.random.default_rng(14).normal(0.5, 2.0, size=50)
    expected = stats.t.interval(0.9, 49, sample.mean(), stats.sem(sample))
    assert mean_bounds(sample, UNKNOWN, level=0.9) == pytest.approx(expected, rel=1e-9)


def test_the_variance_of_groups_of_different_sizes_is_that_of_the_ratio_estimator():
    values, groups = np.array([0.1, 0.5, 0.9, 0.2, 0.4, 0.8]), np.array(list("abbccc"))
    mean, sums, sizes = values.mean(), np.array([0.1, 1.4, 1.4]), np.array([1, 2, 3])
    error = math.sqrt(3 / 2 * ((sums - mean * sizes) ** 2).sum()) / 6
    expected = (mean - stats.t.isf(0.025, 2) * error, mean + stats.t.isf(0.025, 2) * error)
    assert mean_bounds(values, UNKNOWN, groups) == pytest.approx(expected, rel=1e-9)


def test_the_interval_of_a_mean_ends_at_the_limits_of_a_value():
    assert mean_bounds(np.array([0.0, 0.9, 1.0]), SHARE)[1] == 1.0
    assert mean_bounds(np.array([0.0, 0.9, 1.0]), (0.0, 5.0))[0] == 0.0


def wilson_of_statsmodels(count, number, quantile):
    return proportion_confint(count, number, 2 * stats.norm.sf(quantile), method="wilson")


@pytest.mark.parametrize(("right", "n"), [(18, 20), (1, 20), (49, 50), (120, 200)])
def test_the_interval_of_a_share_is_wilsons_with_students_quantile(right, n):
    expected = wilson_of_statsmodels(right, n, stats.t.isf(0.025, n - 1))
    assert mean_bounds(np.repeat([1.0, 0.0], [right, n - right]), SHARE) == pytest.approx(expected, rel=1e-9)


def test_a_share_of_groups_counts_as_many_questions_as_its_variance_is_worth():
    generator = np.random.default_rng(16)
    groups = np.repeat(np.arange(20), 10)
    values = (generator.random(200) < generator.beta(4, 1, 20)[groups]).astype(float)
    share = values.mean()
    variance = stats.sem(values.reshape(20, 10).mean(axis=1)) ** 2
    effective = share * (1 - share) / variance
    assert effective < 150
    expected = wilson_of_statsmodels(share * effective, effective, stats.t.isf(0.025, 19))
    assert mean_bounds(values, SHARE, groups) == pytest.approx(expected, rel=1e-9)


def test_groups_never_make_more_questions_than_there_are():
    values, groups = np.tile([0.0, 1.0], 10), np.arange(20) // 2  # all groups are half right: their means do not vary
    expected = wilson_of_statsmodels(10, 20, stats.t.isf(0.025, 9))
    assert mean_bounds(values, SHARE, groups) == pytest.approx(expected, rel=1e-9)


def test_groups_whose_means_are_alike_are_as_many_questions():
    values, groups = [0.0, 1.0, 1.0, 0.0, 0.5], ["a", "a", "b", "b", "c"]
    assert mean_bounds(np.array(values), SHARE, groups) == degenerate_interval(0.5, 3, SHARE)
    assert mean_bounds(np.array([0.0, 1.0, 1.0]), SHARE, ["a"] * 3) == degenerate_interval(2 / 3, 1, SHARE)


@pytest.mark.parametrize("n", [20, 50, 200])
def test_the_interval_of_a_share_covers_it_as_often_as_it_says(n):
    """The exact coverage: the probability of each count by whether its interval holds the share."""
    intervals = np.array([mean_bounds(np.repeat([1.0, 0.0], [count, n - count]), SHARE) for count in range(n + 1)])
    for share in (0.5, 0.7, 0.9, 0.97):
        held = (intervals[:, 0] <= share) & (share <= intervals[:, 1])
        assert stats.binom.pmf(np.arange(n + 1), n, share)[held].sum() >= (0.935 if (n, share) == (50, 0.97) else 0.94)


# paired_share_bounds


def most_likely_variance(gained, lost, n, difference):
    """The variance of gained − lost where the likelihood is largest under a difference, found by search."""

    def unlikelihood(worse):
        shares = np.array([worse + difference, worse, 1 - 2 * worse - difference])
        counts = np.array([gained, lost, n - gained - lost])
        return -float(counts[counts > 0] @ np.log(np.maximum(shares[counts > 0], 1e-300)))

    ends = max(0.0, -difference), (1 - difference) / 2
    worse = optimize.minimize_scalar(unlikelihood, ends, bounds=ends, method="bounded", options={"xatol": 1e-13}).x
    return n * (2 * worse + difference - difference**2)


@pytest.mark.parametrize(("gained", "lost", "n"), [(12, 9, 50), (30, 25, 200), (9, 12, 515)])
def test_where_nothing_is_skewed_each_bound_is_that_of_tangos_score_test(gained, lost, n):
    low, high = paired_share_bounds(np.repeat([1.0, -1.0, 0.0], [gained, lost, n - gained - lost]))
    for bound in (low, high):
        variance = most_likely_variance(gained, lost, n, bound)
        score = abs(gained - lost - n * bound) / math.sqrt(variance)
        assert score == pytest.approx(1.959964, abs=0.01) or score > 1.959964
    zero = 1.959964**2 / (n + 1.959964**2)
    assert paired_share_bounds(np.zeros(n)) == pytest.approx((-zero, zero), rel=1e-6)


def test_the_interval_of_exchanged_runs_is_turned_round():
    differences = np.repeat([1.0, -1.0, 0.0], [3, 11, 86])
    low, high = paired_share_bounds(differences)
    assert paired_share_bounds(-differences) == pytest.approx((-high, -low), rel=1e-9)


def test_losses_alone_have_at_least_the_exact_upper_bound():
    high = paired_share_bounds(np.repeat([-1.0, 0.0], [9, 191]))[1]
    assert high >= -proportion_confint(9, 200, method="beta")[0]


def test_copies_in_groups_add_nothing_to_a_difference_of_shares():
    once = np.repeat([1.0, -1.0, 0.0], [6, 10, 84])
    copied = paired_share_bounds(np.repeat(once, 3), np.repeat(np.arange(100), 3))
    plain = paired_share_bounds(once)
    assert copied == pytest.approx(plain, abs=0.003)
    assert paired_share_bounds(np.zeros(300), np.repeat(np.arange(100), 3)) == pytest.approx(
        paired_share_bounds(np.zeros(100)), rel=0.05
    )


# mean_interval, share_interval, paired_share_interval

VALUES, GROUPS = [0.2, math.nan, 0.4, 1.5, 0.9, 0.1], ["a", "a", "a", "b", "c", "c"]
VERDICTS, OTHERS = [True, None, False, True, True, False], [0, 1, 0, math.nan, 1, 1]


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_undefined_values_leave_an_interval_with_their_groups(groups):
    labels = None if groups is None else np.array(groups)[[0, 2, 3, 4, 5]]
    values, verdicts = np.array([0.2, 0.4, 1.5, 0.9, 0.1]), np.array([1.0, 0, 1, 1, 0])
    assert mean_interval(VALUES, groups, 0.9) == (0.62, *mean_bounds(values, UNKNOWN, labels, 0.9))
    assert share_interval(VERDICTS, groups, 0.9) == (0.6, *mean_bounds(verdicts, SHARE, labels, 0.9))
    assert mean_interval(VERDICTS, groups) == share_interval(VERDICTS, groups)

    labels = None if groups is None else np.array(groups)[[0, 2, 4, 5]]
    bounds = paired_share_bounds(np.array([1.0, 0, 0, -1]), labels, 0.9)
    assert paired_share_interval(VERDICTS, OTHERS, groups, 0.9) == (0, *bounds)


def test_intervals_of_nothing_and_of_values_that_are_alike():
    for nothing in ([], [math.nan] * 3):
        for found in (mean_interval(nothing), share_interval(nothing), paired_share_interval(nothing, nothing)):
            assert isinstance(found, Estimate)
            assert all(map(math.isnan, found))
    alike = mean_interval([0.7] * 9)
    assert (alike.value, *map(math.isnan, alike[1:])) == (0.7, True, True)
    assert mean_interval([1] * 9) == (1, *degenerate_interval(1.0, 9, SHARE))


# bounded_mean_interval


@pytest.mark.parametrize(("right", "n"), [(1, 5), (18, 20), (1, 30), (199, 200), (40, 200)])
def test_the_bounded_interval_of_a_share_is_that_of_clopper_and_pearson(right, n):
    expected = proportion_confint(right, n, method="beta")
    found = bounded_mean_interval(np.repeat([1.0, 0.0], [right, n - right]), SHARE)
    assert found == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize("value", [-1.0, -0.2, 0.0, 0.7])
def test_the_bounded_interval_of_what_is_alike_is_the_exact_one(value):
    found = bounded_mean_interval(np.full(37, value), (-1, 1))
    assert found == pytest.approx(degenerate_interval(value, 37, (-1, 1)), abs=1e-9)
    nearly = bounded_mean_interval(np.append(np.full(36, value), value + 1e-3 * (-1 if value > 0 else 1)), (-1, 1))
    assert nearly == pytest.approx(found, abs=1e-3)


def test_the_bounded_interval_is_the_quantile_under_random_weights():
    generator = np.random.default_rng(17)
    values = generator.random(30) ** 2
    weights = generator.dirichlet(np.ones(31), 200_000)
    expected = np.quantile(weights @ np.append(values, 0), 0.025), np.quantile(weights @ np.append(values, 1), 0.975)
    assert bounded_mean_interval(values, SHARE) == pytest.approx(expected, abs=0.001)


def test_groups_are_the_units_of_the_bounded_interval():
    means = np.random.default_rng(18).random(25)
    copied = bounded_mean_interval(np.repeat(means, 4), SHARE, np.repeat(np.arange(25), 4))
    assert copied == pytest.approx(bounded_mean_interval(means, SHARE), abs=1e-9)


def test_a_loss_that_few_facts_have_is_allowed_for_by_those_of_whom_none_has_it():
    """3 % of facts drop by 0.8: half of the samples of 30 show none, and Student's interval would exclude the mean."""
    generator = np.random.default_rng(19)
    missed = 0
    for drops in generator.random((300, 50)) < 0.03:
        values = np.where(drops, -0.8, 0.0) + generator.normal(0, 0.01, 50)
        missed += bounded_mean_interval(values, (-1, 1))[0] > -0.024
    assert missed <= 0.025 * 300 + 3 * math.sqrt(300 * 0.025 * 0.975)


@pytest.mark.parametrize(
    ("named", "arrays", "settings"),
    [
        *(("level", [[1.0, 2.0]], {"level": level}) for level in (0.0, 1.0, -0.1, 95, math.nan)),
        *(("resamples", [[1.0, 2.0]], {"resamples": number}) for number in (0, -1)),
        *(("arrays", arrays, {}) for arrays in ([], [5.0], [[1.0, 2.0, 3.0], [1.0, 2.0]])),
        ("groups", [[1.0, 2.0, 3.0]], {"groups": ["a", "b"]}),
    ],
)
def test_arguments_that_make_no_sense_are_named(named, arrays, settings):
    with pytest.raises(ValueError, match=named):
        bootstrap(np.mean if len(arrays) < 2 else correlation, *arrays, **settings)
