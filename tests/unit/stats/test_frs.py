import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from facts_by_hand import curves, exact_score
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases
from scipy import stats

from robust_eval.metric.frs_tables import crossings
from robust_eval.stats.frs import (
    breaking_temperature,
    crossing_temperature,
    factual_robustness_score,
    settled,
    top_entropy,
)
from robust_eval.stats.interval import NORMAL_95

NAN, INF = math.nan, math.inf
PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)
PAPER_GRID = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
PAPER_D = [1, 2, 5, 10, 50]
DISTRIBUTIONS = st.lists(st.integers(0, 100), min_size=1, max_size=20).filter(any)


# top_entropy


@PROPERTY
@given(DISTRIBUTIONS, st.integers(3, 12))
def test_top_entropy_is_that_of_the_k_largest_divided_by_their_sum_or_as_they_are(weights, k):
    probabilities = np.array(weights) / sum(weights)
    as_they_are = -math.fsum(p * math.log(p, k) for p in sorted(probabilities)[-k:] if p > 0)
    values = top_entropy(probabilities, k), top_entropy(probabilities, k, renormalize=False)
    assert values == pytest.approx((stats.entropy(sorted(weights)[-k:], base=k), as_they_are), abs=1e-12)
    assert all(0.0 <= value <= 1.0 for value in values)


def test_a_certain_token_has_entropy_0_and_not_minus_0():
    value = top_entropy([0.0, 1.0, 0.0])
    assert value == 0.0
    assert math.copysign(1.0, value) == 1.0


def test_every_distribution_of_an_array_is_scored_alone():
    probabilities = np.random.default_rng(0).dirichlet(np.full(15, 0.3), size=(2, 3))
    expected = [[stats.entropy(np.sort(row)[-4:], base=4) for row in rows] for rows in probabilities]
    np.testing.assert_allclose(top_entropy(probabilities, k=4), expected, rtol=1e-12)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("k", [2, 10])
def test_an_undefined_probability_or_none_above_0_makes_its_own_distribution_undefined(k, renormalize):
    value = top_entropy([[0.5, 0.5, 0.0], [0.5, 0.5, np.nan], [0.0, 0.0, 0.0]], k, renormalize)
    np.testing.assert_allclose(value, [math.log(2, k), np.nan, np.nan], rtol=1e-12)


def test_a_probability_above_1_by_rounding_is_taken_as_1():
    assert top_entropy([1 + 1e-12, 0.0], renormalize=False) == 0.0


# breaking_temperature


@PROPERTY
@given(st.lists(st.lists(st.integers(0, 10), min_size=10, max_size=10), min_size=1, max_size=8))
def test_a_fact_breaks_where_less_than_half_of_its_trials_are_right(counts):
    expected = [
        next((t for t, correct in zip(PAPER_GRID, row, strict=True) if 2 * correct < 10), math.inf) for row in counts
    ]
    assert breaking_temperature(np.array(counts) / 10, PAPER_GRID).tolist() == expected


@pytest.mark.parametrize("correct", range(1, 11))
def test_a_tie_of_summed_weights_holds(correct):
    weight = sum([0.1] * correct)  # 0.7999999999999999 for eight of them
    fact = [[weight], [sum([0.1] * (correct - 1))]]
    assert breaking_temperature(fact, [1.0], threshold=correct / 10).tolist() == [np.inf, 1.0]


def test_an_accuracy_at_the_tolerance_of_exact_sums_holds():
    assert breaking_temperature([[0.5 - 1e-12], [0.5 - 1e-6]], [1.0]).tolist() == [np.inf, 1.0]


@pytest.mark.parametrize(("threshold", "expected"), [(1.0, 0.4), (0.9, 0.6), (0.6, 0.8), (0.3, 0.8), (0.2, np.inf)])
def test_the_threshold_decides_where_a_fact_breaks(threshold, expected):
    assert breaking_temperature([[1.0, 0.9, 0.6, 0.2]], [0.2, 0.4, 0.6, 0.8], threshold).tolist() == [expected]


