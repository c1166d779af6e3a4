import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.metric.frs import (
    FactualRobustness,
    breaking_temperature,
    certainty_bins,
    entropy_against_breaking,
    factual_robustness_score,
    top_entropy,
    type_shares,
)
from robust_eval.metric.score import Measured
from robust_eval.question import Question

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)
PAPER_GRID = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
PAPER_D = [1, 2, 5, 10, 50]
DISTRIBUTIONS = st.lists(st.integers(0, 100), min_size=1, max_size=20).filter(any)


# top_entropy


def shannon(probabilities, base):
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0) / math.log(base)


@PROPERTY
@given(DISTRIBUTIONS, st.integers(2, 12))
def test_renormalised_top_entropy_is_the_entropy_of_the_k_largest(weights, k):
    probabilities = np.array(weights) / sum(weights)
    expected = stats.entropy(sorted(weights)[-k:], base=k)  # scipy divides by the sum
    assert top_entropy(probabilities, k) == pytest.approx(expected, abs=1e-12)


@PROPERTY
@given(DISTRIBUTIONS, st.integers(3, 12))
def test_top_entropy_without_renormalisation_takes_the_k_largest_as_they_are(weights, k):
    probabilities = np.array(weights) / sum(weights)
    expected = shannon(sorted(probabilities)[-k:], base=k)
    assert top_entropy(probabilities, k, renormalize=False) == pytest.approx(expected, abs=1e-12)


@PROPERTY
@given(DISTRIBUTIONS, st.integers(2, 12), st.booleans())
def test_top_entropy_lies_between_0_and_1_exactly(weights, k, renormalize):
    value = top_entropy(np.array(weights) / sum(weights), k, renormalize)
    assert 0.0 <= value <= 1.0


