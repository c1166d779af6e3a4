import numpy as np
import pytest

from robust_eval.stats.variance import breaking_budget, drawn_variance, exact_variance, pooled_share


def by_the_definition(right: np.ndarray, n: int) -> tuple[float, float]:
    """Mean squares of an analysis of variance of K groups of n answers, each right (1) or wrong (0)."""
    answers = [[1.0] * int(count) + [0.0] * (n - int(count)) for count in right]
    whole = np.mean(answers)
    across = n * sum((np.mean(group) - whole) ** 2 for group in answers) / (len(answers) - 1)
    inside = sum(((np.array(group) - np.mean(group)) ** 2).sum() for group in answers) / (len(answers) * (n - 1))
    return (across - inside) / n, inside


@pytest.mark.parametrize("right", [[2, 0, 1, 2], [3, 3, 3, 3], [0, 3, 0, 0]])
def test_draws_give_the_one_way_estimate(right: list[int]):
    found = drawn_variance([right], [[3] * 4])
    assert (found.between[0], found.within[0]) == pytest.approx(by_the_definition(np.array(right), 3))


def test_estimates_from_draws_are_without_bias_whatever_came_of_them():
    generator = np.random.default_rng(0)
    p = np.array([0.1, 0.5, 0.9])  # of thoughts that are equally likely
    thought = generator.integers(3, size=(40_000, 3))
    replies = generator.integers(1, 4, size=thought.shape)  # some replies did not come
    between, within = drawn_variance(generator.binomial(replies, p[thought]), replies)
    known = ~np.isnan(between)
    assert np.isnan(between[(replies == 1).all(axis=1)]).all()
    assert between[known].mean() == pytest.approx(p.var(), abs=0.005)
    assert within[known].mean() == pytest.approx((p * (1 - p)).mean(), abs=0.005)
    assert between[known].min() < 0  # such stay


def test_probabilities_give_what_ever_more_draws_tend_to():
    p = np.array([[0.2, 0.7, 0.4]])
    exact, drawn = exact_variance(p), drawn_variance(p * 10**7, np.full((1, 3), 10**7))
    assert exact.between[0] == pytest.approx(np.var(p, ddof=1))
    assert exact.within[0] == pytest.approx((p * (1 - p)).mean())
    assert (drawn.between[0], drawn.within[0]) == pytest.approx((exact.between[0], exact.within[0]), abs=1e-6)


def test_the_error_of_probabilities_is_no_variance_between_thoughts():
    generator = np.random.default_rng(1)
    p = generator.choice([0.3, 0.5], size=(20_000, 4))
    seen = p + generator.normal(0, 0.1, size=p.shape)
    between, within = exact_variance(seen, np.full(p.shape, 0.01))
    assert between.mean() == pytest.approx(0.01, abs=0.0005)
    assert within.mean() == pytest.approx((p * (1 - p)).mean(), abs=0.001)
    assert exact_variance(seen).between.mean() == pytest.approx(0.02, abs=0.0005)


def test_with_one_thought_or_one_answer_after_each_nothing_is_known():
    for right, number in (([[2, 0]], [[3, 0]]), ([[1, 0]], [[1, 1]]), ([[0, 0]], [[0, 0]])):
        assert np.isnan(np.concatenate(drawn_variance(right, number))).all()
    assert np.isnan(np.concatenate(exact_variance([[0.5, np.nan]]))).all()
    assert [value.tolist() for value in exact_variance([[0.5, np.nan, 0.0]])] == [[0.125], [0.125]]


def test_a_share_is_pooled_over_questions_and_resamples():
    part, whole = np.array([[0.1, -0.02], [0.0, 0.0]]), np.array([[0.2, 0.2], [0.0, 0.0]])
    np.testing.assert_allclose(pooled_share(part, whole, axis=1), [0.2, np.nan])


@pytest.mark.parametrize(
    ("accuracy", "found"),
    [
        ([0.0, 0.5, 1.0], 64),
        ([0.5, 0.5, 0.5], 0),
        ([0.9, 0.4, 0.9], 256),
        ([0.9, 0.9, 0.4], np.inf),
        ([0.4, 0.4, 0.4], np.nan),
        ([0.9, np.nan, 0.9], np.nan),
        ([0.3 + 0.2, 0.7 - 0.2, 0.1 * 5], 0),
    ],
)
def test_a_fact_needs_the_smallest_budget_from_which_on_it_is_known(accuracy: list[float], found: float):
    np.testing.assert_array_equal(breaking_budget([accuracy], [0, 64, 256]), [found])
