import ast
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robust_eval.config.groups import PROJECT
from robust_eval.stats.entropy import FAMILIES, answer_entropy, entropy_of, miller_madow

RECORDED = PROJECT.parent / "shared" / "data" / "physics_mcq"


@pytest.mark.parametrize("fixed", [fixed for family in FAMILIES.values() for fixed in family])
def test_every_curve_is_the_entropy_of_its_shares_and_begins_where_they_sum_to_the_error_rate(fixed):
    for error, entropy in zip(np.linspace(0, 1, 21), entropy_of(np.linspace(0, 1, 21), *fixed), strict=True):
        rest = round(error - sum(fixed), 9)
        if rest < 0:
            assert math.isnan(entropy)
        else:
            assert entropy == pytest.approx(stats.entropy([1 - error, *fixed, rest]), abs=1e-8)


def test_the_first_point_of_a_curve_is_there_in_spite_of_rounding():
    assert 0.3 < 0.1 + 0.2
    assert entropy_of(0.3, 0.1, 0.2) == pytest.approx(stats.entropy([0.7, 0.1, 0.2]))


def test_the_families_are_those_of_the_paper():
    assert FAMILIES[2] == ((),)
    assert FAMILIES[3] == ((0.1,), (0.3,), (0.5,), (0.7,), (0.9,))
    assert FAMILIES[4] == ((0.3, 0.05), (0.3, 0.1), (0.3, 0.3), (0.3, 0.5), (0.3, 0.65))
    tenths = [tuple(round(10 * share) for share in fixed) for fixed in FAMILIES[5]]
    combinations = itertools.product(range(1, 11), repeat=3)
    assert set(tenths) == {tuple(sorted(shares)) for shares in combinations if sum(shares) < 10}
    assert len(set(tenths)) == len(tenths) == 23


def test_an_entropy_has_the_shape_of_the_error_rate_and_nan_where_that_is_nan():
    error = np.array([[0.5, math.nan, 1 + 2e-16]])
    np.testing.assert_allclose(entropy_of(error), [[math.log(2), math.nan, 0]], atol=1e-15)


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded answers of the paper are not here")
@pytest.mark.parametrize(
    ("file", "accuracy", "entropy", "invalid"),
    [
        ("mlphys101_responses_llama.txt", 0.5615, 0.5314, 0),
        ("mlphys101_responses_gpt_corrected.txt", 0.4002, 0.9634, 831),
    ],
)
def test_the_recorded_answers_of_the_paper(file, accuracy, entropy, invalid):
    gold = json.loads((RECORDED / "mlphys101_gt_answers.jsonl").read_text(encoding="utf-8"))
    replies = [ast.literal_eval(line) for line in (RECORDED / file).read_text(encoding="utf-8").splitlines()]
    counts = np.array([[said.count(letter) for letter in "ABCDE"] for said in replies])
    assert counts.shape == (len(gold), 5) == (823, 5)
    assert sum(said.count(None) for said in replies) == 823 * 20 - counts.sum() == invalid
    right = counts[np.arange(len(gold)), [question["ans"] for question in gold]]
    error, found = 1 - right / counts.sum(axis=1), answer_entropy(counts)
    assert (round(1 - error.mean(), 4), round(found.mean(), 4)) == (accuracy, entropy)
    smallest = entropy_of(error)
    assert np.all(found >= smallest - 1e-12)
    one_right_one_wrong = (right > 0) & (np.count_nonzero(counts, axis=1) == 2)
    assert one_right_one_wrong.sum() > 50
    np.testing.assert_allclose(found[one_right_one_wrong], smallest[one_right_one_wrong], atol=1e-12)


PROPERTY = settings(max_examples=50, deadline=None, database=None, derandomize=True)
COUNTS = st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=6)


@PROPERTY
@given(COUNTS)
def test_answer_entropy_is_the_entropy_of_the_shares(counts):
    expected = [stats.entropy(row) if sum(row) else math.nan for row in counts]
    np.testing.assert_allclose(answer_entropy(counts), expected, atol=1e-14)


def test_the_entropy_of_a_single_label_is_zero_and_not_minus_zero():
    assert math.copysign(1.0, answer_entropy([[7, 0]])[0]) == 1.0
    assert answer_entropy([[7, 0]])[0] == 0.0


@PROPERTY
@given(COUNTS)
def test_the_correction_of_miller_and_madow_is_half_of_the_labels_but_one_by_the_answers(counts):
    corrected = miller_madow(counts, math.log(3))
    for row, found in zip(counts, corrected, strict=True):
        if not sum(row):
            assert math.isnan(found)
            continue
        labels = sum(1 for number in row if number)
        assert found == pytest.approx(min(stats.entropy(row) + (labels - 1) / (2 * sum(row)), math.log(3)), abs=1e-12)