@PROPERTY
@given(st.lists(st.integers(1, 100), min_size=11, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_the_tokens_does_not_matter(weights, random):
    shuffled = random.sample(weights, len(weights))
    assert top_entropy(np.array(shuffled) / sum(weights)) == pytest.approx(
        float(top_entropy(np.array(weights) / sum(weights))), abs=1e-12
    )


@pytest.mark.parametrize("k", [2, 3, 7, 10])
def test_k_equally_likely_tokens_have_entropy_1(k):
    assert top_entropy(np.full(k, 1 / k), k) == pytest.approx(1.0, abs=1e-12)
    assert top_entropy(np.full(1000, 1 / 1000), k) == pytest.approx(1.0, abs=1e-12)


def test_a_certain_token_has_entropy_0_and_not_minus_0():
    value = top_entropy([0.0, 1.0, 0.0])
    assert value == 0.0
    assert math.copysign(1.0, value) == 1.0


def test_without_renormalisation_a_flat_vocabulary_looks_certain():
    flat = np.full(50_000, 1 / 50_000)
    assert top_entropy(flat, renormalize=False) == pytest.approx(10 / 50_000 * math.log10(50_000), rel=1e-12)
    assert top_entropy(flat) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("renormalize", [True, False])
def test_fewer_than_k_tokens_keep_the_base_k(renormalize):
    assert top_entropy([0.5, 0.5], 10, renormalize) == pytest.approx(math.log10(2), rel=1e-12)
    assert top_entropy([0.5, 0.5, 0, 0, 0, 0, 0, 0, 0, 0], 10, renormalize) == pytest.approx(math.log10(2), rel=1e-12)
    assert top_entropy([1.0], 10, renormalize) == 0.0


def test_every_distribution_of_an_array_is_scored_alone():
    probabilities = np.random.default_rng(0).dirichlet(np.full(15, 0.3), size=(2, 3))
    before = probabilities.copy()
    expected = [[stats.entropy(np.sort(row)[-4:], base=4) for row in rows] for rows in probabilities]
    np.testing.assert_allclose(top_entropy(probabilities, k=4), expected, rtol=1e-12)
    np.testing.assert_array_equal(probabilities, before)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("k", [2, 10])
def test_an_undefined_probability_makes_its_own_distribution_undefined(k, renormalize):
    value = top_entropy([[0.5, 0.5, 0.0], [0.5, 0.5, np.nan]], k, renormalize)
    np.testing.assert_allclose(value, [math.log(2, k), np.nan], rtol=1e-12)


@pytest.mark.parametrize("renormalize", [True, False])
def test_entropy_is_undefined_where_every_probability_is_0(renormalize):
    np.testing.assert_array_equal(top_entropy([[0.0, 0.0], [1.0, 0.0]], 2, renormalize), [np.nan, 0.0])


def test_a_probability_above_1_by_rounding_is_taken_as_1():
    assert top_entropy([1 + 1e-12, 0.0], renormalize=False) == 0.0


@pytest.mark.parametrize("k", [1, 0, -3])
def test_k_below_2_is_refused(k):
    with pytest.raises(ValueError, match="k must be at least 2"):
        top_entropy([0.5, 0.5], k)


@pytest.mark.parametrize("probabilities", [[-0.1, 0.5], [1.1, 0.0], 0.5, [], [[], []]])
def test_what_is_no_probability_is_refused(probabilities):
    with pytest.raises(ValueError, match="probabilities"):
        top_entropy(probabilities)


# breaking_temperature


def test_the_breaking_temperature_of_hand_made_curves():
    accuracy = [
        [1.0, 0.9, 0.8, 0.7],  # never below one half
        [0.4, 0.9, 0.9, 0.9],  # at once
        [1.0, 0.6, 0.4, 0.0],
        [1.0, 0.4, 0.9, 0.3],  # the first of two breaks
        [1.0, 0.5, 0.5, 0.5],  # ties hold
        [1.0, 0.5, 0.5, 0.49],
        [0.0, 0.0, 0.0, 0.0],
    ]
    expected = [np.inf, 0.2, 0.6, 0.4, np.inf, 0.8, 0.2]
    assert breaking_temperature(accuracy, [0.2, 0.4, 0.6, 0.8]).tolist() == expected


@PROPERTY
@given(st.lists(st.lists(st.integers(0, 10), min_size=10, max_size=10), min_size=1, max_size=8))
def test_a_fact_breaks_where_less_than_half_of_its_trials_are_right(counts):
    expected = [
        next((t for t, correct in zip(PAPER_GRID, row, strict=True) if 2 * correct < 10), math.inf) for row in counts
    ]
    assert breaking_temperature(np.array(counts) / 10, PAPER_GRID).tolist() == expected


@pytest.mark.parametrize("trials", [2, 6, 10, 14, 98, 1000])
def test_half_of_the_trials_hold_and_one_less_breaks(trials):
    accuracy = [[(trials // 2) / trials], [(trials // 2 - 1) / trials]]
    assert breaking_temperature(accuracy, [1.0]).tolist() == [np.inf, 1.0]


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


def test_isotonic_pools_adjacent_violators():
    # 0.4 and 0.8 violate: pooled to 0.6; then 0.2 and 0.6 to 0.4: fit 0.9, 0.6, 0.6, 0.4, 0.4
    accuracy = [[0.9, 0.4, 0.8, 0.2, 0.6]]
    temperatures = [0.2, 0.4, 0.6, 0.8, 1.0]
    assert breaking_temperature(accuracy, temperatures, estimator="first").tolist() == [0.4]
    assert breaking_temperature(accuracy, temperatures, estimator="isotonic").tolist() == [0.8]
    assert breaking_temperature(accuracy, temperatures, 0.7, "isotonic").tolist() == [0.4]
    assert breaking_temperature(accuracy, temperatures, 0.4, "isotonic").tolist() == [np.inf]


def test_a_pooled_tie_holds():
    # the pool of 0.3, 0.5, 0.7 is one half
    assert breaking_temperature([[1.0, 0.3, 0.5, 0.7]], [0.2, 0.4, 0.6, 0.8], estimator="isotonic").tolist() == [np.inf]


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


@pytest.mark.parametrize("accuracy", [[1.0, 0.5], [[1.0, 0.5, 0.2]], [[1.2, 0.5]], [[0.9, -0.1]], [[[1.0, 0.5]]], 1.0])
def test_an_illegal_accuracy_is_refused(accuracy):
    with pytest.raises(ValueError, match="accuracy"):
        breaking_temperature(accuracy, [0.2, 0.4])


@pytest.mark.parametrize("temperatures", [[0.4, 0.2], [0.2, 0.2], [-0.2, 0.2]])
def test_a_temperature_grid_out_of_order_is_refused(temperatures):
    with pytest.raises(ValueError, match="temperatures"):
        breaking_temperature([[1.0, 0.5]], temperatures)


@pytest.mark.parametrize("temperatures", [[0.2, math.nan], [0.2, math.inf]])
def test_a_temperature_that_is_no_finite_number_is_refused(temperatures):
    # a break at t = inf or t = NaN could not be told from "unbroken" or "unknown"
    with pytest.raises(ValueError, match="temperatures"):
        breaking_temperature([[1.0, 0.1]], temperatures)


def test_an_empty_temperature_grid_is_refused():
    with pytest.raises(ValueError, match="temperatures"):
        breaking_temperature(np.zeros((1, 0)), [])


def test_a_single_temperature_outside_a_list_is_refused():
    with pytest.raises(ValueError, match="temperatures"):
        breaking_temperature([[1.0]], 0.2)


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.1, math.nan])
def test_a_threshold_outside_0_to_1_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        breaking_temperature([[1.0]], [0.2], threshold)


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ValueError, match="estimator"):
        breaking_temperature([[1.0]], [0.2], estimator="last")


# factual_robustness_score


def exact_score(entropy, temperature, d):
    """Eq. 3 and 4 in rational arithmetic."""
    h, t = Fraction(entropy), Fraction(temperature)
    f = (1 - h) ** d * (t + 1) - h / (t + 1)
    return (f + 1) / (f + 2)


def raw_f(entropy, temperature, d):
    """f, recovered from FRS = (f + 1) / (f + 2)."""
    score = factual_robustness_score(entropy, temperature, d)
    return (2 * score - 1) / (1 - score)


@pytest.mark.parametrize("d", [0.1, 0.5, *PAPER_D])
def test_the_corners_of_f(d):
    assert raw_f(0.0, 0.0, d) == pytest.approx(1.0, abs=1e-14)
    assert raw_f(1.0, 0.0, d) == pytest.approx(-1.0, abs=1e-14)
    assert factual_robustness_score(0.0, 0.0, d) == pytest.approx(2 / 3, rel=1e-15)
    assert factual_robustness_score(1.0, 0.0, d) == 0.0


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
@given(st.floats(0, 1), st.floats(0, 5), st.floats(0.01, 5), st.floats(0.1, 50))
def test_the_score_rises_strictly_with_the_breaking_temperature(entropy, temperature, step, d):
    lower, higher = factual_robustness_score(entropy, [temperature, temperature + step], d)
    assert lower < higher


@PROPERTY
@given(st.floats(0, 0.99), st.floats(0.001, 1), st.floats(0, 5), st.floats(0.1, 50))
def test_the_score_falls_strictly_with_the_entropy(entropy, share, temperature, d):
    surer, less_sure = factual_robustness_score([entropy, entropy + share * (1 - entropy)], temperature, d)
    assert surer > less_sure


@PROPERTY
@given(st.floats(0, 1), st.floats(0, 5))
def test_the_score_does_not_rise_with_d(entropy, temperature):
    scores = [float(factual_robustness_score(entropy, temperature, d)) for d in [0.1, 0.5, 1, 2, 5, 10, 50]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(("entropy", "strict"), [(0.0, False), (0.3, True), (1.0, False)])
def test_d_matters_only_for_an_entropy_between_the_ends(entropy, strict):
    scores = {float(factual_robustness_score(entropy, 1.0, d)) for d in [0.1, 1, 2, 5]}
    assert len(scores) == (4 if strict else 1)


@PROPERTY
@given(st.floats(0, 1), st.floats(0, 1e6), st.floats(0.01, 100), st.sampled_from(["one", "bound"]))
def test_scores_lie_between_0_and_1(entropy, temperature, d, unbroken):
    assert 0.0 <= factual_robustness_score(entropy, temperature, d, unbroken) <= 1.0


@PROPERTY
@given(st.floats(0, 1), st.sampled_from(PAPER_GRID), st.sampled_from(PAPER_D))
def test_a_broken_fact_of_the_papers_grid_scores_between_one_seventh_and_four_fifths(entropy, temperature, d):
    score = factual_robustness_score(entropy, temperature, d)
    assert 1 / 7 - 1e-12 <= score <= 4 / 5 + 1e-12


def test_an_unbroken_fact_scores_one_whatever_its_entropy():
    scores = factual_robustness_score([0.0, 0.3, 1.0], np.inf, d=5)
    assert scores.tolist() == [1.0, 1.0, 1.0]


def test_bound_takes_an_infinite_breaking_temperature_as_the_limit_of_the_formula():
    scores = factual_robustness_score([0.0, 0.3, 1.0], np.inf, d=5, unbroken="bound")
    assert scores.tolist() == [1.0, 1.0, 0.5]
    near = factual_robustness_score([0.0, 0.3, 1.0], 1e12, d=5, unbroken="bound")
    assert near == pytest.approx(scores, abs=1e-9)


@pytest.mark.parametrize("unbroken", ["one", "bound"])
def test_broken_facts_score_the_same_under_both_conventions(unbroken):
    scores = factual_robustness_score([0.0, 0.5, 1.0], [2.0, 1.0, 0.0], 1, unbroken)
    assert scores == pytest.approx([4 / 5, 7 / 11, 0.0], rel=1e-12)


@pytest.mark.parametrize("unbroken", ["one", "bound"])
def test_undefined_arguments_give_undefined_scores(unbroken):
    entropy = [np.nan, 0.5, np.nan, np.nan, 0.5]
    temperature = [1.0, np.nan, np.inf, np.nan, 1.0]
    np.testing.assert_allclose(
        factual_robustness_score(entropy, temperature, 1, unbroken), [np.nan] * 4 + [7 / 11], rtol=1e-12
    )


def test_entropy_and_breaking_temperature_broadcast():
    grid = factual_robustness_score(np.array([[0.0], [1.0]]), np.array([0.0, 1.0, np.inf]), 1)
    np.testing.assert_allclose(grid, [[2 / 3, 3 / 4, 1.0], [0.0, 1 / 3, 1.0]], rtol=1e-15)


@pytest.mark.parametrize("entropy", [-0.01, 1.01, math.inf, -math.inf])
def test_an_entropy_outside_0_to_1_is_refused(entropy):
    with pytest.raises(ValueError, match="entropy"):
        factual_robustness_score([0.5, entropy], [1.0, 1.0], 1)


@pytest.mark.parametrize("temperature", [-0.01, -math.inf])
def test_a_negative_breaking_temperature_is_refused(temperature):
    with pytest.raises(ValueError, match="breaking_temperature"):
        factual_robustness_score([0.5, 0.5], [1.0, temperature], 1)


@pytest.mark.parametrize("d", [0, -1, -0.5, math.inf, math.nan])
def test_a_d_that_is_not_a_positive_number_is_refused(d):
    with pytest.raises(ValueError, match="d must be"):
        factual_robustness_score([0.5], [1.0], d)


def test_an_unknown_convention_for_unbroken_facts_is_refused():
    with pytest.raises(ValueError, match="unbroken"):
        factual_robustness_score([0.5], [1.0], 1, unbroken="two")


# FactualRobustness: configuration


@pytest.mark.parametrize(
    ("d", "expected"),
    [
        (1, [1.0]),
        (0.5, [0.5]),
        ([1], [1.0]),
        ((2, 1.0), [1.0, 2.0]),
        ([10, 5, 1, 5], [1.0, 5.0, 10.0]),
        ([0.25, 50], [0.25, 50.0]),
    ],
)
def test_d_is_a_number_or_a_list_and_comes_out_sorted(d, expected):
    assert FactualRobustness(d=d).d == expected


def test_the_defaults_are_those_of_the_paper():
    metric = FactualRobustness()
    assert metric.d == PAPER_D
    assert (metric.k, metric.renormalize, metric.include_eos) == (10, True, False)
    assert (metric.threshold, metric.estimator, metric.unbroken) == (0.5, "first", "one")


@pytest.mark.parametrize(
    "d",
    [
        *(0, -1, math.inf, math.nan, True, False, "1", "", None),
        *([1, 0], [2, -1], [1, math.inf], [True], [1, False], ["1"], [None], [[1]], [], ()),
    ],
)
def test_a_d_that_is_no_positive_number_stops_the_configuration(d):
    with pytest.raises(ValueError, match="d must be a number above 0"):
        FactualRobustness(d=d)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 1),
        ("k", 0),
        ("threshold", 0.0),
        ("threshold", 1.5),
        ("threshold", math.nan),
        ("estimator", "last"),
        ("unbroken", "two"),
    ],
)
def test_an_illegal_option_stops_the_configuration(name, value):
    with pytest.raises(ValueError, match=name):
        FactualRobustness(**{name: value})


