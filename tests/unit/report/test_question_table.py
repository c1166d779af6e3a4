import numpy as np
import pytest

from robust_eval.report.question_table import sample

KINDS = ["kept"] * 2030 + ["wrong"] * 3100 + ["no reply"] * 20
VALUES = np.where(np.arange(5150) < 2030, np.arange(5150) / 2030, np.nan)


def test_every_kind_has_as_many_places_and_a_small_one_leaves_its_own_to_the_others():
    rows = sample(KINDS, VALUES, 2000)
    assert [sum(KINDS[row] == kind for row in rows) for kind in ("kept", "wrong", "no reply")] == [990, 990, 20]
    assert rows.tolist() == sorted(set(rows.tolist()))


def test_both_ends_and_the_middle_of_the_values_are_there():
    kept = [row for row in sample(KINDS, VALUES, 2000) if row < 2030]
    assert kept[:330] == list(range(330))
    assert kept[-330:] == list(range(1700, 2030))
    middle = np.array(kept[330:-330])
    assert len(middle) == 330
    assert np.diff([330, *middle, 1700]).max() <= 5  # 1,370 questions, every fourth or fifth


def test_questions_without_a_value_are_taken_from_everywhere_and_always_the_same():
    wrong = [row for row in sample(KINDS, VALUES, 2000) if KINDS[row] == "wrong"]
    assert np.histogram(wrong, bins=5, range=(2030, 5130))[0] == pytest.approx(np.full(5, 198), abs=40)
    assert sample(KINDS, VALUES, 2000).tolist() == sample(KINDS, VALUES, 2000).tolist()


def test_of_equal_values_not_the_first_are_taken():
    rows = sample(["kept"] * 1000, np.ones(1000), 100)
    assert rows.mean() == pytest.approx(499.5, abs=100)


def test_undefined_values_have_their_share_of_the_middle():
    values = np.where(np.arange(300) % 3 == 0, np.nan, np.arange(300.0))
    rows = sample(["kept"] * 300, values, 90)
    known = [row for row in rows if row % 3]
    assert known[:30] + known[-30:] == [row for row in range(300) if row % 3 and not 45 <= row < 255]
    assert len(known) + 12 == len(rows) == 90  # of 140 known ones between and 100 unknown ones 30 are taken


@pytest.mark.parametrize("most", [0, 1, 2, 5])
def test_few_places_are_all_taken(most: int):
    assert len(sample(["a"] * 9 + ["b"] * 3, np.arange(12.0), most)) == most


def test_of_no_questions_none_are_taken():
    assert sample([], np.zeros(0), 5).tolist() == []
