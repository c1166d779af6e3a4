import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from robust_eval.stats.corrected_breaks import (
    LabelCounts,
    LabelledGrid,
    break_intervals,
    corrected_breaks,
    error_rate,
    label_counts,
)
from robust_eval.stats.correction import corrected_curve, corrected_mean, corrected_rate, labels_to_halve
from robust_eval.stats.estimate import with_interval
from robust_eval.stats.interval import SHARE, degenerate_interval

# ppi-python 0.2.3: ppi_mean_pointestimate(y[:n], v[:n], v[n:]) and ppi_mean_ci(…, alpha=0.05) of these draws
PPI = [
    (40, 400, 0.8, 0.9, 0.6, 0, 0.5258785363935512, 0.4047019581602508, 0.6470551146268516),
    (100, 900, 0.7, 0.95, 0.3, 1, 0.33653593728882286, 0.2671287140589453, 0.40594316051870044),
    (25, 60, 0.95, 0.7, 0.8, 2, 0.8701696000000001, 0.7450325786419865, 0.9953066213580137),
    (30, 30, 0.5, 0.5, 0.5, 3, 0.5346819047619047, 0.35645612747474476, 0.7129076820490646),
]


def drawn(n, others, sensitivity, specificity, p, seed):
    generator = np.random.Generator(np.random.PCG64(seed))
    right = (generator.random(n + others) < p).astype(float)
    sure = generator.random(n + others), generator.random(n + others)
    return right, np.where(right == 1, sure[0] < sensitivity, sure[1] > specificity).astype(float)


@pytest.mark.parametrize("case", PPI)
def test_means_of_independent_answers_are_those_of_ppi_python(case):
    n, others, *_, value, low, high = case
    right, verdicts = drawn(*case[:6])
    labels = np.where(np.arange(n + others) < n, right, np.nan)

    found = corrected_mean(verdicts, labels)

    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.high - found.low == pytest.approx(min(high, 1) - low, rel=0.08)  # Student's t, and n - 1 for n
    assert found.low <= low + 0.001


def test_all_answers_labelled_is_the_mean_of_the_labels_and_so_are_verdicts_that_say_nothing():
    labels = np.array([1, 0, 1, 1, 0, 0, 1, 1.0])
    half = np.where(np.arange(8) < 4, labels, np.nan)

    assert corrected_mean(1 - labels, labels).value == labels.mean()
    assert corrected_mean(np.ones(8), half).value == 0.75


def test_labels_drawn_by_verdict_are_unbiased_with_their_weights():
    right, verdicts = np.array([1, 0, 1, 1, 0, 1, 0, 0.0]), np.array([1, 1, 1, 1, 0, 0, 0, 0.0])
    called = [np.flatnonzero(verdicts == verdict) for verdict in (1, 0)]
    estimates, plain = [], []
    for one in combinations(called[0], 3):
        for other in combinations(called[1], 1):
            chosen = [*one, *other]
            labels = np.full(8, np.nan)
            labels[chosen] = right[chosen]
            weights = np.where(verdicts == 1, 4 / 3, 4.0)
            estimates.append(corrected_mean(verdicts, labels, weights=weights).value)
            plain.append(corrected_mean(verdicts, labels).value)

    # every draw has the weighted share of verdicts of all answers: the estimate is the stratified mean
    assert np.mean(estimates) == pytest.approx(right.mean(), abs=1e-12)
    assert abs(np.mean(plain) - right.mean()) > 0.03


def test_answers_to_one_question_count_once():
    verdicts, labels = np.tile([1, 0, 1, 0.0, 1, 1], 1), np.array([1, 0, 0, 0, 1, math.nan])
    once = corrected_mean(verdicts, labels, questions=np.arange(6))
    tenfold = corrected_mean(np.repeat(verdicts, 10), np.repeat(labels, 10), questions=np.repeat(np.arange(6), 10))

    assert tenfold.value == pytest.approx(once.value, abs=0.02)
    assert tenfold.high - tenfold.low == pytest.approx(once.high - once.low, rel=0.05)