@pytest.mark.parametrize("temperatures", [[], [1.0]])
def test_answers_at_one_temperature_are_refused_before_anything_is_sampled(temperatures):
    with pytest.raises(UserError, match=r"metric=frs.*temperatures.*sampler=temperature_sweep"):
        FactualRobustness().check(temperatures, repetitions=10)


def test_two_temperatures_and_one_trial_are_enough():
    assert FactualRobustness().check([0.2, 0.4], repetitions=1) is None


# FactualRobustness.score: one table worked out by hand


SURE, TORN = [0.0, -math.inf], [math.log(0.5), math.log(0.5)]  # entropy 0 and 1 with k = 2
# Question: log-probabilities of the greedy answer's tokens, how many carry the answer, and right replies of four at
# 0.5, 1.0 and 1.5. No request for e at 0.5 brought a reply.
FACTS = {
    "a": ([TORN, SURE, TORN], 2, [4, 4, 2]),  # H = 1/2, with the end token 2/3; never below one half
    "b": ([SURE, TORN], 1, [4, 2, 1]),  # H = 0, with the end token 1/2; breaks at 1.5
    "c": ([TORN], 1, [1, 0, 0]),  # H = 1, no end token; breaks at 0.5
    "d": ([SURE, SURE, TORN], 2, [3, 1, 4]),  # H = 0, with the end token 1/3; breaks at 1.0, the fit does not
    "e": ([SURE], 1, [None, 4, 0]),  # H = 0; nobody knows where it breaks
}
QUESTIONS = [Question(id=name, text=f"{name}?") for name in FACTS]
UNKNOWN = pytest.approx((math.nan, math.nan, math.nan), nan_ok=True)


