from collections import Counter

import pyarrow as pa
import pytest

from robust_eval.answer import SAMPLER, answer_table
from robust_eval.labels.label_sample import sample


@pytest.fixture(scope="module")
def graded() -> pa.Table:
    """A thousand answers of 50 questions at two temperatures, a tenth of them wrong, and some without a reply."""
    rows = [
        {
            "question_id": f"q{number % 50}",
            "rewrite": 0,
            "temperature": (0.5, 1.0)[number // 500],
            "trial": number % 500 // 50,
            "text": f"reply {number % 7}",
            "correct": None if number % 100 == 99 else number % 10 != 0,
            "outcome": "error" if number % 100 == 99 else "ok",
            "weight": 0.1,
        }
        for number in range(1000)
    ]
    return answer_table(rows).append_column(SAMPLER, pa.array(["temperature_sweep"] * 1000))


def test_strata_have_labels_as_the_square_root_of_their_size(graded: pa.Table):
    drawn = sample(graded, "answer", 80, 0)

    names = [f"temperature_sweep, t = {t}, {verdict}" for t in (0.5, 1) for verdict in ("right", "wrong")]
    sizes = [445, 50, 445, 50]
    assert {row.stratum: row.stratum_size for row in drawn} == dict(zip(names, sizes, strict=True))
    shares = [size**0.5 / sum(each**0.5 for each in sizes) for size in sizes]
    counts = Counter(row.stratum for row in drawn)
    assert [counts[name] for name in names] == [pytest.approx(80 * share, abs=1) for share in shares]
    assert len(set(drawn)) == 80


def test_a_larger_sample_begins_with_the_smaller_one_and_a_seed_makes_another(graded: pa.Table):
    assert sample(graded, "answer", 80, 0)[:30] == sample(graded, "answer", 30, 0)
    assert sample(graded, "question", 9, 0)[: 3 * 20 - 1] == sample(graded, "question", 3, 0)[: 3 * 20 - 1]
    assert sample(graded, "answer", 80, 1) != sample(graded, "answer", 80, 0)


def test_every_answer_of_a_stratum_is_drawn_as_often(graded: pa.Table):
    counts = Counter(
        row[:6]
        for seed in range(200)
        for row in sample(graded, "answer", 40, seed)
        if row.stratum.endswith("0.5, wrong")
    )
    assert len(counts) == 50
    assert max(counts.values()) < 4 * sum(counts.values()) / 50


def test_whole_questions_have_all_their_answers_that_count(graded: pa.Table):
    drawn = sample(graded, "question", 5, 0)

    ids = {row.question_id for row in drawn}
    assert len(ids) == 5
    counted = graded.filter(pa.array([each is not None for each in graded["correct"].to_pylist()]))
    assert len(drawn) == sum(each in ids for each in counted["question_id"].to_pylist())
