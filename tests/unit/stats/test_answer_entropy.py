import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robust_eval.stats.answer_entropy import answer_entropy, miller_madow

PROPERTY = settings(max_examples=50, deadline=None, database=None, derandomize=True)
COUNTS = st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=6)


@PROPERTY
@given(COUNTS)
def test_answer_entropy_is_the_entropy_of_the_shares(counts):
    expected = [stats.entropy(row) if sum(row) else math.nan for row in counts]
    np.testing.assert_allclose(answer_entropy(counts), expected, atol=1e-14)


@PROPERTY
@given(COUNTS, st.floats(1e-3, 1e3), st.permutations(range(3)))
def test_neither_the_order_of_the_labels_nor_the_scale_of_the_weights_matters(counts, scale, order):
    changed = scale * np.array(counts)[:, order]
    np.testing.assert_allclose(answer_entropy(changed), answer_entropy(counts), atol=1e-12)


def test_answer_entropy_of_hand_computed_counts():
    counts = [[20, 0, 0, 0, 0], [10, 10, 0, 0, 0], [4, 4, 4, 4, 4], [5, 15, 0, 0, 0], [0, 0, 0, 0, 0]]
    expected = [0.0, math.log(2), math.log(5), math.log(4) - 0.75 * math.log(3), math.nan]
    np.testing.assert_allclose(answer_entropy(counts), expected, rtol=1e-14)


@pytest.mark.parametrize("labels", [2, 3, 5, 7, 10])
def test_equally_frequent_labels_have_the_greatest_entropy(labels):
    most = answer_entropy(np.full((1, labels), 3))[0]
    fewer = answer_entropy([[4, 2, *[3] * (labels - 2)]])[0]
    assert most == pytest.approx(math.log(labels), rel=1e-14)
    assert fewer < most


def test_the_entropy_of_a_single_label_is_zero_and_not_minus_zero():
    assert math.copysign(1.0, answer_entropy([[7, 0]])[0]) == 1.0
    assert answer_entropy([[7, 0]])[0] == 0.0


def test_without_questions_there_is_no_entropy():
    assert answer_entropy(np.zeros((0, 5))).shape == (0,)


@pytest.mark.parametrize("counts", [[3, 4], 5, [[[1, 2]]]])
def test_counts_must_be_a_table(counts):
    with pytest.raises(ValueError, match="counts"):
        answer_entropy(counts)


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match="counts"):
        answer_entropy([[3, -1]])


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


def test_the_correction_takes_most_of_the_bias_out():
    """METHODS §3: about 0.1 nat are missing of ln 5 with 20 answers over five equally likely letters."""
    drawn = np.random.default_rng(0).multinomial(20, [0.2] * 5, size=20_000)
    plug_in, corrected = answer_entropy(drawn).mean(), miller_madow(drawn, np.inf).mean()
    assert math.log(5) - plug_in == pytest.approx(0.1, abs=0.015)
    assert abs(math.log(5) - corrected) < 0.01
