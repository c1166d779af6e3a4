import itertools
import math

import numpy as np
import pytest

from robust_eval.report.question_details import MAX_BRANCHES, MIN_PROBABILITY, Branch, Path, top_branches

LETTERS = "abcdefgh"


def decode(tokens: list[int]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def leaves(branches: list[Branch], before: str = "") -> dict[str, tuple[float, str]]:
    """Every branch by all of its text."""
    found = {}
    for branch in branches:
        found[before + branch.text] = (branch.probability, branch.verdict)
        found |= leaves(branch.branches, before + branch.text)
    return found


def test_a_beginning_has_the_product_of_its_tokens_probabilities():
    logs = [math.log(p) for p in (0.5, 0.4, 0.3)]
    paths = [Path((0, 1, 2), logs, 3, True), Path((0, 3), [logs[0], math.log(0.2)], 2, False)]
    assert leaves(top_branches(paths, decode).branches) == {
        "a": (pytest.approx(0.5), ""),
        "ab": (pytest.approx(0.2), ""),  # goes on as seen in less than nine of ten cases
        "abc": (pytest.approx(0.06), "right"),
        "ad": (pytest.approx(0.1), "wrong"),
    }


def test_what_nearly_always_goes_on_in_one_way_stands_with_what_follows():
    paths = [Path((0, 1, 2), [math.log(p) for p in (0.5, 0.95, 0.99)], 3, True)]
    assert leaves(top_branches(paths, decode).branches) == {"abc": (pytest.approx(0.5 * 0.95 * 0.99), "right")}


def test_an_answer_may_end_where_another_goes_on():
    paths = [Path((0,), [-0.1], 1, False), Path((0, 1), [-0.1, -0.05], 2, True)]
    assert leaves(top_branches(paths, decode).branches) == {
        "a": (pytest.approx(math.exp(-0.1)), "wrong"),
        "ab": (pytest.approx(math.exp(-0.15)), "right"),
    }


def test_end_tokens_and_answers_without_log_probabilities_are_left_out():
    paths = [Path((0, 7), [-0.5, -0.1], 1, True), Path((1,), [], 1, True), Path((7,), [-3.0], 0, None)]
    assert leaves(top_branches(paths, decode).branches) == {"a": (pytest.approx(math.exp(-0.5)), "right")}


def test_rounding_makes_no_probability_above_one():
    (branch,) = top_branches([Path((0,), [1e-7], 1, True)], decode).branches
    assert branch.as_data() == ["a", "100", "right", [["right", 1]], [], []]


def test_the_answers_of_every_branch_are_counted_by_their_verdicts_those_that_are_not_shown_too():
    """Nine first tokens of ten likely, and each goes on in one of 40 ways, of which each fourth is right."""
    follows = [math.log(0.9 / 40)] * 40
    paths = [Path((0, 10 + way), [math.log(0.9), each], 2, way % 4 == 0) for way, each in enumerate(follows)]
    paths += [Path((0,), [math.log(0.9)], 1, None), Path((1,), [math.log(1e-4)], 1, True)]
    tree = top_branches([*paths, *paths], lambda tokens: "".join(map(str, tokens)))
    assert tree.counts == {"right": 11, "wrong": 30, "not judged": 1}
    assert tree.hidden == {"right": 1}
    (first,) = tree.branches
    assert (first.verdict, first.counts) == ("not judged", {"right": 10, "wrong": 30, "not judged": 1})
    assert len(first.branches) == MAX_BRANCHES - 1
    assert sum((branch.counts for branch in first.branches), first.hidden) == {"right": 10, "wrong": 30}


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
    likeliest = sorted(probability, key=lambda tokens: -probability[tokens])[:MAX_BRANCHES]
    expected = {
        decode(list(tokens)): probability[tokens] for tokens in likeliest if probability[tokens] >= MIN_PROBABILITY
    }
    found = {text: branch[0] for text, branch in leaves(top_branches(paths, decode).branches).items()}
    # A chain of one way stands as its end, so the shown ones are among the likeliest, and none of those is missing
    # that is not the beginning of a shown one.
    assert found == {text: pytest.approx(expected[text]) for text in found}
    assert all(any(shown.startswith(text) for shown in found) for text in expected)
    assert len(found) > MAX_BRANCHES / 2