def answer(question_id, temperature=0.0, correct=True, outcome="ok", **columns):
    return {
        "question_id": question_id,
        "rewrite": 0,
        "temperature": temperature,
        "trial": 0,
        "text": "",
        "correct": correct,
        "outcome": outcome,
        "weight": 0.25,
        **columns,
    }


def trials(question_id, temperature, correct, of=4, **columns):
    """``of`` replies, the first ``correct`` of them right; requests without a reply where ``correct`` is None."""
    if correct is None:
        return [answer(question_id, temperature, None, "error", **columns)] * of
    return [answer(question_id, temperature, trial < correct, **columns) for trial in range(of)]


BASELINE = answer_table(
    answer(name, top_logprobs=top_logprobs, answer_tokens=length) for name, (top_logprobs, length, _) in FACTS.items()
)
ROWS = [
    row
    for name, (_, _, right) in FACTS.items()
    for temperature, correct in zip([0.5, 1.0, 1.5], right, strict=True)
    for row in trials(name, temperature, correct)
]
GRADED = answer_table(ROWS)


def score_facts(questions=QUESTIONS, baseline=BASELINE, graded=GRADED, seed=0, **options):
    return FactualRobustness(**{"k": 2, "d": [1, 2], **options}).score(questions, Measured(baseline, graded), seed)


def figures(score):
    return {name: estimate.value for name, estimate in score.values.items()}


def kendall_tau_b(x, y):
    """τ_b by counting pairs."""
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in itertools.combinations(range(len(x)), 2)]
    in_x, in_y = (sum(1 for pair in signs if pair[side]) for side in (0, 1))
    return sum(a * b for a, b in signs) / math.sqrt(in_x * in_y)


def test_the_figures_of_a_hand_made_table():
    # f: b 0 → 2.5, c → −1/1.5, d → 2; FRS 7/9, 1/4, 3/4, and 1 for a; e has none. d matters only for a, unbroken.
    expected = {
        "frs.d1": 25 / 36,
        "frs.d2": 25 / 36,
        "frs.unbroken_share": 1 / 4,
        "frs.breaking_temperature.mean_broken": 1.0,
        "frs.breaking_temperature.median": 1.25,
        "frs.entropy.mean": 0.3,
        "frs.count.broken": 3.0,
        "frs.count.unbroken": 1.0,
        "frs.count.undefined": 1.0,
        "frs.entropy_vs_breaking.pearson_broken": -math.sqrt(3) / 2,  # (0, 1.5), (1, 0.5), (0, 1)
        "frs.entropy_vs_breaking.pearson_all": stats.pearsonr([0.5, 0, 1, 0], [2.0, 1.5, 0.5, 1.0]).statistic,
        "frs.entropy_vs_breaking.kendall": kendall_tau_b([0.5, 0, 1, 0], [2.0, 1.5, 0.5, 1.0]),
    }
    assert figures(score_facts()) == pytest.approx(expected, rel=1e-12)


def test_the_curves_of_a_hand_made_table():
    curves = score_facts().curves
    values = {name: {t: estimate.value for t, estimate in curve.items()} for name, curve in curves.items()}
    assert values == {
        # e enters where it has replies: (1 + 1 + 1/4 + 3/4) / 4, (1 + 1/2 + 0 + 1/4 + 1) / 5, (1/2 + 1/4 + 1) / 5
        "accuracy": pytest.approx({0.5: 0.75, 1.0: 0.55, 1.5: 0.35}, rel=1e-12),
        "frs.survival": pytest.approx({0.5: 3 / 4, 1.0: 1 / 2, 1.5: 1 / 4}, rel=1e-12),
    }


