from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.model.generation import Generation
from robust_eval.model.local.level_outcomes import ENDS, SD_BEGUN, SD_OPEN, SD_OTHER, outcomes
from robust_eval.model.local.vocabulary import BEGUN, OPEN, OTHER, RIGHT, WRONG, OutcomeTable
from robust_eval.model.token_texts import NextTokenOutcomes

SIZE = 700  # more than a block of scores
TEMPERATURES = (0.5, 1.0, 2.0)
SIZES = (1, 3, 2)
ROWS = sum(SIZES)


class Level(NamedTuple):
    """Logits after some prefixes, and the outcome (n, V) of each next token, by itself and as a table."""

    logits: torch.Tensor
    outcomes: np.ndarray
    table: OutcomeTable


def level(seed: int, last: bool) -> Level:
    """A level whose prefixes have three states; most ends are usual in all, some are not, or right in one."""
    random = np.random.default_rng(seed)
    logits = random.integers(-4, 5, size=(ROWS, SIZE)).astype(np.float32)  # many are equal
    logits[:, random.choice(SIZE, size=random.integers(0, 300), replace=False)] = -np.inf
    outcomes = np.full((3, SIZE), OTHER, dtype=np.uint8)
    common = random.choice(SIZE, size=random.integers(0, 40), replace=False)
    for state in outcomes:
        state[random.choice(SIZE, size=random.integers(0, 10), replace=False)] = random.choice([OPEN, BEGUN, RIGHT])
        state[random.choice(SIZE, size=random.integers(0, 4), replace=False)] = WRONG
        state[common] = np.where(random.random(len(common)) < random.choice([0, 0.1, 1]), RIGHT, WRONG)
    if last:
        outcomes[outcomes != RIGHT] = OTHER
        if random.random() < 0.2:
            outcomes[0] = RIGHT  # all of a state
    usual = np.zeros(SIZE, dtype=np.uint8), np.bincount(common, minlength=SIZE).astype(np.uint8) * np.uint8(WRONG)
    states = []
    for state in outcomes:
        base = usual[random.integers(2)]
        tokens = np.flatnonzero((state != base) | (random.random(SIZE) < 0.01))
        states.append(NextTokenOutcomes(base, tokens, state[tokens]))
    chosen = random.integers(0, 3, size=ROWS)
    outcomes = outcomes[chosen]
    table = OutcomeTable.of([states[state] for state in chosen], BEGUN)
    return Level(torch.from_numpy(logits), np.where(outcomes == OTHER, WRONG, outcomes) if last else outcomes, table)


@pytest.mark.parametrize("last", [False, True])
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_ends_and_scores_are_those_of_each_token_by_itself(last: bool, seed: int):
    logits, of_tokens, table = level(seed, last)
    weight = np.random.default_rng(seed).random((ROWS, len(TEMPERATURES)))
    given_weight = None if last else weight
    certain, count = np.array([0, 4]), 0 if last else 3
    found, _ = outcomes(logits, table, given_weight, certain, count, SIZES, 5, TEMPERATURES, Generation())

    powers = np.exp(logits.double().numpy()[:, :, None] / np.array(TEMPERATURES))
    p = powers / powers.sum(axis=1, keepdims=True)
    for row in range(ROWS):
        for column, outcome in enumerate(ENDS):
            tokens = np.flatnonzero(of_tokens[row] == outcome)
            possible = tokens[logits[row, tokens].numpy() > -np.inf]
            likeliest = possible[logits[row, possible].argmax()] if len(possible) else -1
            assert found.ends[row, column] == likeliest
            if not (last and outcome == WRONG):  # then the share is what is left
                assert found.shares[row, column] == pytest.approx(p[row, tokens].sum(axis=0), abs=1e-6)
    if last:
        return
    sds = np.select([of_tokens == OPEN, of_tokens == BEGUN, of_tokens == OTHER], [SD_OPEN, SD_BEGUN, SD_OTHER], 0)
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
