import itertools
import math

import numpy as np
import pytest

from robust_eval.report.branches import BRANCHES, LEAST, Branch, Path, top_branches

LETTERS = "abcdefgh"


def decode(tokens: list[int]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def leaves(branches: list[Branch], before: str = "") -> dict[str, tuple[float, bool, bool | None]]:
    """Every branch by all of its text."""
    found = {}
    for branch in branches:
        found[before + branch.text] = (branch.probability, branch.ends, branch.verdict)
        found |= leaves(branch.branches, before + branch.text)
    return found


def test_a_beginning_has_the_product_of_its_tokens_probabilities():
    logs = [math.log(p) for p in (0.5, 0.4, 0.3)]
    paths = [Path((0, 1, 2), logs, 3, True), Path((0, 3), [logs[0], math.log(0.2)], 2, False)]
    assert leaves(top_branches(paths, decode)) == {
        "a": (pytest.approx(0.5), False, None),
        "ab": (pytest.approx(0.2), False, None),  # goes on as seen in less than nine of ten cases
        "abc": (pytest.approx(0.06), True, True),
        "ad": (pytest.approx(0.1), True, False),
    }


def test_what_nearly_always_goes_on_in_one_way_stands_with_what_follows():
    paths = [Path((0, 1, 2), [math.log(p) for p in (0.5, 0.95, 0.99)], 3, True)]
    assert leaves(top_branches(paths, decode)) == {"abc": (pytest.approx(0.5 * 0.95 * 0.99), True, True)}


def test_an_answer_may_end_where_another_goes_on():
    paths = [Path((0,), [-0.1], 1, False), Path((0, 1), [-0.1, -0.05], 2, True)]
    assert leaves(top_branches(paths, decode)) == {
        "a": (pytest.approx(math.exp(-0.1)), True, False),
        "ab": (pytest.approx(math.exp(-0.15)), True, True),
    }


def test_end_tokens_and_answers_without_log_probabilities_are_left_out():
    paths = [Path((0, 7), [-0.5, -0.1], 1, True), Path((1,), [], 1, True), Path((7,), [-3.0], 0, None)]
    assert leaves(top_branches(paths, decode)) == {"a": (pytest.approx(math.exp(-0.5)), True, True)}


def test_rounding_makes_no_probability_above_one():
    (branch,) = top_branches([Path((0,), [1e-7], 1, True)], decode)
    assert branch.as_data() == ["a", 1.0, 1, 1, []]


def test_of_all_answers_of_a_language_the_most_probable_beginnings_are_shown():
    """Against brute force: all 8 × 8 × 8 answers, of tokens that do not depend on one another."""
    random = np.random.default_rng(0)
    token = random.dirichlet(np.full(8, 0.6), size=3)
    paths = [
        Path(tokens, [math.log(token[place, each]) for place, each in enumerate(tokens)], 3, tokens[0] == 0)
        for tokens in itertools.product(range(8), repeat=3)
    ]
    probability = {
        tokens: math.prod(token[place, each] for place, each in enumerate(tokens))
        for length in (1, 2, 3)
        for tokens in itertools.product(range(8), repeat=length)
    }
    likeliest = sorted(probability, key=lambda tokens: -probability[tokens])[:BRANCHES]
    expected = {decode(list(tokens)): probability[tokens] for tokens in likeliest if probability[tokens] >= LEAST}
    found = {text: branch[0] for text, branch in leaves(top_branches(paths, decode)).items()}
    # A chain of one way stands as its end, so the shown ones are among the likeliest, and none of those is missing
    # that is not the beginning of a shown one.
    assert found == {text: pytest.approx(expected[text]) for text in found}
    assert all(any(shown.startswith(text) for shown in found) for text in expected)
    assert len(found) > BRANCHES / 2
