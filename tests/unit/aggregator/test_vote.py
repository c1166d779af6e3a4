import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from answer_rows import answer_row
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import json_lines

from robust_eval.aggregator.base import ENSEMBLE, EqualText, with_votes
from robust_eval.answer import SCHEMA, answer_table
from robust_eval.question import Question

PROPERTY = settings(max_examples=80, deadline=None, database=None, derandomize=True)
QUESTIONS = [Question("q1", "One?"), Question("q2", "Two?")]


def answer(rewrite, label, question_id="q1", trial=0, temperature=1.0, outcome="ok", text=None):
    return answer_row(
        question_id,
        rewrite=rewrite,
        temperature=temperature,
        trial=trial,
        text=f"{label} {rewrite}" if text is None else text,
        label=label,
        outcome=outcome,
    )


def by_last_digit(pairs: Sequence[tuple[Question, str]]) -> list[float]:
    return [float(text[-1]) for _, text in pairs]


def elected(rows, rank=None):
    """The places of the rows that were voted for; by the first answer of equals, or by the rank."""
    table = answer_table(rows)
    voted = EqualText().aggregate(QUESTIONS, table) if rank is None else with_votes(QUESTIONS, table, rank)
    assert voted.select(SCHEMA.names) == table
    return [row for row, mark in enumerate(voted[ENSEMBLE].to_pylist()) if mark]


COLUMNS = ("question_id", "temperature", "rewrite", "trial", "label", "text", "outcome")
CASES = json_lines(Path(__file__).with_suffix(".jsonl"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_the_elected_answers_are_those_of_the_cases(case):
    """Of equals the ``first``, and by a rank, which is the last digit of the text, the ``best``."""
    rows = [answer_row(**dict(zip(COLUMNS, each, strict=True))) for each in case["answers"]]
    assert "first" not in case or elected(rows) == case["first"]
    assert "best" not in case or elected(rows, by_last_digit) == case["best"]


def test_the_vote_is_a_column_of_its_own_that_is_never_null():
    table = EqualText().aggregate(QUESTIONS, answer_table([answer(0, "a"), answer(1, None)]))
    assert table.schema.names == [*SCHEMA.names, "ensemble"]
    assert table.schema.field("ensemble").type == pa.bool_()
    assert table["ensemble"].to_pylist() == [True, False]


def test_the_rank_is_asked_once_of_the_distinct_texts_of_the_winners_alone_and_of_single_ones_not_at_all():
    asked = []

    def rank(pairs: Sequence[tuple[Question, str]]) -> list[float]:
        asked.append(sorted((question.id, text) for question, text in pairs))
        return [0.0] * len(pairs)

    rows = [
        *(
            answer(i, label, text=text)
            for i, (label, text) in enumerate(zip("abbb", ["a", "B", "b", "B"], strict=True))
        ),
        *(answer(i, "b", text=text, temperature=0.5) for i, text in enumerate(["b", "b!"])),
        *(answer(i, "c", question_id="q2", text="C.") for i in range(3)),
        *(answer(i, label, question_id="q2", temperature=0.5) for i, label in enumerate("abb")),
    ]
    elected(rows, rank)
    elected(rows[6:9], rank)
    assert asked == [[("q1", "B"), ("q1", "b"), ("q1", "b!"), ("q2", "b 1"), ("q2", "b 2")]]


def test_the_same_text_fits_each_question_in_its_own_way():
    rows = [answer(i, "a", question_id=name, text=text) for name in ("q1", "q2") for i, text in enumerate("xy")]
    assert elected(rows, lambda pairs: [(text == "y") == (question.id == "q1") for question, text in pairs]) == [1, 2]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["q1", "q2"]),
        st.sampled_from([0.5, 1.5]),
        st.integers(0, 3),  # rewrite
        st.integers(0, 1),  # trial
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["ok", "ok", "ok", "refused", "error"]),
        st.integers(0, 9),  # rank
    ),
    max_size=24,
    unique_by=lambda row: row[:4],
)


@PROPERTY
@given(ROWS, st.integers(0, 2**16))
def test_one_answer_of_a_most_frequent_label_is_elected_and_always_the_same(drawn, seed):
    rows = [
        answer(rewrite, label, question_id, trial, temperature, outcome, f"{label} {rank}")
        for question_id, temperature, rewrite, trial, label, outcome, rank in drawn
    ]
    winners = [rows[place] for place in elected(rows, by_last_digit)]
    votes: dict[tuple[str, float], list[str]] = {}
    for row in rows:
        if row["label"] is not None and row["outcome"] == "ok":
            votes.setdefault((row["question_id"], row["temperature"]), []).append(row["label"])
    assert sorted((row["question_id"], row["temperature"]) for row in winners) == sorted(votes)
    for row in winners:
        labels = votes[row["question_id"], row["temperature"]]
        assert row["outcome"] == "ok"
        assert labels.count(row["label"]) == max(map(labels.count, labels))
    shuffled = random.Random(seed).sample(rows, len(rows))
    again = [shuffled[place] for place in elected(shuffled, by_last_digit)]
    key = ("question_id", "temperature", "rewrite", "trial")
    assert sorted(again, key=lambda row: [row[name] for name in key]) == sorted(
        winners, key=lambda row: [row[name] for name in key]
    )
