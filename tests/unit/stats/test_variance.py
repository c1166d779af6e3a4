from itertools import product

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as formulas

from robust_eval.stats.estimate import UNDEFINED, Estimate
from robust_eval.stats.variance import (
    VarianceComponents,
    drawn_variance,
    exact_variance,
    pooled_share,
    variance_components,
)


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
    unsure = exact_variance(p, np.full(p.shape, 0.01))  # the error of probabilities is no variance between thoughts
    assert (unsure.between[0], unsure.within[0]) == pytest.approx((exact.between[0] - 0.01, exact.within[0] + 0.01))


def test_with_one_thought_or_one_answer_after_each_nothing_is_known():
    for right, number in (([[2, 0]], [[3, 0]]), ([[1, 0]], [[1, 1]]), ([[0, 0]], [[0, 0]])):
        assert np.isnan(np.concatenate(drawn_variance(right, number))).all()
    assert np.isnan(np.concatenate(exact_variance([[0.5, np.nan]]))).all()
    assert [value.tolist() for value in exact_variance([[0.5, np.nan, 0.0]])] == [[0.125], [0.125]]


def test_a_share_is_pooled_over_questions():
    assert pooled_share(np.array([0.1, -0.02]), np.array([0.2, 0.2])) == pytest.approx(0.2)
    assert np.isnan(pooled_share(np.zeros(2), np.zeros(2)))


UNBALANCED = [(0, 0), (0, 0), (0, 0), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1), (1, 1), (1, 2), (2, 0), (2, 0), (3, 0)]


def design(questions: int, rewrites: int, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the question and the rewrite of each answer."""
    question, rewrite, _ = np.indices((questions, rewrites, trials))
    return question.ravel(), rewrite.ravel()


def answered(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Answers (..., Q, W, K), right with probabilities that vary with the question and with the rewrite."""
    logit = generator.normal(0.5, 2, shape[:-2])[..., None] + generator.normal(0, 1, shape[:-1])
    return (generator.random(shape) < 1 / (1 + np.exp(-logit))[..., None]).astype(float)


def estimates(components: VarianceComponents) -> list[float]:
    return [each.value for each in components]


def test_components_of_balanced_answers_are_those_of_restricted_maximum_likelihood():
    generator = np.random.default_rng(0)
    effects = (
        generator.normal(size=(20, 1, 1)) + generator.normal(0, 0.7, (20, 3, 1)) + generator.normal(size=(20, 3, 4))
    )
    question, rewrite = design(20, 3, 4)
    data = pd.DataFrame({"y": effects.ravel(), "question": question, "rewrite": rewrite})
    model = formulas.mixedlm("y ~ 1", data, groups="question", vc_formula={"rewrite": "0 + C(rewrite)"}, re_formula="1")
    fitted = model.fit()
    expected = [fitted.cov_re.iloc[0, 0], fitted.vcomp[0], fitted.scale]
    assert estimates(variance_components(effects.ravel(), question, rewrite)) == pytest.approx(expected, rel=1e-3)


def test_components_of_unequal_numbers_are_without_bias():
    question, rewrite = np.array(UNBALANCED).T
    unit = np.eye(len(question))

    def form(values: np.ndarray) -> np.ndarray:
        return np.array(estimates(variance_components(values, question, rewrite)))

    pairs = np.array([[form(one + other) - form(one) - form(other) for other in unit] for one in unit]) / 2
    same_question = question[:, None] == question
    same_rewrite = same_question & (rewrite[:, None] == rewrite)
    expectations = [np.einsum("ijk,ij->k", pairs, same) for same in (same_question, same_rewrite, unit)]
    np.testing.assert_allclose(expectations, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(pairs.sum(axis=0), 0, atol=1e-12)  # whatever the mean


def test_a_component_without_repetitions_is_a_part_of_the_one_before():
    values, (question, rewrite) = answered(np.random.default_rng(1), 30, 3, 4), design(30, 3, 4)
    whole = np.array(estimates(variance_components(values.ravel(), question, rewrite)))
    one_wording = estimates(variance_components(values[:, 0].ravel(), *design(30, 1, 4)))
    assert np.isnan(one_wording).tolist() == [False, True, False]
    one_trial = estimates(variance_components(values[..., 0].ravel(), *design(30, 3, 1)))
    assert np.isnan(one_trial).tolist() == [False, False, True]
    single = estimates(variance_components(values[:, 0, 0], *design(30, 1, 1)))
    assert single == pytest.approx([values[:, 0, 0].var(ddof=1), np.nan, np.nan], nan_ok=True)
    assert variance_components([1, 0, 1], [7, 7, 7], [0, 0, 1]) == (UNDEFINED,) * 3
    with_gaps = np.append(values.ravel(), np.nan)
    again = variance_components(with_gaps, np.append(question, 99), np.append(rewrite, 0))
    assert estimates(again) == pytest.approx(whole)


def test_intervals_hold_the_true_components_and_allow_for_groups():
    generator = np.random.default_rng(2)
    many = answered(generator, 200_000, 2, 1)[..., 0]
    within = np.mean(np.diff(many, axis=1) ** 2) / 2  # of one trial each: rewrites and trials together
    question, rewrite = design(60, 3, 1)
    runs = [variance_components(each.ravel(), question, rewrite) for each in answered(generator, 400, 60, 3, 1)]
    assert 0.92 <= np.mean([run.rewrite.low <= within <= run.rewrite.high for run in runs]) <= 0.98
    twice = np.tile(answered(generator, 60, 3, 1).ravel(), 2)
    labels = np.concatenate([question, question + 60]), np.tile(rewrite, 2)
    grouped = variance_components(twice, *labels, groups=np.tile(question, 2))
    assert np.ptp(grouped.question[1:]) > 1.3 * np.ptp(variance_components(twice, *labels).question[1:])


def test_the_best_split_is_the_best_of_all_splits():
    components = VarianceComponents(Estimate(0.02), Estimate(0.03), Estimate(0.12))
    question, rewrite, answer, budget = 5.0, 1.0, 0.5, 200.0
    splits = {
        (int(budget / price), w, k): components.standard_error(int(budget / price), w, k)
        for w, k in product(range(1, 100), repeat=2)
        if (price := question + w * (rewrite + k * answer)) <= budget
    }
    best = components.best_split(budget, question, rewrite, answer)
    assert best[:3] == min(splits, key=splits.__getitem__)
    assert best.standard_error == pytest.approx(min(splits.values()))
    assert best.cost <= budget
    free = components.best_split(100, 0, 0, 1)
    assert free[:3] == (100, 1, 1)
    one_wording = components._replace(rewrite=UNDEFINED)
    assert one_wording.best_split(budget, question, rewrite, answer).rewrites == 1
    assert np.isnan(one_wording.standard_error(10, rewrites=2))
    with pytest.raises(ValueError, match=r"budget must be at least 6\.5, the price of one answer, not 6"):
        components.best_split(6, question, rewrite, answer)
    with pytest.raises(ValueError, match="prices must be at least 0 and not all 0, not 0, 0, 0"):
        components.best_split(6, 0, 0, 0)
