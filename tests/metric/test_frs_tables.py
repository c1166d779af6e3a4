import itertools
import math

import numpy as np
import pytest
from facts_by_hand import answer, score_facts, score_one, trials
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import answer_table
from robust_eval.metric.frs_tables import certainty_bins, type_shares
from robust_eval.question import Question

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)


# certainty_bins


def test_replies_are_counted_by_their_mean_token_probability():
    def reply(temperature, correct, *probabilities, answer_tokens=None):
        logprobs = [math.log(p) for p in probabilities]
        length = len(probabilities) if answer_tokens is None else answer_tokens
        return answer("a", temperature, correct, sampling_logprobs=logprobs, answer_tokens=length)

    table = answer_table(
        [
            reply(1.0, True, 1.0),  # a probability of 1 falls in the last bin
            reply(1.0, True, 0.95),
            reply(1.0, False, 0.99, 0.97),
            reply(0.2, False, 0.95, 0.35),  # mean 0.65; its geometric mean would be 0.58
            reply(0.2, True, 0.95, 0.35, 0.01, answer_tokens=2),  # the end token does not count
            reply(0.2, False, 0.05),
            reply(0.2, True, 0.5, answer_tokens=0),
            answer("a", 0.2, True, answer_tokens=1),
            answer("a", 0.2, None, sampling_logprobs=[0.0], answer_tokens=1),
        ]
    )
    assert certainty_bins(table).to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.0, "right": 0, "wrong": 1},
        {"temperature": 0.2, "certainty_from": 0.6, "right": 1, "wrong": 1},
        {"temperature": 1.0, "certainty_from": 0.9, "right": 2, "wrong": 1},
    ]


@PROPERTY
@given(st.lists(st.tuples(st.floats(0.005, 0.995), st.booleans()), max_size=30))
def test_every_reply_falls_into_the_bin_of_its_certainty(replies):
    # log-probabilities are kept in single precision: none so near an edge
    replies = [(p, correct) for p, correct in replies if abs(p * 10 - round(p * 10)) > 1e-4]
    rows = [answer("a", 0.2, correct, sampling_logprobs=[math.log(p)], answer_tokens=1) for p, correct in replies]
    edges = np.linspace(0, 1, 11)
    right, _ = np.histogram([p for p, correct in replies if correct], edges)
    wrong, _ = np.histogram([p for p, correct in replies if not correct], edges)
    expected = [
        {"temperature": 0.2, "certainty_from": index / 10, "right": right[index], "wrong": wrong[index]}
        for index in range(10)
        if right[index] + wrong[index]
    ]
    assert certainty_bins(answer_table(rows)).to_pylist() == expected


@pytest.mark.parametrize("outcome", ["error", "filtered_prompt", "filtered_reply"])
def test_a_missing_reply_is_in_no_certainty_bin(outcome):
    rows = [
        answer("a", 0.2, True, sampling_logprobs=[0.0], answer_tokens=1),
        answer("a", 0.2, False, outcome, sampling_logprobs=[0.0], answer_tokens=1),
    ]
    assert certainty_bins(answer_table(rows)).to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.9, "right": 1, "wrong": 0}
    ]


def test_the_certainty_bins_are_a_table_of_the_score():
    columns = {"sampling_logprobs": [math.log(0.25)], "answer_tokens": 1}
    score = score_one([*trials("a", 0.2, 3, **columns), *trials("a", 0.4, 1, **columns)])
    assert score.tables["frs_certainty"].to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.2, "right": 3, "wrong": 1},
        {"temperature": 0.4, "certainty_from": 0.2, "right": 1, "wrong": 3},
    ]


# type_shares


def brute_force_shares(scores, types, n):
    """Expected numbers among the n most and the n least robust, over every order in which ties may be broken."""
    top, bottom = dict.fromkeys(sorted(set(types)), 0.0), dict.fromkeys(sorted(set(types)), 0.0)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        ranked = sorted(order, key=lambda index: scores[index])
        for index in ranked[len(ranked) - n :]:
            top[types[index]] += 1 / len(orders)
        for index in ranked[:n]:
            bottom[types[index]] += 1 / len(orders)
    return [(name, top[name], bottom[name]) for name in top]


@settings(PROPERTY, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([0.3, 0.5, 1.0]), st.sampled_from(["HUM", "LOC", "NUM"])), max_size=6))
def test_ties_at_a_cut_count_as_the_mean_over_all_their_orders(facts):
    scores, types = [score for score, _ in facts], [kind for _, kind in facts]
    table = type_shares(np.array(scores), types).to_pylist()
    for row, (name, top, bottom) in zip(table, brute_force_shares(scores, types, len(facts) // 2), strict=True):
        expected = top / (top + bottom) if top + bottom > 1e-9 else math.nan
        assert row["type"] == name
        found = (row["most_robust"], row["least_robust"], row["share_most_robust"])
        assert found == pytest.approx((top, bottom, expected), abs=1e-9, nan_ok=True)


def test_the_types_of_the_most_and_the_least_robust_facts():
    # the two most robust out of 0.9, 1, 1, 1 are two of the three that tie; NaN is no score
    scores = np.array([0.2, 1.0, 0.3, 1.0, np.nan, 1.0])
    table = type_shares(scores, ["HUM", "HUM", "LOC", "LOC", "NUM", "LOC"])
    assert table.column_names == ["type", "most_robust", "least_robust", "share_most_robust"]
    assert table["type"].to_pylist() == ["HUM", "LOC"]
    assert table["most_robust"].to_pylist() == pytest.approx([2 / 3, 4 / 3])
    assert table["least_robust"].to_pylist() == pytest.approx([1, 1])
    assert table["share_most_robust"].to_pylist() == pytest.approx([2 / 5, 4 / 7])


def test_no_more_than_n_facts_are_taken_from_either_end():
    scores = np.arange(10) / 10
    table = type_shares(scores, list("aabbbbbbba"), n=2)
    assert table.to_pylist() == [
        {"type": "a", "most_robust": 1.0, "least_robust": 2.0, "share_most_robust": 1 / 3},
        {"type": "b", "most_robust": 1.0, "least_robust": 0.0, "share_most_robust": 1.0},
    ]


def test_one_fact_alone_is_neither_most_nor_least_robust():
    row = type_shares(np.array([0.5]), ["HUM"]).to_pylist()[0]
    assert row["type"] == "HUM"
    assert [row["most_robust"], row["least_robust"]] == [0.0, 0.0]
    assert math.isnan(row["share_most_robust"])


def test_the_type_shares_are_a_table_of_the_score():
    # scores 1 (a), 7/9 (b), 1/4 (c), 3/4 (d); e has none
    kinds = {"a": "HUM", "b": "HUM", "c": "LOC", "d": "HUM", "e": "NUM"}
    questions = [Question(id=name, text="", type=kind) for name, kind in kinds.items()]
    assert score_facts(questions).tables["frs_types"].to_pylist() == [
        {"type": "HUM", "most_robust": 2.0, "least_robust": 1.0, "share_most_robust": pytest.approx(2 / 3)},
        {"type": "LOC", "most_robust": 0.0, "least_robust": 1.0, "share_most_robust": 0.0},
    ]
