"""Searches that are read off one evaluation, against searches that expand one prefix after the other."""

import heapq

import numpy as np
import pytest
import torch
from support.frontier import Expanded, Searches, expanded
from toy_language import ALL, DEPTH, GRID, MATCHER, PIECES, Table, truth, vocabulary

from robust_eval.model.base import Request
from robust_eval.model.generation import Generation
from robust_eval.prompt.prompt import Prompt

REQUEST = Request("q", 0, Prompt("", (), "q"), GRID, 0, DEPTH, 0, matcher=MATCHER)
SCORES = np.vstack([np.eye(len(ALL)), np.full(len(ALL), 1 / len(ALL))])
MOST, WIDTHS = 40, (1, 5)
ENDS = {0, PIECES.index(b"\n"), PIECES.index(b"\n\n")}


def searched(language: int, most: int = MOST) -> Expanded:
    searches = Searches(ALL, SCORES, most, WIDTHS)
    return expanded(Table(language), REQUEST, [1], vocabulary(), Generation(), searches)


def settled(path: tuple[int, ...]) -> bool | None:
    """Whether an answer is right that ends here, or is right whatever follows; None if it goes on."""
    *begun, token = path
    text = b"".join(PIECES[each] for each in begun)
    if token in ENDS or len(path) == DEPTH:
        return MATCHER.right(vocabulary().answer(text + PIECES[token]).decode())
    return True if MATCHER.next_tokens(text, vocabulary().texts).decided[token] else None


def after(table: Table, path: tuple[int, ...]) -> np.ndarray:
    """The probabilities (V, T) of the next tokens."""
    temperatures = torch.tensor(ALL, dtype=torch.float64)
    return (table.logits(path).double()[:, None] / temperatures).softmax(dim=0).numpy()


@pytest.mark.parametrize("language", range(4))
@pytest.mark.parametrize("score", SCORES)
def test_a_frontier_that_expands_the_likeliest_first_has_the_same_bounds_after_each_step(
    language: int, score: np.ndarray
):
    found, table = searched(language), Table(language)
    frontier = [(-1.0, (), np.ones(len(ALL)))]
    lower, upper = np.zeros(len(ALL)), np.ones(len(ALL))
    for step in range(1, MOST + 1):
        _, path, probability = heapq.heappop(frontier)
        for token, share in enumerate(after(table, path)):
            verdict, reached = settled((*path, token)), probability * share
            if verdict is None:
                heapq.heappush(frontier, (-float(reached @ score), (*path, token), reached))
            elif verdict:
                lower = lower + reached
            else:
                upper = upper - reached
        bounds = found.bounds(found.best(score, step))
        assert bounds[0] == pytest.approx(lower, abs=1e-5)
        assert bounds[1] == pytest.approx(upper, abs=1e-5)


@pytest.mark.parametrize("language", range(4))
def test_a_beam_keeps_the_likeliest_at_each_step_and_counts_all_that_ends_rightly_after_them(language: int):
    found, table = searched(language), Table(language)
    for w, width in enumerate(WIDTHS):
        for t in range(len(ALL)):
            beam, lower = [((), 1.0)], 0.0
            for _ in range(DEPTH):
                following = []
                for path, probability in beam:
                    for token, share in enumerate(after(table, path)[:, t]):
                        verdict = settled((*path, token))
                        lower += probability * share * bool(verdict)
                        if verdict is None:
                            following.append(((*path, token), probability * share))
                beam = sorted(following, key=lambda one: -one[1])[:width]
            assert found.beam_bounds()[w, t] == pytest.approx(lower, abs=1e-5)


def test_with_prefixes_enough_both_bounds_are_the_truth():
    found, expected = searched(2, most=10_000), truth(Table(2))
    lower, upper = found.bounds(found.best(SCORES[-1], 10_000))
    assert lower == pytest.approx(expected, abs=1e-5)
    assert upper == pytest.approx(expected, abs=1e-5)
