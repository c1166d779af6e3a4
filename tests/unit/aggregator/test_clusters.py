import re
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases

from robust_eval.aggregator.clusters import Forms, cluster_names, clusters, repeats

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)


def unit(*vectors: Sequence[float]) -> np.ndarray:
    table = np.array(vectors, dtype=np.float32)
    return table / np.linalg.norm(table, axis=1, keepdims=True)


def at(*degrees: float) -> np.ndarray:
    """Directions in a plane."""
    return unit(*((np.cos(np.radians(angle)), np.sin(np.radians(angle))) for angle in degrees))


def together(forms: Sequence[str], numbers: Sequence[int]) -> set[frozenset[str]]:
    members: dict[int, set[str]] = {}
    for form, number in zip(forms, numbers, strict=True):
        members.setdefault(number, set()).add(form)
    return set(map(frozenset, members.values()))


def agglomerated(forms: Sequence[str], vectors: np.ndarray, threshold: float) -> set[frozenset[str]]:
    """Join the two clusters whose mean distance is smallest, again and again, as long as that is within reach."""
    table = vectors.astype(float)

    def distance(one: int, other: int) -> float:
        numbers = [set(re.findall(r"\d+", forms[form])) for form in (one, other)]
        return np.inf if all(numbers) and numbers[0] != numbers[1] else 1 - float(table[one] @ table[other])

    groups = [[index] for index in range(len(forms))]
    while len(groups) > 1:
        mean = {
            pair: np.mean([distance(one, other) for one in groups[pair[0]] for other in groups[pair[1]]])
            for pair in combinations(range(len(groups)), 2)
        }
        (first, second), nearest = min(mean.items(), key=lambda entry: entry[1])
        if nearest > threshold:
            break
        groups[first] += groups.pop(second)
    return {frozenset(forms[index] for index in group) for group in groups}


NUMBERED = st.lists(st.sampled_from(["", "", "", " 1", " 2", " 1 2"]), min_size=2, max_size=9)


@PROPERTY
@given(NUMBERED, st.integers(0, 2**32 - 1), st.floats(0.05, 1.5))
def test_clusters_are_those_of_average_linkage_step_by_step(endings, seed, threshold):
    forms = [f"{chr(97 + index)}{ending}" for index, ending in enumerate(endings)]
    vectors = unit(*np.random.default_rng(seed).normal(size=(len(forms), 3)))
    assert together(forms, clusters("When?", forms, vectors, threshold)) == agglomerated(forms, vectors, threshold)


def test_average_linkage_takes_the_mean_distance_and_neither_the_nearest_nor_the_farthest():
    # cosine distances: a-b 0.060, b-c 0.152 (32 degrees), a-c 0.384 (52 degrees); mean of ab to c: 0.268
    forms, vectors = ["a", "b", "c"], at(0, 20, 52)
    joined = {
        threshold: together(forms, clusters("When?", forms, vectors, threshold))
        for threshold in (0.05, 0.1, 0.2, 0.26, 0.28)
    }
    pair = {frozenset("ab"), frozenset("c")}
    assert joined == {0.05: {*map(frozenset, "abc")}, 0.1: pair, 0.2: pair, 0.26: pair, 0.28: {frozenset("abc")}}


def test_forms_with_different_numbers_are_apart_however_near_they_are():
    forms = ["in 1945", "in 1946", "1945", "in 1945 or 1946", "-1945", "1945.5"]
    found = together(forms, clusters("When?", forms, at(0, 0, 0, 0, 0, 0), threshold=2))
    assert found == {
        frozenset({"in 1945", "1945"}),
        frozenset({"in 1946"}),
        frozenset({"in 1945 or 1946"}),
        frozenset({"-1945"}),
        frozenset({"1945.5"}),
    }


def test_a_form_without_a_number_brings_no_different_numbers_together():
    forms = ["year", "1945", "1946"]
    found = together(forms, clusters("When?", forms, at(0, 1, 3), threshold=2))
    assert found == {frozenset({"year", "1945"}), frozenset({"1946"})}


@pytest.mark.parametrize(
    ("shorter", "longer", "question"), cases(__file__, "a_form_that_stands_in_another_says_the_same")
)
def test_a_form_that_stands_in_another_says_the_same(shorter: str, longer: str, question: str):
    assert repeats(shorter, longer, question)
    assert repeats(longer, shorter, question)
    # a right angle apart, which is a distance of 1
    assert len(set(clusters(question, [shorter, longer], at(0, 90), threshold=0.2))) == 1


@pytest.mark.parametrize(
    ("shorter", "longer", "question"), cases(__file__, "a_form_that_stands_in_another_says_something_else")
)
def test_a_form_that_stands_in_another_says_something_else(shorter: str, longer: str, question: str):
    assert not repeats(shorter, longer, question)
    assert not repeats(longer, shorter, question)
    assert len(set(clusters(question, [shorter, longer], at(0, 90), threshold=0.2))) == 2


@pytest.mark.parametrize("others", [5, 100])
def test_forms_with_different_numbers_are_apart_whatever_else_is_in_their_clusters(others: int):
    # two tight bunches of wordings 25 degrees (0.094) apart, of which each holds one number
    forms = [
        "1945",
        *(f"a{'x' * index}" for index in range(others)),
        "1946",
        *(f"b{'x' * index}" for index in range(others)),
    ]
    numbers = clusters("When?", forms, at(*[0] * (others + 1), *[25] * (others + 1)), threshold=0.3)
    assert numbers[0] != numbers[others + 1]


def names(forms: dict[str, int], vectors: np.ndarray, threshold: float = 0.3) -> dict[str, str]:
    return cluster_names(Forms("q", "When?", forms, vectors), threshold)


def test_a_cluster_has_the_name_of_its_most_frequent_form():
    forms = {"new york city": 1, "nyc": 3, "big apple": 2, "paris": 1}
    assert names(forms, at(0, 1, 2, 90)) == {
        "new york city": "nyc",
        "nyc": "nyc",
        "big apple": "nyc",
        "paris": "paris",
    }


def test_of_equally_frequent_forms_the_shortest_names_the_cluster_and_of_these_the_first_in_the_alphabet():
    assert set(names({"ccc": 2, "bb": 2, "aa": 2, "a": 1}, at(0, 1, 2, 3)).values()) == {"aa"}
