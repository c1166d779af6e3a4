import numpy as np
import pytest

from robust_eval.model.base import NEGLIGIBLE, normalize_to_accuracy


def test_weights_of_each_prompt_and_verdict_are_scaled_to_its_accuracy_at_each_temperature():
    random = np.random.default_rng(0)
    prompts = np.repeat([0, 1, 2], [6, 9, 3])
    right = np.array([True] * 2 + [False] * 4 + [True] * 8 + [False] + [False] * 3)
    weights, accuracy = random.lognormal(sigma=4, size=(18, 5)), random.random((3, 5))
    found = normalize_to_accuracy(right, weights, accuracy, prompts)
    merged = 0
    for prompt, verdict in ((0, True), (0, False), (1, True), (1, False), (2, False)):
        rows = np.flatnonzero((prompts == prompt) & (right == verdict))
        for column in range(5):
            target = accuracy[prompt, column] if verdict else 1 - accuracy[prompt, column]
            shares = weights[rows, column] / weights[rows, column].sum() * target
            expected = np.where(shares < NEGLIGIBLE, 0, shares)
            expected[shares.argmax()] = target - np.delete(expected, shares.argmax()).sum()
            assert found[rows, column] == pytest.approx(expected, abs=1e-15)
            merged += int((expected == 0).sum())
    assert merged > 0


def test_an_undefined_accuracy_gives_undefined_weights():
    weights = normalize_to_accuracy(np.array([True, False]), np.ones((2, 1)), np.array([[np.nan]]), np.zeros(2, int))
    assert np.isnan(weights).all()