@pytest.mark.parametrize("estimator", ["first", "isotonic"])
def test_a_missing_accuracy_leaves_the_break_unknown_only_where_it_comes_first(estimator):
    accuracy = [
        [np.nan, 0.9, 0.1],  # unknown before the break
        [1.0, np.nan, 0.1],
        [1.0, 0.2, np.nan],  # unknown after the break
        [0.9, 0.8, np.nan],  # unknown, and no break seen: never "unbroken"
        [np.nan, 0.9, 0.8],
        [np.nan, np.nan, np.nan],
    ]
    expected = [np.nan, np.nan, 0.4, np.nan, np.nan, np.nan]
    np.testing.assert_array_equal(breaking_temperature(accuracy, [0.2, 0.4, 0.6], estimator=estimator), expected)


def non_increasing_fit(values):
    """Least-squares non-increasing fit by the min-max formula (Robertson, Wright & Dykstra, 1988, Theorem 1.4.4)."""
    n = len(values)
    return [
        min(max(Fraction(sum(values[a : b + 1]), b + 1 - a) for b in range(i, n)) for a in range(i + 1))
        for i in range(n)
    ]


@PROPERTY
@given(st.lists(st.integers(0, 10), min_size=1, max_size=8))
def test_isotonic_breaks_where_the_least_squares_fit_does(counts):
    fit = non_increasing_fit(counts)
    expected = next((t for t, value in zip(PAPER_GRID, fit, strict=False) if value < 5), math.inf)
    found = breaking_temperature([np.array(counts) / 10], PAPER_GRID[: len(counts)], estimator="isotonic")
    assert found.tolist() == [expected]


def test_isotonic_passes_over_a_missing_accuracy():
    # the defined points 0.9, 0.2, 0.6 pool to 0.9, 0.4, 0.4: broken before the gap
    accuracy = [[0.9, 0.2, np.nan, 0.6]]
    assert breaking_temperature(accuracy, [0.2, 0.4, 0.6, 0.8], estimator="isotonic").tolist() == [0.4]


@pytest.mark.parametrize("estimator", ["first", "isotonic"])
def test_no_questions_have_no_breaking_temperatures(estimator):
    assert breaking_temperature(np.zeros((0, 3)), [0.2, 0.4, 0.6], estimator=estimator).shape == (0,)


# settled


def whatever_comes(right, wrong, outstanding, threshold):
    """What a temperature says after each way in which the outstanding trials may come right, wrong or not at all."""
    outcomes = set()
    for more_right in range(outstanding + 1):
        for more_wrong in range(outstanding + 1 - more_right):
            replies = right + more_right + wrong + more_wrong
            share = Fraction(right + more_right, replies) if replies else None
            outcomes.add("unknown" if share is None else "holds" if share >= threshold else "breaks")
    return outcomes


@pytest.mark.parametrize("threshold", [Fraction(1, 10), Fraction(3, 10), Fraction(1, 2), Fraction(2, 3), Fraction(1)])
def test_what_is_settled_is_what_every_completion_says(threshold):
    for right, wrong, outstanding in np.ndindex(9, 9, 9):
        outcomes = whatever_comes(right, wrong, outstanding, threshold)
        expected = outcomes.pop() if len(outcomes) == 1 else None
        assert settled(right, wrong, outstanding, float(threshold)) == expected, (right, wrong, outstanding)


@pytest.mark.parametrize("trials", [10, 30, 70, 1000, 10**7])
def test_a_tie_is_settled_whatever_the_rounding_of_the_threshold(trials):
    for tenths in range(1, 11):
        right = trials * tenths // 10
        threshold = sum([0.1] * tenths)  # 0.7999999999999999 for eight, 0.30000000000000004 for three
        assert settled(right, 0, trials - right, min(threshold, 1.0)) == "holds"
        assert settled(right - 1, trials - right + 1, 0, min(threshold, 1.0)) == "breaks"


# factual_robustness_score


