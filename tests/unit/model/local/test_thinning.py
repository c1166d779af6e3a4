from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.model.local.thinning import (
    BLOCK,
    ThinnedSample,
    TreeScores,
    certain_and_random,
    score_blocks,
    systematic_shares,
)

PROPERTY = settings(max_examples=100, deadline=None, database=None, derandomize=True)
SCORES = {
    "even": np.ones(12),
    "rising": np.arange(1.0, 13.0),
    "one heavy": np.array([0.1, 0.2, 50.0, 0.3, 0.4, 0.1]),
    "several heavy": np.array([9.0, 0.01, 8.0, 0.02, 7.0, 0.03, 0.04, 0.05, 6.0]),
    "with zeros": np.array([0.0, 1.0, 0.0, 3.0, 2.0, 0.0, 1.0, 0.5, 0.0]),
    "many sizes": np.random.default_rng(0).lognormal(sigma=3, size=60),
    "many": np.random.default_rng(1).lognormal(sigma=4, size=9 * 512 + 100),
}


def inclusion(scores: np.ndarray, count: int) -> np.ndarray:
    """min(1, score / c) with the c, found by bisection, for which these add up to ``count``."""
    low, high = 0.0, scores.sum()
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1, scores / c).sum() > count else (low, c)
    return np.minimum(1, scores / high)


def blocks(rows: np.ndarray) -> torch.Tensor:
    scores = score_blocks(len(rows), rows.shape[1], torch.device("cpu"))
    scores.flatten(1)[:-1, : rows.shape[1]] = torch.tensor(rows)
    return scores


def thin(
    scores: torch.Tensor, sizes: Sequence[int], counts: Sequence[int], uniforms: Sequence[float]
) -> list[ThinnedSample]:
    """The candidates that are kept in each tree, with indices in the flat blocks."""
    trees = TreeScores(scores, sizes)
    largest = [part.numpy() for part in trees.largest(max(counts) + 1)]
    none = np.zeros(largest[0].shape, dtype=bool)
    is_certain, random_draws = certain_and_random(largest[0].astype(float), none, largest[2], np.array(counts))
    certain = [places[chosen] for places, chosen in zip(largest[1], is_certain, strict=True)]
    shares = systematic_shares(np.array(uniforms), random_draws)
    sampled = trees.sample(torch.from_numpy(np.concatenate(certain)), torch.from_numpy(shares))
    samples = []
    for first, draws, places, score, total in zip(certain, random_draws.tolist(), *sampled, strict=True):
        random = (score[:draws] * draws / total).clamp(max=1)
        index = np.concatenate([first, places[:draws]])
        samples.append(ThinnedSample.of(index, np.concatenate([np.ones(len(first)), random])))
    return samples


def keep(scores: np.ndarray, count: int, uniform: float) -> ThinnedSample:
    return thin(blocks(scores[None]), [1], [count], [uniform])[0]


@PROPERTY
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 1.0, 7.0, 50.0]), st.booleans()), min_size=1), st.integers(0, 6))
def test_excluded_candidates_are_as_absent(candidates: list[tuple[float, bool]], count: int):
    scores, excluded = map(np.array, zip(*sorted(candidates, reverse=True), strict=True))
    rest = scores[~excluded]
    total, counts = np.array([rest.sum()]), np.array([count])
    is_certain, draws = certain_and_random(scores[None], excluded[None], total, counts)
    alone, alone_draws = certain_and_random(rest[None], np.zeros((1, len(rest)), dtype=bool), total, counts)
    assert not is_certain[0, excluded].any()
    assert is_certain[0, ~excluded].tolist() == alone[0].tolist()
    assert draws.tolist() == alone_draws.tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_each_candidate_is_kept_with_its_probability(scores: np.ndarray, count: int):
    expected = inclusion(scores, count)
    grid = 100
    shares = np.zeros(len(scores))
    for step in range(grid):
        kept = keep(scores, count, (step + 0.5) / grid)
        index = kept.index
        assert len(index) == count
        assert (np.diff(index) > 0).all()
        assert kept.probability == pytest.approx(expected[index], rel=1e-6)
        shares[index] += 1 / grid
    # systematic: each is kept on at most two intervals of uniforms, the ends of which are rounded to the grid
    assert shares == pytest.approx(expected, abs=4 / grid)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_sums_over_what_is_kept_are_unbiased(count: int):
    # With scores that are multiples of 1/200 of the sum, cells of the fine grid lie wholly in or out: no rounding.
    random = np.random.default_rng(count)
    weights = random.multinomial(200, np.full(8, 1 / 8))
    values = random.normal(size=8)
    grid = 200
    total = 0.0
    for step in range(grid):
        kept = keep(weights / 200, count, (step + 0.5) / grid)
        total += float((values[kept.index] / kept.probability).sum()) / grid
    assert weights.max() * count < 200  # none is certain
    assert total == pytest.approx(values.sum(), rel=1e-6)


def test_a_light_tail_leaves_no_place_empty():
    random = np.random.default_rng(1)
    for trial in range(50):
        scores = random.lognormal(sigma=4, size=3000)
        for uniform in (0.0, 0.5, np.nextafter(1, 0)):
            assert len(keep(scores, 40, uniform).index) == 40, trial


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=5)
)
def test_the_choice_for_a_tree_does_not_depend_on_the_trees_beside_it(trees):
    sizes, counts, uniforms = zip(*trees, strict=True)
    width = 2 * BLOCK + 30
    values = np.random.default_rng(sum(sizes)).choice(
        [0.0, 0.5, 1.0, 7.0], size=(sum(sizes), width), p=[0.9, 0.08, 0.01, 0.01]
    )
    scores = blocks(values)
    together = thin(scores.clone(), sizes, counts, uniforms)
    first = 0
    for tree, (size, count, uniform) in enumerate(trees):
        (alone,) = thin(blocks(values[first : first + size]), [size], [count], [uniform])
        beside = replace(together[tree], index=together[tree].index - first * scores[0].numel())
        assert beside.index.tolist() == alone.index.tolist()
        assert beside.probability.tolist() == alone.probability.tolist()
        flat = values[first : first + size].ravel()
        assert len(alone.index) == min(count, int((flat > 0).sum()))
        first += size


@PROPERTY
@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=30),
    st.integers(1, 8),
    st.floats(0, 1, exclude_max=True),
)
def test_as_many_as_wanted_are_kept_and_none_of_score_zero(scores, count, uniform):
    scores = np.array(scores)
    kept = keep(scores, count, uniform)
    index = kept.index
    positive = int((scores > 0).sum())
    assert len(index) == len(set(index.tolist())) == min(count, positive)
    assert (scores[index] > 0).all()
    assert (np.diff(index) > 0).all()
    assert (kept.probability > 0).all()
    assert (kept.probability <= 1).all()
    expected = inclusion(scores, count) if positive > count else np.ones(len(scores))
    assert kept.probability == pytest.approx(expected[index], rel=1e-6)