def test_strata_enter_by_their_share_and_few_labels_are_pooled():
    generator = np.random.default_rng(0)
    strata = np.repeat([0.2, 1.0, 2.0], [300, 100, 100])
    right = (generator.random(500) < np.where(strata == 0.2, 0.9, 0.2)).astype(float)
    labels = np.full(500, np.nan)
    labels[:30], labels[300:330], labels[400:405] = right[:30], right[300:330], right[400:405]

    by_labels = corrected_mean(np.zeros(500), labels, strata)  # verdicts that say nothing
    assert by_labels.value == pytest.approx(0.6 * right[:30].mean() + 0.4 * np.nanmean(labels[300:]), abs=1e-12)

    verdicts = np.where(generator.random(500) < 0.9, right, 1 - right)
    found = corrected_mean(verdicts, labels, strata)
    low, rest = (corrected_mean(verdicts[part], labels[part]) for part in (slice(0, 300), slice(300, 500)))
    assert found.value == pytest.approx(0.6 * low.value + 0.4 * rest.value, abs=0.005)  # one λ, not one of each


def test_strata_with_few_labels_each_leave_the_mean_unbiased_and_its_interval_honest():
    generator, grid = np.random.default_rng(1), np.linspace(0.2, 2, 10)
    strata, p = np.tile(grid, 200), 1 / (1 + np.exp(2.5 * (grid - 1.6)))
    truth, found = float(p.mean()), []
    for _ in range(400):
        right = generator.random((200, 10)) < p
        agrees = generator.random((200, 10)) < np.linspace(0.95, 0.7, 10)
        labels = np.where(np.arange(200)[:, None] < 20, right, np.nan)
        found.append(corrected_mean((right == agrees).ravel(), labels.ravel(), strata))
    values, low, high = np.array(found).T

    assert values.mean() == pytest.approx(truth, abs=3 * values.std() / 20)
    assert np.mean((low <= truth) & (truth <= high)) >= 0.93


def test_missing_verdicts_leave_the_denominator():
    verdicts, labels = np.array([1, 0, math.nan, 1, 0]), np.array([1, 0, 1, math.nan, 1])
    kept = [0, 1, 3, 4]

    assert corrected_mean(verdicts, labels) == corrected_mean(verdicts[kept], labels[kept])


def test_labels_that_all_agree_with_the_verdicts_still_have_an_interval():
    verdicts = np.array([1.0] * 30)
    found = corrected_mean(verdicts, np.where(np.arange(30) < 10, 1, np.nan))

    assert found.value == found.high == 1
    assert found.low == pytest.approx(0.025 ** (1 / 10))  # Clopper and Pearson, of ten


def test_questions_whose_labels_are_alike_on_the_whole_still_have_an_interval():
    found = corrected_mean([1, 0, 0, 1], [1, 0, 1, 0], questions=[0, 0, 1, 1])
    assert found == pytest.approx((0.5, *degenerate_interval(0.5, 2, SHARE)))


def test_no_label_is_no_estimate():
    assert all(map(math.isnan, corrected_mean([1, 0], [math.nan, math.nan])))
    assert all(math.isnan(value) for value in corrected_curve([1, 0], [math.nan] * 2, [0.2, 0.4])[0.2])


def test_a_curve_with_enough_labels_is_the_mean_of_each_temperature():
    generator = np.random.default_rng(4)
    temperatures = np.tile([0.2, 1.0], 200)
    right = (generator.random(400) < np.where(temperatures < 1, 0.8, 0.4)).astype(float)
    verdicts = np.where(generator.random(400) < 0.85, right, 1 - right)
    labels = np.where(np.arange(400) < 100, right, np.nan)
    found = corrected_curve(verdicts, labels, temperatures)

    own = temperatures == 0.2
    alone = corrected_mean(verdicts[own], labels[own])
    assert found[0.2].value == alone.value
    assert found[0.2][1:] == pytest.approx(alone[1:], abs=0.001)  # n / (n - 1) for the other number of questions
    assert set(found) == {0.2, 1.0}


def test_a_curve_of_few_labels_holds_the_truth_where_errors_change_with_the_temperature():
    """Sixty labels at ten temperatures; the judge is right in 95 % of cases at first, and in 65 % in the end."""
    generator, grid = np.random.default_rng(0), np.arange(10) / 9
    chance, rate = 0.95 - 0.85 * grid, 0.95 - 0.3 * grid
    temperatures, questions = np.tile(grid, 200), np.repeat(np.arange(200), 10)
    held = np.zeros(10)
    for _ in range(60):
        right = (generator.random((200, 10)) < chance).astype(float)
        verdicts = np.where(generator.random((200, 10)) < rate, right, 1 - right).ravel()
        labels = np.full(2000, np.nan)
        chosen = generator.choice(2000, 60, replace=False)
        labels[chosen] = right.ravel()[chosen]
        curve = corrected_curve(verdicts, labels, temperatures, questions=questions)
        held += [curve[t].low <= truth <= curve[t].high for t, truth in zip(grid, chance, strict=True)]
    assert held.min() / 60 >= 0.85  # 0.67 at the first one by labels of neighbours as they are


