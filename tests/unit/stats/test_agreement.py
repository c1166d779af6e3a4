import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.stats import agreement
from robust_eval.stats.agreement import (
    Certainty,
    certainty_when_guessing,
    fleiss_kappa,
    free_marginal_kappa,
    gibbs_m2,
    normalized_certainty,
    remapped_kappa,
)

PROPERTY = settings(max_examples=50, deadline=None, database=None, derandomize=True)
WITH_CATEGORIES = [remapped_kappa, free_marginal_kappa, gibbs_m2, normalized_certainty]


@st.composite
def ratings(draw):
    """(n, labels) counts: some rows of one rater or none."""
    width = draw(st.integers(1, 5))
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        number = draw(st.integers(0, 6))
        answers = draw(st.lists(st.integers(0, width - 1), min_size=number, max_size=number))
        rows.append([answers.count(label) for label in range(width)])
    return rows


@st.composite
def ratings_and_categories(draw):
    """Counts, and for each question a number of categories that is no smaller than that of its labels."""
    counts = draw(ratings())
    return counts, [draw(st.integers(max(1, given_labels(row)), 7)) for row in counts]


def given_labels(row):
    return sum(count > 0 for count in row)


def rated(counts):
    return [row for row in counts if sum(row) >= 2]


def agreeing_pairs(counts):
    """The mean over questions of the share of pairs of raters who gave the same label, pair by pair."""
    shares = []
    for row in rated(counts):
        answers = [label for label, count in enumerate(row) for _ in range(count)]
        pairs = list(itertools.combinations(answers, 2))
        shares.append(Fraction(sum(one == other for one, other in pairs), len(pairs)))
    return sum(shares) / len(shares)


def beyond_chance(observed, chance):
    return math.nan if chance == 1 else float((observed - chance) / (1 - chance))


def fleiss_by_loops(counts):
    rows = rated(counts)
    if not rows:
        return math.nan
    chance = Fraction(0)
    for label in range(len(rows[0])):
        chance += (sum(Fraction(row[label], sum(row)) for row in rows) / len(rows)) ** 2
    return beyond_chance(agreeing_pairs(rows), chance)


def free_marginal_by_loops(counts, categories):
    inverse = [Fraction(1, k) for row, k in zip(counts, categories, strict=True) if sum(row) >= 2]
    return beyond_chance(agreeing_pairs(counts), sum(inverse) / len(inverse)) if inverse else math.nan


def gibbs_by_loops(counts, categories):
    certain = []
    for row, k in zip(counts, categories, strict=True):
        if sum(row) < 2:
            continue
        unlike = 1 - sum(Fraction(count, sum(row)) ** 2 for count in row)
        certain.append(Fraction(1) if k == 1 else 1 - Fraction(k, k - 1) * unlike)
    return float(sum(certain) / len(certain)) if certain else math.nan


def certainty_by_loops(counts, categories):
    certain = []
    for row, k in zip(counts, categories, strict=True):
        if sum(row) < 2:
            continue
        logs = [count / sum(row) * math.log(count / sum(row), k) for count in row if count and k > 1]
        certain.append(1 + math.fsum(logs))
    return math.fsum(certain) / len(certain) if certain else math.nan


def remapped_by_enumeration(counts, categories):
    """κ of every choice of an injection for each question that has two raters; all choices are equally likely."""
    questions = []
    for row, k in zip(counts, categories, strict=True):
        if sum(row) >= 2:
            labels = [count for count in row if count]
            questions.append([(labels, places) for places in itertools.permutations(range(k), len(labels))])
    kappas = []
    for choice in itertools.product(*questions):
        table = [[0] * max(categories) for _ in choice]
        for row, (labels, places) in zip(table, choice, strict=True):
            for place, count in zip(places, labels, strict=True):
                row[place] = count
        kappas.append(fleiss_by_loops(table))
    return np.array(kappas)


