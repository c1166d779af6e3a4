import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.aggregator.base import ENSEMBLE, EqualText, with_votes
from robust_eval.answer import SCHEMA, answer_table
from robust_eval.question import Question

PROPERTY = settings(max_examples=80, deadline=None, database=None, derandomize=True)
QUESTIONS = [Question("q1", "One?"), Question("q2", "Two?")]


def answer(rewrite, label, question_id="q1", trial=0, temperature=1.0, outcome="ok", text=None):
    return {
        "question_id": question_id,
        "rewrite": rewrite,
        "temperature": temperature,
        "trial": trial,
        "text": f"{label} {rewrite}" if text is None else text,
        "label": label,
        "outcome": outcome,
        "weight": 1.0,
    }


def by_last_digit(pairs: Sequence[tuple[Question, str]]) -> list[float]:
    return [float(text[-1]) for _, text in pairs]


def elected(rows, rank=None):
    """The places of the rows that were voted for; by the first answer of equals, or by the rank."""
    table = answer_table(rows)
    voted = EqualText().aggregate(QUESTIONS, table) if rank is None else with_votes(QUESTIONS, table, rank)
    assert voted.select(SCHEMA.names) == table
    return [row for row, mark in enumerate(voted[ENSEMBLE].to_pylist()) if mark]


def test_the_first_answer_of_the_most_frequent_label_is_elected():
    assert elected([answer(i, label) for i, label in enumerate("abcbb")]) == [1]


def test_the_best_ranked_answer_of_the_most_frequent_label_is_elected():
    rows = [
        answer(0, "a", text="a 9"),
        answer(1, "b", text="b 1"),
        answer(2, "b", text="b 7"),
        answer(3, "b", text="2"),
    ]
    assert elected(rows, by_last_digit) == [2]


def test_of_equally_ranked_answers_the_first_is_elected_by_rewrite_and_then_by_trial():
    rows = [
        answer(2, "b", trial=0, text="b 5"),
        answer(1, "b", trial=1, text="beta 5"),
        answer(1, "b", trial=0, text="bee 5"),
        answer(0, "a", text="a 9"),
    ]
    assert elected(rows, by_last_digit) == [2]


def test_a_tie_goes_to_the_label_of_the_original_question_though_another_is_ranked_better():
    rows = [
        answer(0, "a", text="a 1"),
        answer(1, "b", text="b 9"),
        answer(2, "b", text="b 8"),
        answer(3, "a", text="a 2"),
    ]
    assert elected(rows, by_last_digit) == [3]
    assert elected(rows) == [0]


def test_a_tie_without_the_label_of_the_original_question_goes_to_the_best_ranked_answer():
    labels = ["c", "a", "b", "b", "a"]
    texts = ["c 9", "a 1", "b 2", "b 8", "a 7"]
    rows = [answer(i, label, text=text) for i, (label, text) in enumerate(zip(labels, texts, strict=True))]
    assert elected(rows, by_last_digit) == [3]
    assert elected(rows) == [1]  # all rank the same: the first


@pytest.mark.parametrize("outcome", ["invalid", "error", "filtered_reply"])
def test_a_tie_goes_to_the_best_ranked_answer_where_the_original_question_was_not_answered(outcome: str):
    rows = [answer(0, None, outcome=outcome, text=""), answer(1, "a", text="a 1"), answer(2, "b", text="b 2")]
    assert elected(rows, by_last_digit) == [2]


def test_a_tie_goes_to_the_original_question_if_only_a_later_trial_of_it_was_answered():
    # docs/methods.md, §2: ties go to the cluster that holds q_0's answer; here q_0 has one answer that can be counted
    rows = [
        answer(0, None, trial=0, outcome="invalid", text=""),
        answer(0, "a", trial=1, text="a 1"),
        answer(1, "b", trial=0, text="b 9"),
        answer(1, None, trial=1, outcome="invalid", text=""),
    ]
    assert elected(rows, by_last_digit) == [1]


@pytest.mark.parametrize("outcome", ["filtered_prompt", "filtered_reply", "error", "refused", "empty", "invalid"])
def test_what_is_no_answer_has_no_vote_whatever_label_it_was_given(outcome: str):
    rows = [answer(0, "a", outcome=outcome), answer(1, "a", outcome=outcome), answer(2, "b"), answer(3, None)]
    assert elected(rows) == [2]


def test_a_question_whose_answers_have_no_label_elects_none():
    rows = [answer(0, None), answer(1, None, outcome="invalid"), answer(0, "a", question_id="q2")]
    assert elected(rows) == [2]
    assert elected(rows[:2]) == []
    assert elected([]) == []


def test_questions_and_temperatures_vote_apart():
    rows = [
        *(answer(i, label, temperature=0.5) for i, label in enumerate("abb")),
        *(answer(i, label, temperature=1.5) for i, label in enumerate("aab")),
        *(answer(i, label, temperature=1.5, question_id="q2") for i, label in enumerate("baa")),
    ]
    assert elected(rows) == [1, 3, 7]


def test_trials_vote_as_rewrites_do():
    assert elected([answer(0, label, trial=trial) for trial, label in enumerate("abb")]) == [1]
    rows = [answer(rewrite, label, trial=trial) for rewrite, trial, label in [(0, 0, "a"), (0, 1, "b"), (1, 0, "b")]]
    assert elected(rows) == [1]


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