def test_the_tables_of_a_hand_made_table():
    tables = score_facts().tables
    assert set(tables) == {"frs", "frs_accuracy", "frs_certainty", "frs_types"}

    facts = tables["frs"].to_pydict()
    assert facts.pop("question_id") == ["a", "b", "c", "d", "e"]
    assert facts.pop("question") == ["a?", "b?", "c?", "d?", "e?"]
    assert facts.pop("type") == facts.pop("category") == [""] * 5
    assert facts.pop("entropy") == pytest.approx([0.5, 0, 1, 0, 0], rel=1e-12)
    assert facts.pop("breaking_temperature") == pytest.approx([math.inf, 1.5, 0.5, 1.0, math.nan], nan_ok=True)
    for column in ("frs_d1", "frs_d2"):
        assert facts.pop(column) == pytest.approx([1, 7 / 9, 1 / 4, 3 / 4, math.nan], rel=1e-12, nan_ok=True)
    assert facts == {}

    assert tables["frs_accuracy"].to_pydict() == {
        "question_id": [name for name in FACTS for _ in range(3)],
        "temperature": [0.5, 1.0, 1.5] * 5,
        "correct": [4, 4, 2, 4, 2, 1, 1, 0, 0, 3, 1, 4, 0, 4, 0],
        "replies": [4] * 12 + [0, 4, 4],
    }
    assert tables["frs_certainty"].num_rows == 0  # no log-probabilities were kept


def test_the_end_token_counts_where_it_is_asked_for():
    score = score_facts(include_eos=True)
    assert score.tables["frs"]["entropy"].to_pylist() == pytest.approx([2 / 3, 1 / 2, 1, 1 / 3, 0], rel=1e-12)
    assert score.values["frs.entropy.mean"].value == pytest.approx(0.5, rel=1e-12)
    b, d = float(exact_score(Fraction(1, 2), Fraction(3, 2), 1)), float(exact_score(Fraction(1, 3), 1, 1))
    assert score.values["frs.d1"].value == pytest.approx((1 + b + 1 / 4 + d) / 4, rel=1e-12)


def test_bound_scores_unbroken_facts_at_the_last_temperature():
    score = score_facts(unbroken="bound")
    a = [float(exact_score(Fraction(1, 2), Fraction(3, 2), d)) for d in (1, 2)]
    assert a == pytest.approx([2.05 / 3.05, 1.425 / 2.425], rel=1e-12)
    expected = [(first + 7 / 9 + 1 / 4 + 3 / 4) / 4 for first in a]
    assert [score.values[name].value for name in ("frs.d1", "frs.d2")] == pytest.approx(expected, rel=1e-12)
    assert score.values["frs.unbroken_share"].value == 0.25
    assert score.tables["frs"]["breaking_temperature"][0].as_py() == math.inf


def test_the_isotonic_estimator_reaches_the_score():
    # only d (3/4, 1/4, 1) changes: its fit is 3/4, 5/8, 5/8
    breaking = score_facts(estimator="isotonic").tables["frs"]["breaking_temperature"].to_pylist()
    assert breaking == pytest.approx([math.inf, 1.5, 0.5, math.inf, math.nan], nan_ok=True)


def test_the_threshold_reaches_the_score():
    breaking = score_facts(threshold=1.0).tables["frs"]["breaking_temperature"].to_pylist()
    assert breaking == pytest.approx([1.5, 1.0, 0.5, 0.5, math.nan], nan_ok=True)


def test_every_d_has_a_figure_and_a_column():
    score = score_facts(d=[0.5, 50])
    assert [name for name in score.values if name.startswith("frs.d")] == ["frs.d0.5", "frs.d50"]
    assert [name for name in score.tables["frs"].column_names if name.startswith("frs_d")] == ["frs_d0.5", "frs_d50"]


def test_an_interval_resamples_questions():
    # a alone of the four known is unbroken: of four draws none is a in 32 %, three in 5 %, four in 0.4 % of resamples
    score = score_facts()
    assert score.values["frs.unbroken_share"] == (0.25, 0.0, 0.75)
    assert score.curves["frs.survival"][1.5] == (0.25, 0.0, 0.75)


def test_counts_the_median_and_kendall_have_no_interval():
    bare = {name for name, estimate in score_facts().values.items() if math.isnan(estimate.low)}
    assert bare == {
        "frs.breaking_temperature.median",
        "frs.count.broken",
        "frs.count.unbroken",
        "frs.count.undefined",
        "frs.entropy_vs_breaking.kendall",
    }


def test_groups_of_questions_change_the_interval():
    # a and c share a paragraph, and b and d: one group is half unbroken, the other not at all. In a quarter of the
    # resamples either group is drawn twice
    grouped = [Question(id=name, text="", group="xyxyz"[index]) for index, name in enumerate(FACTS)]
    assert score_facts(grouped).values["frs.unbroken_share"] == (0.25, 0.0, 0.5)


def test_neither_the_order_of_the_answers_nor_that_of_the_questions_matters():
    order = np.random.default_rng(0).permutation(len(ROWS))
    shuffled = score_facts(
        QUESTIONS[::-1], BASELINE.take([3, 1, 4, 0, 2]), answer_table(ROWS[index] for index in order)
    )
    assert figures(shuffled) == pytest.approx(figures(score_facts()), rel=1e-12)
    assert shuffled.tables["frs"]["question_id"].to_pylist() == ["e", "d", "c", "b", "a"]
    assert shuffled.tables["frs"]["entropy"].to_pylist() == pytest.approx([0, 0, 1, 0, 0.5], rel=1e-12)


def test_the_same_seed_gives_the_same_score():
    assert score_facts(seed=3).flat() == score_facts(seed=3).flat()
    assert score_facts(seed=3).flat() != score_facts(seed=4).flat()


def test_baseline_answers_to_questions_that_were_not_kept_are_passed_over():
    rows = [row for row in ROWS if row["question_id"] in "ab"]
    score = score_facts(QUESTIONS[:2], graded=answer_table(rows))
    assert score.tables["frs"]["entropy"].to_pylist() == pytest.approx([0.5, 0.0], rel=1e-12)