def test_three_labels_and_a_line_leave_no_interval():
    labels = np.array([1, 0, 1, *[math.nan] * 9])
    curve = corrected_curve(np.tile([1, 0, 0, 1], 3), labels, np.tile([0.2, 0.4, 0.6], 4))
    assert all(0 <= found.value <= 1 and math.isnan(found.low) for found in curve.values())


def test_rogan_gladen():
    assert corrected_rate(0.5, 0.9, 0.8) == pytest.approx(0.3 / 0.7)
    assert np.array_equal(corrected_rate([0.0, 1.0], 0.9, 0.8), [0, 1])
    assert [math.isnan(corrected_rate(0.5, se, 0.6)) for se in (0.55, 0.6)] == [True, False]


def test_rates_of_error_are_shares_where_labels_suffice_and_a_logistic_fit_elsewhere():
    grid = np.array([0.2, 1.0, 1.8])
    assert error_rate(np.array([18.0, 16, 10]), np.full(3, 20.0), grid).tolist() == [0.9, 0.8, 0.5]

    def minus_posterior(parameters):  # maximised by somebody else
        x = (grid - 1) / max(0.8, 1)
        p = 1 / (1 + np.exp(-parameters[0] - parameters[1] * x))
        wrong, of = np.array([3.25, 6, 5.25]), np.array([4.5, 8, 8.5])
        return -(wrong * np.log(p) + (of - wrong) * np.log(1 - p)).sum() + parameters[1] ** 2 / (2 * 0.25)

    level, slope = minimize(minus_posterior, [0, 0], tol=1e-12).x
    expected = 1 / (1 + np.exp(-level - slope * (grid - 1)))
    found = error_rate(np.array([3.0, 6, 5]), np.array([4.0, 8, 8]), grid)
    assert found == pytest.approx(expected, abs=1e-5)
    assert np.isnan(error_rate(np.zeros(3), np.zeros(3), grid)).all()


def test_breaks_of_a_perfect_judge_are_those_of_the_trials():
    right = np.array([[10, 5, 4], [10, 9, 8], [10, 3, 10.0]])
    labels = np.repeat([1.0, 0.0], 90)
    rows, columns = np.tile(np.arange(3), 60), np.tile(np.repeat(np.arange(3), 20), 3)
    counts = label_counts(labels, labels, rows, columns, np.ones(180), (3, 3))
    found = corrected_breaks(LabelledGrid(right, np.full((3, 3), 10.0), np.array([0.2, 0.4, 0.6]), counts))

    assert found.tolist() == [0.6, math.inf, 0.4]


def test_breaks_are_unknown_where_verdicts_say_too_little():
    labels, verdicts = np.tile([1.0, 0.0], 100), np.tile([1.0, 1.0, 0.0, 0.0], 50)
    rows, columns = np.zeros(200, int), np.repeat([0, 1], 100)
    counts = label_counts(verdicts, labels, rows, columns, np.ones(200), (1, 2))

    grid = LabelledGrid(np.array([[10.0, 5]]), np.array([[10.0, 10]]), np.array([0.2, 0.4]), counts)
    assert np.isnan(corrected_breaks(grid)).all()


def test_a_judge_that_errs_about_alike_both_ways_is_not_told_from_one_that_errs_alike():
    """Of all answers together its sensitivity is 0.91 and its specificity 0.74: right ones are those of low
    temperatures, where it errs less. At each temperature the two differ by chance.
    """
    right, wrong = np.array([[90.0, 60, 30, 10]]), np.array([[10.0, 40, 70, 90]])
    labels = LabelCounts(np.array([[88.0, 54, 24, 7]]), right, np.array([[9.0, 35, 52, 60]]), wrong)
    rates = labels.rates(np.array([0.2, 0.4, 0.6, 0.8]))
    assert rates.sensitivity.tolist() == rates.specificity.tolist()
    assert (np.diff(rates.sensitivity) < 0).all()


def test_a_judge_that_likes_to_say_right_keeps_most_of_what_tells_it():
    right, wrong = np.full((1, 4), 50.0), np.full((1, 4), 50.0)
    labels = LabelCounts(0.9 * right, right, 0.7 * wrong, wrong)
    rates = labels.rates(np.array([0.2, 0.4, 0.6, 0.8]))
    noise = (0.9 * 0.1 + 0.7 * 0.3) / 200
    kept = 0.2 * (1 - noise / 0.2**2)
    assert rates.sensitivity - rates.specificity == pytest.approx([kept] * 4, rel=1e-6)