@pytest.mark.parametrize(
    ("entropy", "temperature", "d", "expected"),
    [
        (Fraction(1, 2), 1, 1, Fraction(7, 11)),  # f = 1 − 1/4
        (Fraction(1, 2), 1, 2, Fraction(5, 9)),  # f = 1/2 − 1/4
        (0, 2, 1, Fraction(4, 5)),  # f = 3
        (1, Fraction(1, 5), 1, Fraction(1, 7)),  # f = −5/6
        (Fraction(1, 5), Fraction(3, 5), 2, Fraction(1899, 2899)),  # f = 0.64 · 1.6 − 0.125 = 0.899
        (Fraction(3, 10), Fraction(7, 5), 5, Fraction(1278368, 2278368)),  # f = 0.16807 · 2.4 − 0.125 = 0.278368
    ],
)
def test_hand_computed_scores(entropy, temperature, d, expected):
    assert exact_score(entropy, temperature, d) == expected
    found = factual_robustness_score(float(entropy), float(temperature), d)
    assert found == pytest.approx(float(expected), rel=1e-12)


@PROPERTY
@given(st.integers(0, 1000), st.integers(0, 400), st.sampled_from(PAPER_D))
def test_scores_equal_rational_arithmetic(thousandths, hundredths, d):
    expected = exact_score(Fraction(thousandths, 1000), Fraction(hundredths, 100), d)
    found = factual_robustness_score(thousandths / 1000, hundredths / 100, d)
    assert found == pytest.approx(float(expected), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("d", ["0.1", "0.5", "1.5"])
@pytest.mark.parametrize("entropy", ["0.05", "0.37", "0.9", "1"])
@pytest.mark.parametrize("temperature", ["0.2", "1.4"])
def test_a_fractional_d_equals_decimal_arithmetic(entropy, temperature, d):
    with localcontext() as context:
        context.prec = 40
        h, t = Decimal(entropy), Decimal(temperature)
        f = (1 - h) ** Decimal(d) * (t + 1) - h / (t + 1)
        expected = (f + 1) / (f + 2)
    found = factual_robustness_score(float(entropy), float(temperature), float(d))
    assert found == pytest.approx(float(expected), rel=1e-12)


@PROPERTY
@given(st.floats(0, 1), st.floats(0, 1e6), st.floats(0.01, 100), st.sampled_from(["one", "limit"]))
def test_scores_lie_between_0_and_1(entropy, temperature, d, unbroken):
    assert 0.0 <= factual_robustness_score(entropy, temperature, d, unbroken) <= 1.0


def test_an_unbroken_fact_scores_one_or_the_limit_of_the_formula():
    assert factual_robustness_score([0.0, 0.3, 1.0], np.inf, d=5).tolist() == [1.0, 1.0, 1.0]
    scores = factual_robustness_score([0.0, 0.3, 1.0], np.inf, d=5, unbroken="limit")
    assert scores.tolist() == [1.0, 1.0, 0.5]
    near = factual_robustness_score([0.0, 0.3, 1.0], 1e12, d=5, unbroken="limit")
    assert near == pytest.approx(scores, abs=1e-9)


@pytest.mark.parametrize("unbroken", ["one", "limit"])
def test_broken_facts_score_the_same_under_both_conventions(unbroken):
    scores = factual_robustness_score([0.0, 0.5, 1.0], [2.0, 1.0, 0.0], 1, unbroken)
    assert scores == pytest.approx([4 / 5, 7 / 11, 0.0], rel=1e-12)


@pytest.mark.parametrize("unbroken", ["one", "limit"])
def test_undefined_arguments_give_undefined_scores(unbroken):
    entropy = [np.nan, 0.5, np.nan, np.nan, 0.5]
    temperature = [1.0, np.nan, np.inf, np.nan, 1.0]
    np.testing.assert_allclose(
        factual_robustness_score(entropy, temperature, 1, unbroken), [np.nan] * 4 + [7 / 11], rtol=1e-12
    )


def test_entropy_and_breaking_temperature_broadcast():
    grid = factual_robustness_score(np.array([[0.0], [1.0]]), np.array([0.0, 1.0, np.inf]), 1)
    np.testing.assert_allclose(grid, [[2 / 3, 3 / 4, 1.0], [0.0, 1 / 3, 1.0]], rtol=1e-15)


CROSSING = settings(max_examples=100, deadline=None, database=None, derandomize=True)


def test_a_straight_line_is_followed_exactly():
    grid = [0.0, 0.3, 1.0, 2.0]
    line = [1 - t / 2 for t in grid]
    for threshold in (0.1, 0.4, 0.77):
        found = crossing_temperature(np.array(line), np.array(grid), threshold)
        assert found == pytest.approx(2 * (1 - threshold), abs=1e-9)


@pytest.mark.parametrize(("accuracy", "expected"), cases(__file__, "the_ends_of_curves"))
def test_the_ends_of_curves(accuracy, expected):
    assert crossing_temperature(np.array(accuracy), np.array([0.5, 1.0, 2.0]), 0.5) == expected


@CROSSING
@given(st.lists(st.integers(0, 100), min_size=2, max_size=10), st.integers(1, 99))
def test_the_crossing_lies_between_the_temperatures_that_hold_and_break(counts, threshold):
    accuracy, grid = np.array(counts) / 100, np.arange(len(counts)) + 1.0
    found = crossing_temperature(accuracy, grid, threshold / 100)
    below = [index for index, count in enumerate(counts) if count < threshold]
    if not below:
        assert found == math.inf
    elif below[0] == 0:
        assert found == 1
    else:
        assert grid[below[0] - 1] <= found <= grid[below[0]]


# crossings


def test_a_table_of_curves_gives_values_with_intervals():
    line = [1.0, 0.75, 0.5, 0.25, 0.0]
    grid = [0.0, 1.0, 2.0, 3.0, 4.0]
    error = 0.05 / NORMAL_95
    table = curves(
        ("sure", grid, line, [0.0] * 5),
        ("unsure", grid, [0.9, 0.7, 0.5, 0.3, 0.1], [error] * 5),
        ("holds", grid, [1.0, 0.9, 0.8, 0.7, 0.6], [0.0, 0.0, 0.0, 0.0, 0.2 / NORMAL_95]),
        ("one point", [1.0], [0.2], [0.0]),
    )
    found = crossings(["unsure", "holds", "sure", "nothing", "one point"], table, 0.5)
    # unsure: the curve ± 0.05 falls by 0.2 a step, so that it crosses 0.25 earlier or later
    assert found["value"] == pytest.approx([2.0, INF, 2.0, NAN, NAN], abs=1e-9, nan_ok=True)
    assert found["low"][[0, 2]] == pytest.approx([1.75, 2.0], abs=1e-9)
    assert found["high"] == pytest.approx([2.25, INF, 2.0, NAN, NAN], abs=1e-9, nan_ok=True)
    assert 3 < found["low"][1] < 4


def test_the_rows_of_a_table_may_come_in_any_order():
    falling = np.linspace(1, 0.1, 16)
    table = curves(("a", np.arange(16), falling, [0.02] * 16), ("b", np.arange(16), falling**2, [0.01] * 16))
    shuffled = table.take(np.random.default_rng(0).permutation(32))
    ordered, other = crossings(["a", "b"], table, 0.5), crossings(["a", "b"], shuffled, 0.5)
    assert {name: values.tolist() for name, values in ordered.items()} == {
        name: values.tolist() for name, values in other.items()
    }


@CROSSING
@given(
    st.lists(st.tuples(st.integers(-5, 105), st.integers(0, 20)), min_size=2, max_size=8),
    st.sampled_from([0.3, 0.5, 0.9]),
)
def test_an_interval_contains_its_value(points, threshold):
    accuracy, error = (np.array(column) / 100 for column in zip(*points, strict=True))
    found = crossings(["a"], curves(("a", np.arange(len(points)) + 0.5, accuracy, error)), threshold)
    assert found["low"][0] <= found["value"][0] + 1e-9
    assert found["value"][0] <= found["high"][0] + 1e-9


def test_accuracies_beyond_0_and_1_count_as_these():
    beyond = curves(("a", [1.0, 2.0, 3.0], [1.2, 1.1, -0.1], [0.0] * 3))
    limited = crossing_temperature(np.array([1.0, 1.0, 0.0]), np.array([1.0, 2.0, 3.0]), 0.5)
    assert crossings(["a"], beyond, 0.5)["value"].tolist() == [limited]


def test_a_question_without_a_right_answer_has_no_crossing():
    unknown = curves(("q", [0.5, 1.0], [NAN, NAN], [0.0, 0.0]))
    assert all(np.isnan(values).all() for values in crossings(["q"], unknown, 0.5).values())
