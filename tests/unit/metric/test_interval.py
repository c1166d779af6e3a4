import math

import numpy as np
import pytest
from scipy import stats

from robust_eval.metric import interval
from robust_eval.metric.interval import (
    MANY,
    SHARE,
    UNKNOWN,
    alike_interval,
    bootstrap,
    bootstrap_draws,
    independent,
    mean_draws,
    mean_interval,
)


def mean_without_axis(values):
    return values.mean(axis=0)


def mean_unless_all_zero(values, axis=0):
    """Undefined (NaN) in a resample that holds nothing but zeros."""
    return np.where((values == 0).all(axis=axis), np.nan, values.mean(axis=axis))


def correlation(x, y):
    return stats.pearsonr(x, y).statistic


def test_the_interval_of_a_mean_is_that_of_the_normal_approximation_on_a_large_sample():
    sample = np.random.default_rng(1).normal(3.0, 2.0, size=1000)
    low, high = bootstrap(np.mean, sample, resamples=10_000)
    error = sample.std(ddof=1) / math.sqrt(len(sample))
    expected = stats.norm.interval(0.95, loc=sample.mean(), scale=error)
    assert (low, high) == pytest.approx(expected, abs=0.1 * error)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_the_level_sets_the_width(level):
    sample = np.random.default_rng(2).normal(size=500)
    low, high = bootstrap(np.mean, sample, level=level, resamples=10_000)
    error = sample.std(ddof=1) / math.sqrt(len(sample))
    assert (low, high) == pytest.approx(stats.norm.interval(level, sample.mean(), error), abs=0.15 * error)


@pytest.mark.parametrize("statistic", [np.mean, np.median, np.std])
def test_the_interval_is_the_percentile_interval_of_scipy(statistic):
    sample = np.random.default_rng(3).exponential(size=401)
    expected = stats.bootstrap(
        (sample,), statistic, n_resamples=10_000, batch=1000, method="percentile", rng=np.random.default_rng(4)
    ).confidence_interval
    low, high = bootstrap(statistic, sample, resamples=10_000)
    assert (low, high) == pytest.approx(tuple(expected), abs=0.04 * (expected.high - expected.low))


def test_the_interval_of_a_correlation_is_that_of_scipy():
    generator = np.random.default_rng(5)
    x = generator.normal(size=150)
    y = x + generator.normal(size=150)
    expected = stats.bootstrap(
        (x, y), correlation, paired=True, vectorized=False, n_resamples=2000, method="percentile", rng=generator
    ).confidence_interval
    low, high = bootstrap(correlation, x, y, resamples=2000)
    assert (low, high) == pytest.approx(tuple(expected), abs=0.1 * (expected.high - expected.low))


@pytest.mark.parametrize("groups", [None, np.arange(400)])
def test_resamples_that_are_drawn_in_many_parts_are_as_many_and_as_different(groups, monkeypatch):
    monkeypatch.setattr(interval, "_PART", 2**14)  # 40 resamples
    sample = np.random.default_rng(5).normal(size=400)
    draws = bootstrap_draws(np.mean, sample, groups=groups, seed=1, resamples=4001)
    assert draws.shape == (4001,)
    assert len(set(draws)) == 4001
    error = sample.std() / math.sqrt(len(sample))  # of the mean of a resample, exactly
    assert draws.mean() == pytest.approx(sample.mean(), abs=4.5 * error / math.sqrt(4001))
    assert draws.std() == pytest.approx(error, rel=4.5 / math.sqrt(2 * 4001))


def test_an_interval_of_two_questions_can_be_counted():
    # four resamples of (0, 1), equally likely, have the means 0, 1/2, 1/2, 1
    assert bootstrap(np.mean, [0.0, 1.0]) == (0.0, 1.0)
    assert bootstrap(np.mean, [0.0, 1.0], level=0.4) == (0.5, 0.5)


def test_one_question_has_an_interval_without_width():
    assert bootstrap(np.mean, [0.7]) == (0.7, 0.7)


