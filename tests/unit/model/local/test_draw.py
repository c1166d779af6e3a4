import hashlib

import numpy as np
import pytest
import torch
from scipy import stats

from robust_eval.model.local.draw import LEVELS, LevelDraws, TokenDraws, answer_uniforms


def uniforms(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, LEVELS))


def draw(
    logits: torch.Tensor, node: np.ndarray, temperature: np.ndarray, uniforms: np.ndarray, rows: int = 7
) -> TokenDraws:
    """Draws after prefixes whose logits come in batches of so many rows."""
    draws = LevelDraws(node, temperature, uniforms)
    for batch in logits.split(rows):
        draws.add(batch, batch)
    return draws.result()


def many(logits: torch.Tensor, temperature: float, count: int, seed: int = 0) -> np.ndarray:
    node = np.zeros(count, dtype=np.intp)
    return draw(logits[None], node, np.full(count, temperature), uniforms(count, seed)).tokens


@pytest.mark.parametrize("size", [2, 255, 256, 257, 1000])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_tokens_are_drawn_in_proportion_to_their_weights(size: int, temperature: float):
    logits = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 2
    p = (logits.double() / temperature).softmax(-1).numpy()
    counts = np.bincount(many(logits, temperature, 50_000), minlength=size)
    frequent = p * 50_000 >= 5
    observed = [*counts[frequent], counts[~frequent].sum()]
    expected = [*(p[frequent] * 50_000), p[~frequent].sum() * 50_000]
    if expected[-1] < 1e-9:
        observed, expected = observed[:-1], expected[:-1]
    assert stats.chisquare(observed, expected, sum_check=False).pvalue > 1e-4


def test_there_is_no_bias_at_a_vocabulary_of_150_thousand():
    """Half of the mass on one token, half spread thin over the rest: the thin half must not be lost to rounding."""
    size, count = 150_000, 40_000
    logits = torch.zeros(size)
    logits[77_777] = float(np.log(size - 1))
    tokens = many(logits, 1.0, count)
    heavy = int((tokens == 77_777).sum())
    assert stats.binomtest(heavy, count, 0.5).pvalue > 1e-4
    light = tokens[tokens != 77_777]
    quarters = np.bincount(light * 4 // size, minlength=4)
    assert stats.chisquare(quarters).pvalue > 1e-4


def test_the_log_probability_is_that_of_the_whole_distribution_in_double_precision():
    logits = torch.randn(150_000, generator=torch.Generator().manual_seed(1)) * 3
    drawn = draw(logits[None], np.zeros(50, dtype=np.intp), np.full(50, 1.7), uniforms(50))
    expected = (logits.double() / 1.7).log_softmax(-1)[drawn.tokens]
    assert drawn.sampling_logprobs.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_token_without_probability_is_never_drawn():
    logits = torch.full((600,), -torch.inf)
    logits[[3, 259, 599]] = 0.0
    edge = np.array([[0.0] * LEVELS, [1 - 2**-53] * LEVELS])
    drawn = draw(logits[None], np.zeros(2, dtype=np.intp), np.ones(2), edge)
    assert drawn.tokens.tolist() == [3, 599]
    assert set(many(logits, 1.0, 1000)) == {3, 259, 599}


def test_temperature_zero_takes_the_first_of_the_most_probable_tokens():
    logits = torch.tensor([[0.0, 5.0, 5.0], [9.0, 1.0, 0.0]])
    drawn = draw(logits, np.array([0, 1, 0]), np.zeros(3), uniforms(3))
    assert drawn.tokens.tolist() == [1, 0, 1]
    assert drawn.sampling_logprobs.tolist() == [0.0, 0.0, 0.0]


def test_the_lowest_temperature_is_that_of_the_paper():
    logits = torch.tensor([[0.0, 1e-4, -1.0]])
    count = 20_000
    drawn = many(logits[0], 1e-50, count)
    assert stats.binomtest(int((drawn == 1).sum()), count, 1 / (1 + np.exp(-1))).pvalue > 1e-4  # divided by ε = 1e-4


def test_each_answer_is_drawn_from_its_own_row_at_its_own_temperature():
    logits = torch.randn(30, 700, generator=torch.Generator().manual_seed(2)) * 3
    generator = np.random.default_rng(3)
    node = generator.integers(30, size=500)
    temperature = generator.choice([0.0, 0.2, 1.0, 2.0], size=500)
    u = uniforms(500)
    together = draw(logits, node, temperature, u).tokens
    alone = [
        draw(logits[row][None], np.array([0]), temperature[place : place + 1], own[None]).tokens.item()
        for place, (row, own) in enumerate(zip(node.tolist(), u, strict=True))
    ]
    assert together.tolist() == alone


def test_rounding_of_the_logits_changes_hardly_an_answer():
    """Noise of the size that another kernel or batch shape makes (1e-5) flips less than one token in a thousand."""
    logits = torch.randn(49_152, generator=torch.Generator().manual_seed(4)) * 3
    noise = torch.randn(49_152, generator=torch.Generator().manual_seed(5)) * 1e-5
    flipped = many(logits, 1.5, 20_000) != many(logits + noise, 1.5, 20_000)
    assert flipped.mean() < 1e-3


def test_the_random_numbers_of_an_answer_are_those_of_its_own_philox_stream():
    conditions = [(0.7, 3), (2.0, 0), (0.7, 4)]
    numbers = answer_uniforms(0, "q1", 0, conditions, 5)
    for answer, (temperature, trial) in zip(numbers, conditions, strict=True):
        key = np.frombuffer(hashlib.blake2b(b"0\0q1\x000", digest_size=16).digest(), dtype=np.uint64)
        counter = np.array([0, 0, trial, *np.array([temperature]).view(np.uint64)], dtype=np.uint64)
        stream = np.random.Generator(np.random.Philox(key=key, counter=counter))
        assert np.array_equal(answer, stream.random((5, LEVELS)))


def test_the_random_numbers_of_an_answer_depend_on_nothing_else():
    (one,) = answer_uniforms(0, "q1", 0, [(0.7, 3)], 5)
    assert np.array_equal(one, answer_uniforms(0, "q1", 0, [(2.0, 0), (0.7, 3)], 5)[1])
    assert np.array_equal(one[:2], answer_uniforms(0, "q1", 0, [(0.7, 3)], 2)[0])
    others = [
        (1, "q1", 0, [(0.7, 3)]),
        (0, "q2", 0, [(0.7, 3)]),
        (0, "q1", 1, [(0.7, 3)]),
        (0, "q1", 0, [(0.8, 3), (0.7, 4)]),
    ]
    assert not any(np.isin(answer_uniforms(*other, 5), one).any() for other in others)


def test_the_random_numbers_are_uniform_across_answers():
    conditions = [(t, k) for t in (0.2, 2.0) for k in range(50)]
    sample = np.concatenate([answer_uniforms(0, f"q{q}", 0, conditions, 2).ravel() for q in range(20)])
    assert stats.kstest(sample, "uniform").pvalue > 1e-4