def test_intervals_of_breaks_hold_labels_questions_and_trials():
    generator = np.random.default_rng(0)
    trials = (generator.random((40, 4, 10)) < np.array([0.9, 0.7, 0.45, 0.1])[:, None]).astype(float)
    right, replies = trials.sum(axis=2), np.full((40, 4), 10.0)

    def interval(labels):
        truth = generator.random(labels) < 0.5
        verdicts = np.where(generator.random(labels) < 0.85, truth, ~truth).astype(float)
        rows, columns = generator.integers(40, size=labels), generator.integers(4, size=labels)
        counts = label_counts(verdicts, truth.astype(float), rows, columns, np.ones(labels), (40, 4))
        labelled = LabelledGrid(right, replies, np.array([0.2, 0.4, 0.6, 0.8]), counts)
        return break_intervals(mean, labelled, np.arange(40), trials, resamples=200)[0]

    def mean(breaking, chosen):
        return [float(np.mean(np.where(np.isinf(breaking), 1.0, breaking)))]

    few, many = interval(60), interval(3000)
    assert few.low < few.value < few.high
    assert few.high - few.low > many.high - many.low > 0


def without_errors(right):
    """Ten trials of each question at each temperature, so many of them right, by a judge that never errs."""
    right = np.asarray(right, dtype=float)
    labels, grid = LabelCounts(*[np.full(right.shape, 1000.0)] * 4), 0.2 * np.arange(1, right.shape[1] + 1)
    return LabelledGrid(right, np.full(right.shape, 10.0), grid, labels)


def unbroken_in_some_resamples(at_the_end):
    """Facts that all break at 0.8, or hold, by so many right trials of ten there, and the interval of their median."""
    labelled = without_errors([[10, 10, 10, at_the_end]])
    trials = (np.arange(10) < labelled.right[..., None]).astype(float)
    return break_intervals(lambda breaking, _: [float(np.median(breaking))], labelled, [0], trials, resamples=200)[0]


def test_a_median_of_which_some_resamples_are_unbroken_has_no_upper_end():
    found = unbroken_in_some_resamples(at_the_end=3.0)  # five of ten or more in 15 % of resamples
    assert found == (pytest.approx(0.8), pytest.approx(0.8), math.inf)
    assert with_interval(found, ".1f") == "0.8 (0.8 to unbroken)"
    assert math.isnan(labels_to_halve(100, found.high - found.low, 0.1))


def test_a_median_that_is_unbroken_has_a_lower_end_and_no_width_is_no_interval():
    assert unbroken_in_some_resamples(at_the_end=6.0) == (math.inf, pytest.approx(0.8), math.inf)
    assert np.isnan(unbroken_in_some_resamples(at_the_end=10.0)[1:]).all()
    assert np.isnan(unbroken_in_some_resamples(at_the_end=0.0)[1:]).all()


def test_an_interval_of_breaks_holds_the_value_though_all_resamples_lie_on_one_side_of_it():
    labelled = without_errors(np.full((9, 1), 10))
    (found,) = break_intervals(lambda _, chosen: [len(set(chosen.tolist())) / 9], labelled, np.arange(9), resamples=50)
    assert (found.value, found.low) == (1, 1)
    assert found.high > 1


def test_trials_that_are_alike_at_all_temperatures_are_resampled_whole():
    """One fact whose trials are right everywhere or nowhere holds or breaks as a whole, so that its break is unsure."""
    alike = np.repeat((np.arange(10) < 6).astype(float)[None, None], 6, axis=1)
    draws: list[float] = []

    def kept(breaking: np.ndarray, chosen: np.ndarray) -> list[float]:
        draws.append(float(np.isinf(breaking).mean()))
        return draws[-1:]

    break_intervals(kept, without_errors(alike.sum(axis=2)), [0], alike, resamples=200)
    assert np.mean(draws[:-1]) == pytest.approx(stats.binom.sf(4, 10, 0.6), abs=0.07)  # drawn apart: to the power of 6


def test_labels_that_halve_an_interval():
    assert labels_to_halve(100, 0.2, 0.0) == 400
    assert labels_to_halve(100, 0.2, 0.08) == 934  # 100 (0.04 - 0.0064) / (0.01 - 0.0064), rounded up
    assert labels_to_halve(100, 0.2, 0.1) == math.inf