def test_a_question_without_a_greedy_answer_has_no_score_and_is_counted():
    baseline = answer_table(
        [
            answer("a", top_logprobs=[SURE], answer_tokens=1),
            answer("b", outcome="error"),
            answer("c", top_logprobs=[TORN], answer_tokens=0),  # ended at once: no token carries an answer
        ]
    )
    rows = [row for row in ROWS if row["question_id"] in "abcd"]
    score = score_facts(QUESTIONS[:4], baseline, answer_table(rows))
    table = score.tables["frs"]
    assert table["entropy"].to_pylist() == pytest.approx([0, math.nan, math.nan, math.nan], nan_ok=True)
    assert table["frs_d1"].to_pylist() == pytest.approx([1, math.nan, math.nan, math.nan], nan_ok=True)
    assert table["breaking_temperature"].to_pylist() == [math.inf, 1.5, 0.5, 1.0]
    assert score.values["frs.count.undefined"].value == 3
    assert score.values["frs.d1"] == (1.0, 1.0, 1.0)


# FactualRobustness.score: the parts


def score_one(rows, **options):
    """The score of question a, whose greedy answer is sure."""
    baseline = answer_table([answer("a", top_logprobs=[SURE], answer_tokens=1)])
    return score_facts(QUESTIONS[:1], baseline, answer_table(rows), **options)


def test_initial_entropy_is_that_of_the_k_largest_log_probabilities():
    probabilities = [[0.5, 0.2, 0.1, 0.05], [0.9, 0.05, 0.03, 0.01]]
    baseline = answer_table([answer("a", top_logprobs=np.log(probabilities).tolist(), answer_tokens=2)])
    for k in (2, 3, 4):
        expected = np.mean([stats.entropy(row[:k], base=k) for row in probabilities])
        assert FactualRobustness(k=k).initial_entropy(["a"], baseline) == pytest.approx([expected], rel=1e-6)


def test_initial_entropy_without_renormalisation():
    flat = np.log(np.full((1, 8), 1 / 8)).tolist()
    baseline = answer_table([answer("a", top_logprobs=flat, answer_tokens=1)])
    # −2 · 1/8 · log2(1/8) = 3/4
    assert FactualRobustness(k=2, renormalize=False).initial_entropy(["a"], baseline) == pytest.approx([0.75], rel=1e-6)
    assert FactualRobustness(k=2).initial_entropy(["a"], baseline) == pytest.approx([1.0], rel=1e-12)


def test_tokens_may_bring_different_numbers_of_log_probabilities():
    tokens = [[math.log(0.5), math.log(0.5), -math.inf], [0.0, -math.inf]]
    baseline = answer_table([answer("a", top_logprobs=tokens, answer_tokens=2)])
    assert FactualRobustness(k=2).initial_entropy(["a"], baseline) == pytest.approx([0.5], rel=1e-12)


def test_too_few_log_probabilities_are_said_with_the_question():
    baseline = answer_table([answer("a", top_logprobs=[SURE], answer_tokens=1)])
    with pytest.raises(UserError, match=r"metric\.frs\.k=3.*question a brings 2"):
        FactualRobustness(k=3).initial_entropy(["a"], baseline)


def test_too_few_log_probabilities_of_an_end_token_that_does_not_count_do_not_matter():
    baseline = answer_table([answer("a", top_logprobs=[SURE, [0.0]], answer_tokens=1)])
    assert FactualRobustness(k=2).initial_entropy(["a"], baseline) == pytest.approx([0.0])


def test_five_of_ten_trials_hold_and_four_break():
    rows = [*trials("a", 0.2, 5, of=10, weight=0.1), *trials("a", 0.4, 4, of=10, weight=0.1)]
    score = score_one(rows)
    assert score.tables["frs"]["breaking_temperature"].to_pylist() == [0.4]
    assert score.curves["accuracy"] == {0.2: (0.5, 0.5, 0.5), 0.4: (0.4, 0.4, 0.4)}


@pytest.mark.parametrize("outcome", ["refused", "empty", "invalid"])
def test_useless_replies_count_as_wrong(outcome):
    rows = [
        *trials("a", 0.2, 2, of=2),
        *[answer("a", 0.2, None, outcome)] * 3,  # two of five
        *trials("a", 0.4, 4),
    ]
    score = score_one(rows)
    assert score.tables["frs"]["breaking_temperature"].to_pylist() == [0.2]
    assert score.curves["accuracy"] == {0.2: (0.4, 0.4, 0.4), 0.4: (1.0, 1.0, 1.0)}


@pytest.mark.parametrize("outcome", ["error", "filtered_prompt", "filtered_reply"])
def test_missing_replies_leave_the_denominator(outcome):
    rows = [
        *trials("a", 0.2, 1, of=2),
        *[answer("a", 0.2, None, outcome)] * 3,  # one of two
        *trials("a", 0.4, 4),
    ]
    score = score_one(rows)
    assert score.tables["frs"]["breaking_temperature"].to_pylist() == [math.inf]
    assert score.curves["accuracy"] == {0.2: (0.5, 0.5, 0.5), 0.4: (1.0, 1.0, 1.0)}


def test_exactly_enumerated_answers_enter_with_their_probability():
    weighted = [(0.2, True, 0.7), (0.2, True, 0.2), (0.2, False, 0.1), (0.4, True, 0.3), (0.4, False, 0.7)]
    rows = [answer("a", t, correct, weight=weight) for t, correct, weight in weighted]
    score = score_one(rows)
    assert score.curves["accuracy"] == {0.2: pytest.approx([0.9] * 3, rel=1e-12), 0.4: pytest.approx([0.3] * 3)}
    assert score.tables["frs"]["breaking_temperature"].to_pylist() == [0.4]


