from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from answer_rows import answer_row

from robust_eval.answer import SAMPLER, answer_table
from robust_eval.labels.human_labels import with_human_labels
from robust_eval.labels.label_records import LABELS
from robust_eval.labels.labelling import SampledAnswer, sample
from robust_eval.metric.score import HUMAN_LABEL, HUMAN_LABEL_WEIGHT
from robust_eval.stats.correction import corrected_mean


@pytest.fixture(scope="module")
def graded() -> pa.Table:
    """A thousand answers of 50 questions at two temperatures, a tenth of them wrong, and some without a reply."""
    rows = [
        answer_row(
            f"q{number % 50}",
            temperature=(0.5, 1.0)[number // 500],
            trial=number % 500 // 50,
            text=f"reply {number % 7}",
            correct=None if number % 100 == 99 else number % 10 != 0,
            outcome="error" if number % 100 == 99 else "ok",
            weight=0.1,
        )
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
        for seed in range(100)
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


# --- uncertain answers ------------------------------------------------------------------------------------------------

ANSWERS = 240
GENERATOR = np.random.default_rng(3)
UNCERTAIN = GENERATOR.random(ANSWERS) < 0.12
TRUTH = GENERATOR.random(ANSWERS) < 0.7
VERDICTS = TRUTH ^ (GENERATOR.random(ANSWERS) < np.where(UNCERTAIN, 0.6, 0.04))
"""Verdicts err in 60 % of uncertain answers, and in 4 % of the others."""


@pytest.fixture(scope="module")
def doubted() -> pa.Table:
    """An answer to each of 240 questions, at two temperatures; the text is the number of the answer."""
    rows = [
        answer_row(
            f"q{number}",
            temperature=(0.5, 1.0)[number % 2],
            text=str(number),
            correct=bool(VERDICTS[number]),
            uncertain=bool(UNCERTAIN[number]),
        )
        for number in range(ANSWERS)
    ]
    return answer_table(rows).append_column(SAMPLER, pa.array(["s"] * ANSWERS))


def test_uncertain_answers_come_first_in_turns_with_others_until_all_are_drawn(doubted: pa.Table):
    drawn = sample(doubted, "answer", 100, 0)
    doubts = [bool(UNCERTAIN[int(row.text)]) for row in drawn]
    number = int(UNCERTAIN.sum())
    assert doubts[: 2 * number] == [True, False] * number
    assert not any(doubts[2 * number :])
    assert [row.stratum.endswith(", uncertain") for row in drawn] == doubts
    sizes = {row.stratum: row.stratum_size for row in drawn}
    assert len(sizes) == 8
    assert sum(sizes.values()) == ANSWERS  # of each the number of answers, by which its labels are weighed
    assert sample(doubted, "answer", 40, 0) == drawn[:40]


def test_whole_questions_are_drawn_alike_whether_uncertain_or_not(doubted: pa.Table):
    place = doubted.schema.get_field_index("uncertain")
    certain = doubted.set_column(place, "uncertain", pa.array([False] * ANSWERS))
    assert sample(doubted, "question", 40, 0) == sample(certain, "question", 40, 0)


def corrected(table: pa.Table, drawn: list[SampledAnswer]) -> tuple[float, float]:
    """The corrected mean by true labels of the answers drawn: by their weights, and as if all were drawn alike."""
    labels = [
        {**row._asdict(), "label": "right" if TRUTH[int(row.text)] else "wrong", "labeller": "ann"} for row in drawn
    ]
    labelled = with_human_labels({"s": table}, pa.Table.from_pylist(labels, LABELS))["s"]
    verdicts, people, weights = (
        VERDICTS.astype(float),
        labelled[HUMAN_LABEL].to_numpy(),
        labelled[HUMAN_LABEL_WEIGHT].to_numpy(),
    )
    return corrected_mean(verdicts, people, weights=weights).value, corrected_mean(verdicts, people).value


def test_the_corrected_mean_stays_unbiased_wherever_labelling_stops(doubted: pa.Table):
    truth, seeds = float(TRUTH.mean()), 64
    samples = [sample(doubted, "answer", 90, seed) for seed in range(seeds)]
    for size in (40, 90):  # uncertain answers are half of the first, and fewer of the second
        estimates = np.array([corrected(doubted, drawn[:size]) for drawn in samples])
        (weighed, alike), error = estimates.mean(axis=0), estimates.std(axis=0, ddof=1) / seeds**0.5
        assert abs(weighed - truth) < 3 * error[0]
        assert abs(alike - truth) > 3 * error[1]  # the weights are what keeps it so
