import itertools
import math

import numpy as np
import pytest
from facts_by_hand import answer, score_facts, score_one, trials
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import answer_table
from robust_eval.metric.frs_tables import certainty_bins, cut_size, type_shares
from robust_eval.metric.score import counted_answers
from robust_eval.question import Question
from robust_eval.stats.interval import SHARE, degenerate_interval

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
    assert certainty_bins(counted_answers(table)).to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.0, "right": 0, "wrong": 1},
        {"temperature": 0.2, "certainty_from": 0.6, "right": 1, "wrong": 1},
        {"temperature": 1.0, "certainty_from": 0.9, "right": 2, "wrong": 1},
    ]


@pytest.mark.parametrize("outcome", ["error", "filtered_prompt", "filtered_reply"])
def test_a_missing_reply_is_in_no_certainty_bin(outcome):
    rows = [
        answer("a", 0.2, True, sampling_logprobs=[0.0], answer_tokens=1),
        answer("a", 0.2, False, outcome, sampling_logprobs=[0.0], answer_tokens=1),
    ]
    assert certainty_bins(counted_answers(answer_table(rows))).to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.9, "right": 1, "wrong": 0}
    ]


def test_the_certainty_bins_are_a_table_of_the_score():
    columns = {"sampling_logprobs": [math.log(0.25)], "answer_tokens": 1}
    score = score_one([*trials("a", 0.2, 3, **columns), *trials("a", 0.4, 1, **columns)])
    assert score.tables["frs_certainty"].to_pylist() == [
        {"temperature": 0.2, "certainty_from": 0.2, "right": 3, "wrong": 1},
        {"temperature": 0.4, "certainty_from": 0.2, "right": 1, "wrong": 3},
    ]


NAN = math.nan


def counts(table):
    """The rows without their intervals."""
    return table.drop_columns(["low", "high"]).to_pylist()


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
    return [(name, types.count(name), top[name], bottom[name]) for name in top]


FACTS = st.lists(st.tuples(st.sampled_from([0.3, 0.5, 1.0]), st.sampled_from(["", "HUM", "LOC", "NUM"])), max_size=6)


@settings(PROPERTY, max_examples=25)
@given(FACTS, st.integers(1, 4))
def test_ties_at_a_cut_count_as_the_mean_over_all_their_orders(facts, wanted):
    scores, types = [score for score, _ in facts], [kind for _, kind in facts]
    n = min(wanted, len(facts) // 2)
    table = type_shares(np.array(scores, dtype=float), types, wanted)
    assert cut_size(table) == n
    for row, (name, number, top, bottom) in zip(table.to_pylist(), brute_force_shares(scores, types, n), strict=True):
        expected = top / (top + bottom) if top + bottom > 1e-9 else NAN
        assert (row["type"], row["questions"]) == (name, number)
        found = (row["most_robust"], row["least_robust"], row["share_most_robust"])
        assert found == pytest.approx((top, bottom, expected), abs=1e-9, nan_ok=True)


def test_one_fact_alone_is_neither_most_nor_least_robust():
    (row,) = type_shares(np.array([0.5]), ["HUM"]).to_pylist()
    assert (row["type"], row["questions"], row["most_robust"], row["least_robust"]) == ("HUM", 1, 0.0, 0.0)
    assert all(math.isnan(row[name]) for name in ("share_most_robust", "low", "high"))


def test_no_fact_has_no_type():
    table = type_shares(np.array([np.nan]), ["HUM"])
    assert (table.num_rows, cut_size(table)) == (0, 0)


def test_the_interval_is_that_of_resampled_questions():
    # of two facts, one draw in two holds both, of which each is at its end; else one is half at either end
    low, high = (type_shares(np.array([0.1, 0.9]), ["HUM", "LOC"])[name].to_pylist() for name in ("low", "high"))
    assert (low, high) == ([0.0, 0.5], [0.5, 1.0])


def test_a_type_at_neither_end_has_no_interval_though_resamples_put_it_there():
    rows = type_shares(np.arange(10.0), ["HUM"] * 4 + ["LOC"] + ["NUM"] * 5, n=3).to_pylist()
    assert [math.isnan(row["share_most_robust"]) for row in rows] == [False, True, False]
    assert [math.isnan(row["low"]) for row in rows] == [False, True, False]


def test_the_interval_resamples_groups_where_questions_have_them():
    # the one group is drawn in every resample
    rows = type_shares(np.array([0.1, 0.2, 0.8, 0.9]), ["HUM", "LOC", "HUM", "LOC"], groups=["p"] * 4).to_pylist()
    assert [row["share_most_robust"] for row in rows] == [0.5] * 2
    assert all(math.isnan(row[bound]) for row in rows for bound in ("low", "high"))  # and says nothing of another group


def test_a_type_at_one_end_in_all_resamples_has_the_exact_interval_and_facts_that_tie_have_none():
    rows = type_shares(np.repeat([0.1, 0.5, 0.9], [10, 40, 10]), ["LOC"] * 10 + ["NUM"] * 40 + ["HUM"] * 10, n=3)
    bounds = [(row["type"], row["low"], row["high"]) for row in rows.to_pylist()]
    assert bounds[0] == ("HUM", *degenerate_interval(1, 10, SHARE))
    assert bounds[1] == ("LOC", *degenerate_interval(0, 10, SHARE))
    tied = type_shares(np.full(60, 0.5), ["HUM", "LOC"] * 30).to_pylist()
    assert [row["share_most_robust"] for row in tied] == [0.5] * 2
    assert all(math.isnan(row[bound]) for row in tied for bound in ("low", "high"))


def test_the_type_shares_are_a_table_of_the_score_and_figures_for_the_types_of_trec():
    # scores 1 (a), 7/9 (b), 1/4 (c), 3/4 (d); e has none
    kinds = {"a": "HUM", "b": "HUM", "c": "LOC", "d": "fish & chips", "e": "NUM"}
    score = score_facts([Question(id=name, text="", type=kind) for name, kind in kinds.items()])
    assert counts(score.tables["frs_types"]) == [
        {"type": "HUM", "questions": 2, "most_robust": 2.0, "least_robust": 0.0, "share_most_robust": 1.0},
        {"type": "LOC", "questions": 1, "most_robust": 0.0, "least_robust": 1.0, "share_most_robust": 0.0},
        {"type": "fish & chips", "questions": 1, "most_robust": 0.0, "least_robust": 1.0, "share_most_robust": 0.0},
    ]
    figures = {name: value.value for name, value in score.values.items() if "most_robust_share" in name}
    assert figures == {"frs.most_robust_share.HUM": 1.0, "frs.most_robust_share.LOC": 0.0}