def test_a_tie_of_probabilities_holds_whatever_the_rounding():
    right = [0.35, 0.1, 0.05]
    assert sum(right) != 0.5
    rows = [answer("a", 0.2, True, weight=weight) for weight in right]
    rows += [answer("a", 0.2, False, weight=0.5), *trials("a", 0.4, 4)]
    assert score_one(rows).tables["frs"]["breaking_temperature"].to_pylist() == [math.inf]


def test_a_run_without_any_reply_is_undefined_and_counted():
    score = score_one([*trials("a", 0.2, None), *trials("a", 0.4, None)])
    counts = {"frs.count.broken": 0.0, "frs.count.unbroken": 0.0, "frs.count.undefined": 1.0, "frs.entropy.mean": 0.0}
    expected = dict.fromkeys(score.values, math.nan) | counts
    assert figures(score) == pytest.approx(expected, nan_ok=True)
    assert score.curves == {name: {0.2: UNKNOWN, 0.4: UNKNOWN} for name in ("accuracy", "frs.survival")}
    assert score.tables["frs_types"].num_rows == 0


def test_where_nothing_breaks_there_is_no_mean_breaking_temperature():
    score = score_one([*trials("a", 0.2, 4), *trials("a", 0.4, 4)])
    found = figures(score)
    assert found["frs.unbroken_share"] == 1.0
    assert found["frs.breaking_temperature.median"] == math.inf
    undefined = [name for name, value in found.items() if math.isnan(value)]
    assert undefined == [
        "frs.breaking_temperature.mean_broken",
        "frs.entropy_vs_breaking.pearson_broken",
        "frs.entropy_vs_breaking.pearson_all",
        "frs.entropy_vs_breaking.kendall",
    ]


def test_half_unbroken_facts_have_no_finite_median():
    rows = [*trials("a", 0.2, 4), *trials("a", 0.4, 4), *trials("b", 0.2, 4), *trials("b", 0.4, 0)]
    score = score_facts(QUESTIONS[:2], graded=answer_table(rows))
    assert score.values["frs.breaking_temperature.median"].value == math.inf


# entropy_against_breaking


def test_entropy_against_breaking_of_many_facts():
    generator = np.random.default_rng(0)
    grid = np.array(PAPER_GRID)
    entropy = generator.uniform(size=120)
    placed = np.clip(np.ceil(11 * (1 - entropy) + 2 * generator.normal(size=120)), 1, 11).astype(int) - 1
    steps = np.append(grid, 2.2)  # the unbroken stand at the next grid step
    breaking = np.append(grid, np.inf)[placed]
    unknown = np.zeros(120, dtype=bool)
    unknown[::10] = True
    values = entropy_against_breaking(
        np.where(np.arange(120) % 20 == 0, np.nan, entropy),
        np.where(np.arange(120) % 20 == 10, np.nan, breaking),
        grid,
        None,
        seed=0,
    )
    broken = ~unknown & np.isfinite(breaking)
    assert 0 < broken.sum() < (~unknown).sum()
    prefix = "frs.entropy_vs_breaking"
    expected = {
        f"{prefix}.pearson_broken": stats.pearsonr(entropy[broken], breaking[broken]),
        f"{prefix}.pearson_all": stats.pearsonr(entropy[~unknown], steps[placed][~unknown]),
    }
    assert set(values) == {*expected, f"{prefix}.kendall"}
    for name, result in expected.items():
        assert values[name].value == pytest.approx(result.statistic, rel=1e-12)
        fisher = result.confidence_interval()  # another method: near, not equal
        assert (values[name].low, values[name].high) == pytest.approx((fisher.low, fisher.high), abs=0.06)
    assert values[f"{prefix}.kendall"].value == pytest.approx(
        kendall_tau_b(entropy[~unknown], steps[placed][~unknown]), rel=1e-12
    )


def test_the_correlations_of_very_sure_models_are_those_of_the_same_entropies_scaled():
    grid = np.array([0.5, 1.0, 1.5])
    entropy, breaking = np.array([0.1, 0.9, 0.3, 0.4]), np.array([np.inf, 0.5, 1.5, 1.0])
    plain = entropy_against_breaking(entropy, breaking, grid, None, seed=0)
    scaled = entropy_against_breaking(1e-6 * entropy, breaking, grid, None, seed=0)
    assert plain["frs.entropy_vs_breaking.pearson_all"].value == pytest.approx(
        stats.pearsonr(entropy, [2.0, 0.5, 1.5, 1.0]).statistic, rel=1e-12
    )
    for name, estimate in plain.items():
        assert scaled[name] == pytest.approx(estimate, rel=1e-9, nan_ok=True)


# certainty_bins


def test_replies_are_counted_by_their_mean_token_probability():
    def reply(temperature, correct, *probabilities, answer_tokens=None):
        logprobs = [math.log(p) for p in probabilities]
        length = len(probabilities) if answer_tokens is None else answer_tokens
        return answer("a", temperature, correct, sampling_logprobs=logprobs, answer_tokens=length)

    table = answer_table(
        [
            reply(1.0, True, 1.0),  # a probability of 1 falls in the last bin
            reply(1.0, True, 0.95),
            reply(1.0, False, 0.99, 0.97),
            reply(0.2, False, 0.95, 0.35),  # mean 0.65; its geometric mean would be 0.58
            reply(0.2, True, 0.95, 0.35, 0.01, answer_tokens=2),  # the end token does not count
            reply(0.2, False, 0.05),
            reply(0.2, True, 0.5, answer_tokens=0),
            answer("a", 0.2, True, answer_tokens=1),
            answer("a", 0.2, None, sampling_logprobs=[0.0], answer_tokens=1),
        ]
    )
    assert certainty_bins(table).to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.0, "right": 0, "wrong": 1},
        {"temperature": 0.2, "certainty_from": 0.6, "right": 1, "wrong": 1},
        {"temperature": 1.0, "certainty_from": 0.9, "right": 2, "wrong": 1},
    ]


