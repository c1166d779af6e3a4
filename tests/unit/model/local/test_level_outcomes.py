from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.model.generation import Generation
from robust_eval.model.local.level_outcomes import (
    BEGUN,
    ENDS,
    OPEN,
    RIGHT,
    SD_BEGUN,
    SD_OPEN,
    SD_OTHER,
    SETS,
    WRONG,
    outcomes,
)
from robust_eval.model.local.vocabulary import NextTokenSets, TokenSets

SIZE = 700  # more than a block of scores
TEMPERATURES = (0.5, 1.0, 2.0)
SIZES = (1, 3, 2)
ROWS = sum(SIZES)


class Level(NamedTuple):
    """Logits after some prefixes, and the side (n, V) of each next token, as a place in ``SETS``; −1 for none."""

    logits: torch.Tensor
    sides: np.ndarray
    sets: TokenSets


def level(seed: int, last: bool) -> Level:
    """A level whose prefixes have three states; most ends are common to all, some are not, or right in one."""
    random = np.random.default_rng(seed)
    logits = random.integers(-4, 5, size=(ROWS, SIZE)).astype(np.float32)  # many are equal
    logits[:, random.choice(SIZE, size=random.integers(0, 300), replace=False)] = -np.inf
    sides = np.full((3, SIZE), -1)
    common = random.choice(SIZE, size=random.integers(0, 40), replace=False)
    for state in sides:
        state[random.choice(SIZE, size=random.integers(0, 10), replace=False)] = random.choice([OPEN, BEGUN, RIGHT])
        state[random.choice(SIZE, size=random.integers(0, 4), replace=False)] = WRONG
        state[common] = np.where(random.random(len(common)) < random.choice([0, 0.1, 1]), RIGHT, WRONG)
    if last:
        sides[sides != RIGHT] = -1
        if random.random() < 0.2:
            sides[0] = RIGHT  # all of a state
    states = [NextTokenSets(*(np.flatnonzero(state == side) for side in range(len(SETS))), common) for state in sides]
    chosen = random.integers(0, 3, size=ROWS)
    sets = TokenSets.of_rows([states[state] for state in chosen], *SETS)
    sides = sides[chosen]
    return Level(torch.from_numpy(logits), np.where(sides < 0, WRONG, sides) if last else sides, sets)


@pytest.mark.parametrize("last", [False, True])
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_ends_and_scores_are_those_of_each_token_by_itself(last: bool, seed: int):
    logits, sides, sets = level(seed, last)
    weight = np.random.default_rng(seed).random((ROWS, len(TEMPERATURES)))
    given_weight = None if last else weight
    certain, count = np.array([0, 4]), 0 if last else 3
    found, _ = outcomes(logits, sets, given_weight, certain, count, SIZES, 5, TEMPERATURES, Generation())

    powers = np.exp(logits.double().numpy()[:, :, None] / np.array(TEMPERATURES))
    p = powers / powers.sum(axis=1, keepdims=True)
    for row in range(ROWS):
        for side in range(ENDS):
            tokens = np.flatnonzero(sides[row] == side)
            possible = tokens[logits[row, tokens].numpy() > -np.inf]
            likeliest = possible[logits[row, possible].argmax()] if len(possible) else -1
            assert found.ends[row, side] == likeliest
            if not (last and side == WRONG):  # then the share is what is left
                assert found.shares[row, side] == pytest.approx(p[row, tokens].sum(axis=0), abs=1e-6)
    if last:
        return
    sds = np.select([sides == OPEN, sides == BEGUN, sides < 0], [SD_OPEN, SD_BEGUN, SD_OTHER], 0)
    scores = sds * np.sqrt(((weight[:, None] * p) ** 2).sum(axis=-1))
    largest, _, totals = found.largest
    bounds = np.cumsum((0, *SIZES))
    for tree, (start, stop) in enumerate(pairwise(bounds)):
        expected = np.sort(scores[start:stop].ravel())[::-1][: largest.shape[1]]
        assert largest[tree] == pytest.approx(expected, rel=0.02)
        assert totals[tree] == pytest.approx(scores[start:stop].sum(), rel=0.02)
    for place, row in enumerate(certain):
        possible = np.where(scores[row] > 0, logits[row], -np.inf)
        assert found.logits[place].tolist() == np.sort(possible)[::-1][:count].tolist()
        assert logits[row, found.tokens[place]].tolist() == found.logits[place].tolist()
        assert found.scores[place] == pytest.approx(scores[row, found.tokens[place]], rel=0.02)
