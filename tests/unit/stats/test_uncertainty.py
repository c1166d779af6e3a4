import math
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from json_lines import json_lines

from robust_eval.stats.uncertainty import (
    auroc,
    coverage_at_risk,
    error_ranking,
    prediction_rejection_ratio,
    risk_coverage,
)

PEERS = json_lines(Path(__file__).with_name("lm_polygraph.jsonl"))
"""Values of lm-polygraph 0.7: ROCAUC, PredictionRejectionArea of the accuracy and of its oracle, and their ratio."""


def drawn(seed: int, n: int, levels: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Uncertainties, in so many levels if any, and verdicts that depend on them."""
    random = np.random.default_rng(seed)
    uncertainty = random.normal(size=n)
    correct = (random.random(n) < 1 / (1 + np.exp(uncertainty))).astype(float)
    return (np.round(uncertainty * levels) / levels if levels else uncertainty), correct


@pytest.mark.parametrize("case", PEERS, ids=lambda case: f"n = {len(case['correct'])}")
def test_auroc_and_areas_are_those_of_lm_polygraph(case: dict):
    uncertainty, correct = np.array(case["uncertainty"]), np.array(case["correct"])
    assert auroc(uncertainty, correct) == pytest.approx(case["auroc"], abs=1e-12)
    assert 1 - risk_coverage(uncertainty, correct).area == pytest.approx(case["area"], abs=1e-12)
    chance = correct.mean()
    ratio = (case["area"] - chance) / (case["oracle"] - chance)
    assert prediction_rejection_ratio(uncertainty, correct) == pytest.approx(ratio, abs=1e-12)
    assert ratio == pytest.approx(case["prr"], abs=0.02)  # there random rejection is simulated


def test_ties_are_averaged_over_all_orders():
    uncertainty, correct = np.array([0.0, 1.0, 1.0, 1.0, 2.0, 2.0]), np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    risks = []
    for order in permutations(range(6)):
        if all(uncertainty[a] <= uncertainty[b] for a, b in pairwise(order)):
            risks.append(np.cumsum(1 - correct[list(order)]) / np.arange(1, 7))
    curve = risk_coverage(uncertainty, correct)
    np.testing.assert_allclose(curve.risk, np.mean(risks, axis=0))
    assert curve.area == pytest.approx(np.mean(risks))


def test_random_uncertainties_score_nothing_and_the_truth_everything():
    random = np.random.default_rng(1)
    correct = (random.random(300) < 0.7).astype(float)
    figures = [error_ranking(random.random(300), correct) for _ in range(400)]
    for name, expected in (("auroc", 0.5), ("prr", 0.0), ("caught", 0.2)):
        values = [getattr(each, name).estimate.value for each in figures]
        assert abs(np.mean(values) - expected) <= 3 * np.std(values) / math.sqrt(len(values)), name
    truth = error_ranking(1 - correct, correct)
    assert (truth.auroc.estimate.value, truth.prr.estimate.value) == (1.0, pytest.approx(1.0))
    assert error_ranking(correct, correct).auroc.estimate.value == 0.0


@pytest.mark.parametrize("levels", [0, 4])
def test_the_value_of_a_question_is_its_influence_and_the_mean_is_the_figure(levels: int):
    """Each question counted twice moves a figure by its influence over n + 1, in large samples."""
    uncertainty, correct = drawn(2, 400, levels)
    figures = error_ranking(uncertainty, correct)
    for name in ("auroc", "prr", "aurc"):
        figure = getattr(figures, name)
        assert figure.by_question.mean() == pytest.approx(figure.estimate.value, abs=1e-12)
        twice = [
            getattr(error_ranking(np.append(uncertainty, u), np.append(correct, y)), name).estimate.value
            for u, y in zip(uncertainty[:60], correct[:60], strict=True)
        ]
        moved = 401 * (np.array(twice) - figure.estimate.value) + figure.estimate.value
        np.testing.assert_allclose(figure.by_question[:60], moved, rtol=0.03, atol=0.02)


@pytest.mark.parametrize("size", [1, 4])
def test_intervals_cover_the_true_value(size: int):
    """Of 300 intervals 92 % to 98 % hold it; benchmarks/uncertainty.py has more simulations, sizes and kinds."""
    random, held = np.random.default_rng(3), np.zeros(3)
    true = [figure.estimate.value for figure in error_ranking(*drawn(4, 400_000))][:3]
    groups = np.repeat(np.arange(100), size) if size > 1 else None
    for _ in range(300):
        shared = np.repeat(random.normal(size=100), size) * math.sqrt(0.3 if size > 1 else 0)
        uncertainty = shared + random.normal(size=100 * size) * math.sqrt(0.7 if size > 1 else 1)
        correct = (random.random(len(uncertainty)) < 1 / (1 + np.exp(uncertainty))).astype(float)
        figures = error_ranking(uncertainty, correct, groups)[:3]
        held += [each.estimate.low <= value <= each.estimate.high for each, value in zip(figures, true, strict=True)]
    assert np.all((held >= 0.92 * 300) & (held <= 0.98 * 300)), held


def test_the_paired_difference_of_two_uncertainties_is_as_wide_as_that_of_delong():
    """DeLong's variance by its placements, over right and over wrong answers; ours divides by all questions."""
    one, correct = drawn(5, 3000)
    other = one + np.random.default_rng(6).normal(size=3000)
    difference = error_ranking(one, correct).auroc.by_question - error_ranking(other, correct).auroc.by_question
    wrong, right = correct == 0, correct == 1

    def placements(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        above = (u[wrong][:, None] > u[right]) + 0.5 * (u[wrong][:, None] == u[right])
        return above.mean(axis=1), above.mean(axis=0)

    parts = [first - second for first, second in zip(placements(one), placements(other), strict=True)]
    variance = sum(part.var(ddof=1) / len(part) for part in parts)
    assert difference.var(ddof=1) / 3000 == pytest.approx(variance, rel=1e-3)


def test_the_least_sure_hold_all_errors_of_a_perfect_ranking_and_ties_at_the_cut_count_in_part():
    assert error_ranking(range(10), [1] * 8 + [0] * 2).caught.estimate.value == pytest.approx(1)
    assert error_ranking([0] * 6 + [1] * 4, [1] * 6 + [0] * 4).caught.estimate.value == pytest.approx(0.5)


def test_coverage_is_the_largest_share_that_a_threshold_accepts():
    correct = np.array([1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    (value,) = coverage_at_risk(range(12), correct, [0.1])
    assert value.value == pytest.approx(10 / 12)
    assert value.low == 0
    (tied,) = coverage_at_risk([0] * 10 + [1] * 10, [1] * 10 + [1] * 5 + [0] * 5, [0.1])
    assert tied.value == 0.5
    assert coverage_at_risk([0.5, 0.5], [0, 1], [0.1])[0].value == 0
    (of_one_group,) = coverage_at_risk(range(4), [1, 1, 1, 0], [0.1], ["g"] * 4)
    assert of_one_group.value == 0.75
    assert math.isnan(of_one_group.low)
    (of_errors,) = coverage_at_risk([0] * 200, [0] * 200, [0.1])
    assert of_errors.value == 0
    assert math.isnan(of_errors.low)
    assert math.isnan(coverage_at_risk([], [], [0.1])[0].value)


@pytest.mark.parametrize("groups", [None, np.arange(400) // 4])
def test_the_bounds_of_coverage_hold_it(groups):
    uncertainty = np.linspace(-4, 4, 400)
    correct = (np.random.default_rng(7).random(400) < 1 / (1 + np.exp(uncertainty))).astype(float)
    for estimate in coverage_at_risk(uncertainty, correct, [0.05, 0.1, 0.2], groups):
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.low < estimate.high


def test_figures_without_both_verdicts_are_undefined_and_questions_without_values_are_left_out():
    assert math.isnan(auroc([1, 2], [1, 1]))
    assert math.isnan(prediction_rejection_ratio([1, 2], [0, 0]))
    assert error_ranking([1, 2], [0, 0]).aurc.estimate.value == 1
    assert math.isnan(error_ranking([], []).aurc.estimate.value)
    uncertainty, correct = drawn(9, 50)
    more, also = np.append(uncertainty, [math.nan, 1.0]), np.append(correct, [1.0, math.nan])
    for figure, same in zip(error_ranking(more, also), error_ranking(uncertainty, correct), strict=True):
        assert figure.estimate == same.estimate
        assert np.isnan(figure.by_question[-2:]).all()
    assert auroc([-math.inf, 0, math.inf], [1, 1, 0]) == 1