@PROPERTY
@given(st.lists(st.tuples(st.floats(0.005, 0.995), st.booleans()), max_size=30))
def test_every_reply_falls_into_the_bin_of_its_certainty(replies):
    # log-probabilities are kept in single precision: none so near an edge
    replies = [(p, correct) for p, correct in replies if abs(p * 10 - round(p * 10)) > 1e-4]
    rows = [answer("a", 0.2, correct, sampling_logprobs=[math.log(p)], answer_tokens=1) for p, correct in replies]
    edges = np.linspace(0, 1, 11)
    right, _ = np.histogram([p for p, correct in replies if correct], edges)
    wrong, _ = np.histogram([p for p, correct in replies if not correct], edges)
    expected = [
        {"temperature": 0.2, "certainty_from": index / 10, "right": right[index], "wrong": wrong[index]}
        for index in range(10)
        if right[index] + wrong[index]
    ]
    assert certainty_bins(answer_table(rows)).to_pylist() == expected


@pytest.mark.parametrize("outcome", ["error", "filtered_prompt", "filtered_reply"])
def test_a_missing_reply_is_in_no_certainty_bin(outcome):
    rows = [
        answer("a", 0.2, True, sampling_logprobs=[0.0], answer_tokens=1),
        answer("a", 0.2, False, outcome, sampling_logprobs=[0.0], answer_tokens=1),
    ]
    assert certainty_bins(answer_table(rows)).to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.9, "right": 1, "wrong": 0}
    ]


def test_the_certainty_bins_are_a_table_of_the_score():
    columns = {"sampling_logprobs": [math.log(0.25)], "answer_tokens": 1}
    score = score_one([*trials("a", 0.2, 3, **columns), *trials("a", 0.4, 1, **columns)])
    assert score.tables["frs_certainty"].to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.2, "right": 3, "wrong": 1},
        {"temperature": 0.4, "certainty_from": 0.2, "right": 1, "wrong": 3},
    ]


# type_shares


def brute_force_shares(scores, types, n):
    """Expected numbers among the n most and the n least robust, over every order in which ties may be broken."""
    top, bottom = dict.fromkeys(sorted(set(types)), 0.0), dict.fromkeys(sorted(set(types)), 0.0)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        ranked = sorted(order, key=lambda index: scores[index])
        for index in ranked[len(ranked) - n :]:
            top[types[index]] += 1 / len(orders)
        for index in ranked[:n]:
            bottom[types[index]] += 1 / len(orders)
    return [(name, top[name], bottom[name]) for name in top]


@settings(PROPERTY, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([0.3, 0.5, 1.0]), st.sampled_from(["HUM", "LOC", "NUM"])), max_size=6))
def test_ties_at_a_cut_count_as_the_mean_over_all_their_orders(facts):
    scores, types = [score for score, _ in facts], [kind for _, kind in facts]
    table = type_shares(np.array(scores), types).to_pylist()
    for row, (name, top, bottom) in zip(table, brute_force_shares(scores, types, len(facts) // 2), strict=True):
        expected = top / (top + bottom) if top + bottom > 1e-9 else math.nan
        assert row["type"] == name
        found = (row["most_robust"], row["least_robust"], row["share_most_robust"])
        assert found == pytest.approx((top, bottom, expected), abs=1e-9, nan_ok=True)


def test_the_types_of_the_most_and_the_least_robust_facts():
    # the two most robust out of 0.9, 1, 1, 1 are two of the three that tie; NaN is no score
    scores = np.array([0.2, 1.0, 0.3, 1.0, np.nan, 1.0])
    table = type_shares(scores, ["HUM", "HUM", "LOC", "LOC", "NUM", "LOC"])
    assert table.column_names == ["type", "most_robust", "least_robust", "share_most_robust"]
    assert table["type"].to_pylist() == ["HUM", "LOC"]
    assert table["most_robust"].to_pylist() == pytest.approx([2 / 3, 4 / 3])
    assert table["least_robust"].to_pylist() == pytest.approx([1, 1])
    assert table["share_most_robust"].to_pylist() == pytest.approx([2 / 5, 4 / 7])


def test_no_more_than_n_facts_are_taken_from_either_end():
    scores = np.arange(10) / 10
    table = type_shares(scores, list("aabbbbbbba"), n=2)
    assert table.to_pylist() == [
        {"type": "a", "most_robust": 1.0, "least_robust": 2.0, "share_most_robust": 1 / 3},
        {"type": "b", "most_robust": 1.0, "least_robust": 0.0, "share_most_robust": 1.0},
    ]


def test_one_fact_alone_is_neither_most_nor_least_robust():
    row = type_shares(np.array([0.5]), ["HUM"]).to_pylist()[0]
    assert row["type"] == "HUM"
    assert [row["most_robust"], row["least_robust"]] == [0.0, 0.0]
    assert math.isnan(row["share_most_robust"])


def test_the_type_shares_are_a_table_of_the_score():
    # scores 1 (a), 7/9 (b), 1/4 (c), 3/4 (d); e has none
    kinds = {"a": "HUM", "b": "HUM", "c": "LOC", "d": "HUM", "e": "NUM"}
    questions = [Question(id=name, text="", type=kind) for name, kind in kinds.items()]
    assert score_facts(questions).tables["frs_types"].to_pylist() == [
        {"type": "HUM", "most_robust": 2.0, "least_robust": 1.0, "share_most_robust": pytest.approx(2 / 3)},
        {"type": "LOC", "most_robust": 0.0, "least_robust": 1.0, "share_most_robust": 0.0},
    ]
