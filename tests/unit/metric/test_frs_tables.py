import math

import numpy as np
import pytest
from facts_by_hand import answer, score_one, trials
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import answer_table
from robust_eval.metric.frs_tables import certainty_bins

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)


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