# fleiss_kappa


@PROPERTY
@given(ratings())
def test_fleiss_kappa_of_any_raters_is_its_definition_written_out_in_loops(counts):
    assert fleiss_kappa(counts) == pytest.approx(fleiss_by_loops(counts), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    "counts",
    [
        [[3], [4]],  # one category
        [[0, 3], [0, 3], [0, 7]],  # one category was used
        [[0, 3]],
        [[0, 3], [1, 0]],  # the other by a rater alone
        [[1, 0], [0, 1], [0, 0]],  # nobody to agree with
        np.zeros((0, 3)),
        np.zeros((3, 0)),
    ],
)
def test_fleiss_kappa_is_undefined_where_chance_agreement_is_1_or_no_question_has_two_raters(counts):
    assert math.isnan(fleiss_kappa(counts))


# remapped_kappa


@PROPERTY
@given(ratings_and_categories(), st.randoms(use_true_random=False), st.integers(0, 100))
def test_labels_may_be_exchanged_within_a_question_without_any_change(rated_questions, random, seed):
    counts, categories = rated_questions
    shuffled = [random.sample(row, len(row)) for row in counts]
    found = remapped_kappa(counts, categories, draws=5, seed=seed)
    np.testing.assert_equal(remapped_kappa(shuffled, categories, draws=5, seed=seed), found)


TINY = {
    "one question": ([[2, 1, 0]], [3]),
    "two questions that look alike": ([[3, 1], [3, 1]], [2, 2]),
    "three questions of three categories": ([[2, 1, 0], [3, 0, 0], [1, 1, 1]], [3, 3, 3]),
    "more categories than labels": ([[3, 1], [0, 4]], [5, 4]),
    "different numbers of categories": ([[2, 2, 0, 0], [2, 1, 1, 0], [1, 1, 1, 1]], [2, 3, 4]),
    "one category": ([[4, 0], [1, 3], [0, 5]], [1, 2, 1]),
    "different numbers of raters": ([[5, 1, 0], [1, 1, 0], [0, 0, 3]], [3, 2, 4]),
    "one rater": ([[1, 0, 0], [2, 0, 1], [0, 0, 0], [0, 3, 1]], [4, 3, 1, 3]),
    "columns beyond the categories": ([[0, 0, 0, 2, 1], [0, 3, 0, 0, 1]], [2, 3]),
}


@pytest.mark.parametrize("part", [agreement._PART, 50])
@pytest.mark.parametrize(("counts", "categories"), TINY.values(), ids=TINY)
def test_remapped_kappa_converges_on_the_mean_over_all_injections(counts, categories, part, monkeypatch):
    monkeypatch.setattr(agreement, "_PART", part)
    every = remapped_by_enumeration(counts, categories)
    draws = 500
    tolerance = 4.5 * every.std() / math.sqrt(draws) + 1e-12
    assert remapped_kappa(counts, categories, draws=draws, seed=1) == pytest.approx(every.mean(), abs=tolerance)


@pytest.mark.parametrize(("counts", "categories"), TINY.values(), ids=TINY)
def test_a_draw_has_the_kappa_of_some_injections_and_every_such_kappa_is_drawn(counts, categories):
    every = set(remapped_by_enumeration(counts, categories).round(9))
    drawn = {round(remapped_kappa(counts, categories, draws=1, seed=seed), 9) for seed in range(400)}
    assert drawn == every


def test_remapping_draws_1000_times_from_seed_0_unless_told_otherwise():
    counts, categories = [[3, 1, 0], [2, 2, 0], [1, 3, 0]], [3, 3, 3]
    found = remapped_kappa(counts, categories)
    assert found == remapped_kappa(counts, categories, draws=1000, seed=0)
    assert len({found, *(remapped_kappa(counts, categories, 1000, seed) for seed in (1, 2, 3))}) == 4
    assert found != remapped_kappa(counts, categories, 999)