@pytest.mark.parametrize("groups", [None, np.arange(5000) // 2])
def test_a_statistic_with_axis_gives_the_interval_of_the_same_statistic_without(groups):
    sample = np.random.default_rng(6).normal(size=5000)  # so large that the resamples come in more than one block
    with_axis = bootstrap(np.mean, sample, groups=groups, seed=7, resamples=1000)
    without = bootstrap(mean_without_axis, sample, groups=groups, seed=7, resamples=1000)
    assert with_axis == pytest.approx(without, rel=1e-12)


@pytest.mark.parametrize("groups", [None, np.arange(60) // 3])
def test_several_arrays_are_resampled_together(groups):
    x = np.random.default_rng(8).normal(size=60)

    def mean_difference(first, second, axis=0):
        return (first - second).mean(axis=axis)

    assert bootstrap(mean_difference, x, x - 3.0, groups=groups) == pytest.approx((3.0, 3.0), abs=1e-12)
    assert bootstrap(correlation, x, 2 * x, groups=groups, resamples=50) == pytest.approx((1.0, 1.0), abs=1e-12)


def test_the_interval_of_groups_of_copies_is_that_of_the_group_means():
    means = np.random.default_rng(9).normal(size=40)
    questions, groups = np.repeat(means, 5), np.repeat(np.arange(40), 5)
    grouped = bootstrap(np.mean, questions, groups=groups, seed=1, resamples=10_000)
    of_means = bootstrap(np.mean, means, seed=2, resamples=10_000)
    ungrouped = bootstrap(np.mean, questions, seed=3, resamples=10_000)
    width = of_means[1] - of_means[0]
    assert grouped == pytest.approx(of_means, abs=0.04 * width)
    assert ungrouped[1] - ungrouped[0] == pytest.approx(width / math.sqrt(5), rel=0.06)


def test_groups_need_not_lie_together_nor_be_of_one_size():
    # two groups, {0, 0, 0} and {1}, drawn twice: means 0, 1/4 (twice as likely), 1
    values, groups = [0.0, 1.0, 0.0, 0.0], ["a", "b", "a", "a"]
    assert bootstrap(np.mean, values, groups=groups) == (0.0, 1.0)
    assert bootstrap(np.mean, values, groups=groups, level=0.4) == (0.25, 0.25)


def test_groups_of_one_question_change_nothing_but_the_draw():
    sample = np.random.default_rng(10).normal(size=200)
    plain = bootstrap(np.mean, sample, resamples=10_000)
    grouped = bootstrap(np.mean, sample, groups=[f"q{index}" for index in range(200)], seed=1, resamples=10_000)
    assert grouped == pytest.approx(plain, abs=0.04 * (plain[1] - plain[0]))


def test_one_group_alone_has_an_interval_without_width():
    assert bootstrap(np.mean, [0.0, 1.0, 5.0], groups=["a", "a", "a"]) == (2.0, 2.0)


@pytest.mark.parametrize("groups", [None, np.arange(50) // 2])
def test_the_seed_alone_decides_the_resamples(groups):
    sample = np.random.default_rng(11).normal(size=50)
    first = bootstrap(np.mean, sample, groups=groups, seed=5)
    assert bootstrap(np.mean, sample, groups=groups, seed=5) == first
    assert bootstrap(np.mean, sample, groups=groups, seed=6) != first


@pytest.mark.parametrize("statistic", [np.mean, mean_without_axis])
@pytest.mark.parametrize("groups", [None, np.arange(30) // 3])
def test_each_column_of_a_table_has_the_interval_that_it_has_alone(statistic, groups):
    table = np.random.default_rng(12).normal(size=(30, 4))
    low, high = bootstrap(statistic, table, groups=groups, seed=3)
    alone = [bootstrap(statistic, column, groups=groups, seed=3) for column in table.T]
    assert low.shape == high.shape == (4,)
    np.testing.assert_allclose(np.column_stack([low, high]), alone, rtol=1e-12)


@pytest.mark.parametrize("groups", [None, ["a", "b"]])
def test_undefined_resamples_are_left_out(groups):
    # of the resamples of (0, 1), one in four is undefined; the others have the means 1/2, 1/2, 1
    assert bootstrap(mean_unless_all_zero, [0.0, 1.0], groups=groups) == (0.5, 1.0)


def test_an_interval_is_undefined_where_every_resample_is():
    low, high = bootstrap(mean_unless_all_zero, [0.0, 0.0, 0.0])
    assert math.isnan(low)
    assert math.isnan(high)


def test_undefined_resamples_of_one_column_leave_the_others_alone():
    table = np.column_stack([[0.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
    low, high = bootstrap(mean_unless_all_zero, table)
    np.testing.assert_array_equal(low, [0.5, np.nan, 1.0])
    np.testing.assert_array_equal(high, [1.0, np.nan, 2.0])


def test_no_questions_have_no_interval():
    low, high = bootstrap(np.mean, [])
    assert math.isnan(low)
    assert math.isnan(high)


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    generator = np.random.default_rng(13)
    covered = 0
    for seed in range(300):
        low, high = bootstrap(np.mean, generator.normal(2.0, 1.0, size=60), seed=seed, resamples=400)
        covered += low <= 2.0 <= high
    assert 0.90 <= covered / 300 <= 0.98


def test_only_the_interval_over_groups_covers_where_questions_of_a_group_are_alike():
    generator = np.random.default_rng(14)
    groups = np.repeat(np.arange(30), 6)
    covered = {"groups": 0, "questions": 0}
    for seed in range(200):
        sample = np.repeat(generator.normal(size=30), 6) + 0.3 * generator.normal(size=180)
        low, high = bootstrap(np.mean, sample, groups=groups, seed=seed, resamples=200)
        covered["groups"] += low <= 0 <= high
        low, high = bootstrap(np.mean, sample, seed=seed, resamples=200)
        covered["questions"] += low <= 0 <= high
    assert 0.88 <= covered["groups"] / 200 <= 0.98
    assert covered["questions"] / 200 < 0.75


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95, math.nan])
def test_a_level_outside_0_to_1_is_refused(level):
    with pytest.raises(ValueError, match="level"):
        bootstrap(np.mean, [1.0, 2.0], level=level)


def test_at_least_one_array_is_needed():
    with pytest.raises(ValueError, match="arrays"):
        bootstrap(np.mean)


def test_arrays_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"arrays.*\[3, 2\]"):
        bootstrap(correlation, [1.0, 2.0, 3.0], [1.0, 2.0])


def test_a_single_number_is_no_array():
    with pytest.raises(ValueError, match="arrays"):
        bootstrap(np.mean, 5.0)


def test_each_question_needs_one_group_label():
    with pytest.raises(ValueError, match="groups"):
        bootstrap(np.mean, [1.0, 2.0, 3.0], groups=["a", "b"])


@pytest.mark.parametrize("resamples", [0, -1])
def test_at_least_one_resample_is_needed(resamples):
    with pytest.raises(ValueError, match="resamples"):
        bootstrap(np.mean, [1.0, 2.0, 3.0], resamples=resamples)


SHARES = [0.002, 0.02, 0.1, 0.3, 0.7]
"""Of questions that differ from the others."""


@pytest.mark.parametrize("n", [1, 5, 29, 30, 200, 6000])
def test_the_exact_interval_of_zeros_and_of_ones_is_that_of_clopper_and_pearson(n):
    most = 1 - 0.025 ** (1 / n)
    assert alike_interval(0.0, n, SHARE) == pytest.approx((0, most), rel=1e-9)
    assert alike_interval(1.0, n, SHARE) == pytest.approx((1 - most, 1), rel=1e-9)
    assert alike_interval(0.0, n, (0, 1.609)) == pytest.approx((0, 1.609 * most), rel=1e-9)
    assert alike_interval(0.65, n, (-1, 1)) == pytest.approx((0.65 - 1.65 * most, 0.65 + 0.35 * most), rel=1e-9)


@pytest.mark.parametrize("other", [0.0, 0.4, 0.66, 1.0])
@pytest.mark.parametrize("differing", SHARES)
def test_intervals_of_questions_that_may_all_be_alike_cover_as_often_as_they_say(other, differing):
    """Most questions are worth 0.65, some something else: the mean is missed by less than 2.5 % of the samples that are
    all alike; the bootstrap's interval, which had no width, missed it by all of them.
    """
    generator = np.random.default_rng(13)
    mean = 0.65 + differing * (other - 0.65)
    missed = 0
    for differ in generator.random((400, 12)) < differing:
        if not differ.any():
            low, high = mean_interval(np.full(12, 0.65), SHARE)
            missed += not low <= mean <= high
    assert missed <= 0.025 * 400 + 3 * math.sqrt(400 * 0.025 * 0.975)


def test_a_mean_over_questions_that_are_not_alike_has_the_interval_of_the_bootstrap():
    sample = np.random.default_rng(14).random(50)
    groups = np.arange(50) // 5
    for labels in (None, groups):
        expected = bootstrap(np.mean, sample, groups=labels, seed=3)
        assert mean_interval(sample, SHARE, labels, seed=3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("number", [1, 7, 1000, 1001])
def test_means_of_resamples_are_those_of_the_bootstrap_however_they_are_computed(number: int):
    sample = np.random.default_rng(15).normal(size=number)
    for seed in (0, 3):
        expected = bootstrap_draws(np.mean, sample, seed=seed, resamples=200)
        np.testing.assert_allclose(mean_draws(sample, seed=seed, resamples=200), expected, atol=1e-13)


def test_what_differs_by_rounding_is_alike():
    sample = 0.6545 + 1e-16 * np.arange(30)
    assert mean_interval(sample, SHARE) == pytest.approx(alike_interval(0.6545, 30, SHARE), rel=1e-12)
    assert mean_interval(np.array([1 + 2e-16] * 5), SHARE) == alike_interval(1.0, 5, SHARE)


def test_groups_whose_means_are_alike_are_as_many_questions():
    values, groups = [0.0, 1.0, 1.0, 0.0, 0.5], ["a", "a", "b", "b", "c"]
    assert mean_interval(np.array(values), SHARE, groups) == alike_interval(0.5, 3, SHARE)
    assert mean_interval(np.array([0.0, 1.0, 1.0]), SHARE, ["a"] * 3) == alike_interval(2 / 3, 1, SHARE)


def test_questions_that_are_alike_have_no_interval_where_their_limits_are_not_known_or_leave_no_choice():
    for limits in (UNKNOWN, (0, math.inf), (0.7, 0.7)):
        assert all(math.isnan(bound) for bound in mean_interval(np.full(9, 0.7), limits))
    assert all(math.isnan(bound) for bound in mean_interval(np.zeros(0), SHARE))


def test_a_value_outside_of_its_limits_is_refused():
    with pytest.raises(ValueError, match=r"^value: 1\.2 lies outside of its limits, 0 to 1$"):
        mean_interval(np.full(3, 1.2), SHARE)


@pytest.mark.parametrize("kind", ["even", "skewed", "of few values", "of rare values"])
def test_resampled_means_of_many_questions_are_distributed_as_if_they_were_drawn(kind):
    random = np.random.default_rng(5)
    values = {
        "even": random.random(MANY),
        "skewed": random.exponential(size=MANY),
        "of few values": random.integers(0, 5, MANY) / 4,
        "of rare values": (np.arange(MANY) < 3).astype(float),
    }[kind]
    expected = bootstrap_draws(np.mean, values, seed=1, resamples=6000)
    found = mean_draws(values, seed=2, resamples=6000)
    assert stats.ks_2samp(found, expected).pvalue > 0.01
    assert stats.skew(found) == pytest.approx(stats.skew(values) / math.sqrt(MANY), abs=0.1)


def test_means_of_few_of_groups_and_of_skewed_values_are_drawn_by_resampling():
    random = np.random.default_rng(0)
    groups = np.arange(MANY) // 50
    skewed = random.random(MANY) ** 300
    for values, labels in ((random.random(MANY - 1), None), (random.random(MANY), groups), (skewed, None)):
        expected = bootstrap_draws(np.mean, values, groups=labels, seed=3, resamples=20)
        assert mean_draws(values, labels, seed=3, resamples=20).tolist() == expected.tolist()


def test_groups_are_the_independent_units():
    assert (independent(4, None), independent(4, ["a", "b", "a", "c"])) == (4, 3)
