"""Bounds against the enumeration of every answer of tiny models whose probabilities are all known."""

import math
from itertools import product

import numpy as np
import pytest

from robust_eval.model.served.exact.topk_tree import Resolved, precision, token_bounds, unseen_sums

TREES, TEMPERATURES = 250, (0.05, 0.3, 0.7, 1.0, 1.2, 1.7, 2.5, 4.0)
SLACK = 1 + 1e-9


def random_logprobs(random: np.random.Generator, tokens: int) -> np.ndarray:
    """Peaked, flat or in between."""
    logits = random.normal(size=tokens) * random.choice([0.1, 1.0, 3.0, 8.0])
    return logits - np.logaddexp.reduce(logits)


def powers(logprobs: np.ndarray) -> np.ndarray:
    """(V, T), not normalised."""
    return np.exp(logprobs[:, None] / np.array(TEMPERATURES))


@pytest.mark.parametrize("digits", [4, 6])
def test_bounds_of_what_is_not_seen_of_each_token_and_of_paths_hold_the_truth(digits: int) -> None:
    """2,000 trees × temperatures: two steps, of which the first K tokens are seen and the verdicts random."""
    random = np.random.default_rng(digits)
    for _ in range(TREES):
        tokens, k = int(random.integers(4, 30)), int(random.integers(1, 6))
        first, second = (random_logprobs(random, tokens) for _ in range(2))
        verdicts = random.random((tokens, tokens)) < 0.5
        steps = []
        for logprobs in (first, second):
            order = np.argsort(-logprobs)[:k]
            given = logprobs[order].round(digits)
            sums = powers(logprobs)
            unseen = np.delete(sums, order, axis=0).sum(axis=0)
            error = 0.5 * 10.0**-digits
            for most in (tokens, 10 * tokens):
                low, high = unseen_sums(given.tolist(), TEMPERATURES, most, error)
                assert (low <= unseen * SLACK).all()
                assert (unseen <= high * SLACK).all()
                bounds = token_bounds(given.tolist(), TEMPERATURES, most, error)
                truth = sums[order] / sums.sum(axis=0)
                assert (bounds.lower <= truth * SLACK).all()
                assert bounds.likely.sum(axis=0) + bounds.unseen_likely == pytest.approx(1)
            steps.append((order, sums / sums.sum(axis=0), bounds))
        (order, p, one), (order2, p2, two) = steps
        truth = np.einsum("ik,jk,ij->k", p, p2, verdicts.astype(float))
        right, wrong = np.zeros((2, len(TEMPERATURES)))
        for (i, token), (j, following) in product(enumerate(order), enumerate(order2)):
            path = one.lower[i] * two.lower[j]
            assert (path <= p[token] * p2[following] * SLACK).all()
            (right if verdicts[token, following] else wrong)[:] += path
        found = Resolved(right, wrong)
        assert (found.lower <= truth * SLACK).all()
        assert (truth <= found.upper + 1e-12).all()  # it is 1 less what is wrong


def test_at_temperature_1_the_unseen_weigh_what_the_others_leave() -> None:
    bounds = token_bounds([np.log(0.5), np.log(0.25)], [1.0], 100, 0.0)
    assert bounds.lower[:, 0] == pytest.approx([0.5, 0.25])
    assert bounds.likely[:, 0] == pytest.approx([0.5, 0.25])
    assert bounds.unseen_likely == pytest.approx([0.25])


def test_a_whole_vocabulary_leaves_nothing_unseen() -> None:
    logprobs = np.log([0.5, 0.3, 0.2])
    bounds = token_bounds(logprobs.tolist(), [0.5, 2.0], 3, 0.0)
    for column, t in enumerate((0.5, 2.0)):
        truth = np.exp(logprobs / t) / np.exp(logprobs / t).sum()
        assert bounds.lower[:, column] == pytest.approx(truth)
        assert bounds.likely[:, column] == pytest.approx(truth)


def test_a_token_that_is_hidden_may_be_more_probable_than_those_that_are_seen() -> None:
    """Where a server names tokens by their text, one of two that write the same is lost."""
    logprobs = np.log([0.5, 0.4, 0.05, 0.05])
    low, high = unseen_sums([logprobs[0], logprobs[2]], [0.5], 4, 0.0, largest=False)
    assert low[0] <= 0.4**2 + 0.05**2 <= high[0]
    assert unseen_sums([logprobs[0], logprobs[2]], [0.5], 4, 0.0)[1][0] < 0.4**2


@pytest.mark.parametrize(
    ("logprobs", "error"),
    [([-0.5, -1.25], 0.005), ([-0.1234, -2.0], 5e-5), ([-1.0 / 3], 1e-6), ([0.0], 1e-6)],
)
def test_the_precision_is_read_off_the_decimals(logprobs: list[float], error: float) -> None:
    assert precision(logprobs) == pytest.approx(error)


@pytest.mark.parametrize("impossible", [-9999.0, -math.inf])
def test_beside_an_impossible_token_nothing_more_likely_is_unseen(impossible: float):
    low, high = unseen_sums([-1e-6, impossible], [0.5, 1.0, 2.0], 100, 0.0)
    assert low.tolist() == [0.0, 0.0, 0.0]
    assert high[0] == 0.0 < high[1] < high[2]