def test_remapped_kappa_leaves_out_draws_in_which_all_mass_falls_on_one_category():
    # both questions' only label falls on one of two categories in half of the draws
    assert remapped_kappa([[3, 0], [0, 3]], [2, 2]) == 1.0
    found = [remapped_kappa([[3, 0], [0, 3]], [2, 2], draws=1, seed=seed) for seed in range(40)]
    assert sum(map(math.isnan, found)) + found.count(1.0) == 40
    assert 8 <= found.count(1.0) <= 32


@pytest.mark.parametrize(
    ("counts", "categories"),
    [
        ([[3, 0], [0, 4]], [1, 1]),  # one category
        ([[3, 0]], [4]),  # one label
        ([[1, 0], [0, 1]], [2, 2]),
        ([[0, 0]], [1]),
        (np.zeros((0, 3)), []),
        (np.zeros((2, 0)), [1, 1]),
    ],
)
def test_remapped_kappa_is_undefined_where_labels_cannot_differ_or_no_question_has_two_raters(counts, categories):
    assert math.isnan(remapped_kappa(counts, categories, draws=5))


# free_marginal_kappa, gibbs_m2 and normalized_certainty


@pytest.mark.parametrize(
    ("measure", "by_loops"),
    [
        (free_marginal_kappa, free_marginal_by_loops),
        (gibbs_m2, gibbs_by_loops),
        (normalized_certainty, certainty_by_loops),
    ],
)
@PROPERTY
@given(ratings_and_categories())
def test_a_measure_is_its_definition_written_out_in_loops(measure, by_loops, rated_questions):
    found = measure(*rated_questions)
    assert found == pytest.approx(by_loops(*rated_questions), abs=1e-12, nan_ok=True)
    assert measure is free_marginal_kappa or math.isnan(found) or 0.0 <= found <= 1.0


@pytest.mark.parametrize("certainty", [gibbs_m2, normalized_certainty])
def test_raters_who_all_agree_are_certain_exactly(certainty):
    assert certainty([[3, 0, 0], [0, 7, 0], [0, 0, 2]], [2, 3, 10]) == 1.0


@pytest.mark.parametrize("certainty", [gibbs_m2, normalized_certainty])
@pytest.mark.parametrize("k", range(2, 31))
def test_raters_spread_evenly_over_the_categories_have_certainty_0_and_not_less(certainty, k):
    assert 0.0 <= certainty([[1] * k], [k]) <= 1e-14
    assert 0.0 <= certainty([[4] * k + [0], [2] * k + [0]], [k, k]) <= 1e-14


# what guessing gives (METHODS §2): over all answers that are equally likely


@pytest.mark.parametrize("raters", range(2, 7))
@pytest.mark.parametrize("k", range(1, 5))
def test_both_certainties_of_guessing_are_the_means_over_all_answers_that_guessers_could_give(k, raters):
    answers = list(itertools.product(range(k), repeat=raters))
    counts = [[answer.count(label) for label in range(k)] for answer in answers]
    categories = [k] * len(counts)
    expected = Certainty(normalized_certainty(counts, categories), gibbs_m2(counts, categories))
    assert certainty_when_guessing(k, raters) == pytest.approx(expected, abs=1e-12)


def test_many_guessers_are_spread_evenly_and_a_single_one_says_nothing():
    assert certainty_when_guessing(5, 100_000) == pytest.approx((0, 0), abs=2e-5)
    assert all(map(math.isnan, certainty_when_guessing(5, 1)))


@pytest.mark.parametrize("measure", WITH_CATEGORIES)
def test_arguments_are_left_as_they_are(measure):
    counts, categories = np.array([[1, 3, 0], [0, 2, 2]]), np.array([3, 2])
    measure(counts, categories)
    assert counts.tolist() == [[1, 3, 0], [0, 2, 2]]
    assert categories.tolist() == [3, 2]
