"""Rows of questions whose replies are equal."""

import math
from typing import Any

import pyarrow as pa
from answer_rows import answer_row

from robust_eval.answer import SCHEMA
from robust_eval.tracking.result import equal_in_a_row


def replies(question: str, *texts: str, temperature: float = 1.0, **more: Any) -> list[dict[str, Any]]:
    return [
        answer_row(question, temperature=temperature, trial=trial, text=text, **more)
        for trial, text in enumerate(texts)
    ]


def row(*answers: list[dict[str, Any]], questions: str = "abcdef") -> int:
    table = pa.Table.from_pylist([each for group in answers for each in group], SCHEMA)
    return equal_in_a_row({"repetition": table}, list(questions))


def test_questions_with_equal_replies_are_counted_where_they_follow_one_another():
    equal = [replies(question, "x", "x") for question in "abdef"]
    assert row(*equal, replies("c", "x", "y")) == 3
    assert row(*equal, replies("c", "x", "y"), questions="abdefc") == 5
    assert row(*equal, replies("c", "x", "x")) == 6


def test_the_highest_temperature_counts_where_it_is_hot_or_the_model_s_own():
    assert row(replies("a", "x", "x", temperature=0.5)) == 0
    assert row(replies("a", "x", "x", temperature=2.0), replies("a", "x", "y")) == 1
    assert row(replies("a", "x", "x"), replies("a", "x", "y", temperature=2.0)) == 0
    assert row(replies("a", "x", "x", temperature=math.nan)) == 1


def test_one_reply_no_reply_and_a_blank_one_equal_nothing():
    assert row(replies("a", "x"), replies("b", "", ""), replies("c", "x", "x", outcome="error")) == 0
    assert row(replies("a", "x", "x"), replies("a", "", outcome="error")) == 1


def test_each_wording_and_form_has_replies_of_its_own():
    assert row(replies("a", "x", "x"), replies("a", "y", "y", rewrite=1), replies("a", "z", "z", form="turn 1")) == 1
    assert row(replies("a", "x", "x"), replies("a", "y", "z", rewrite=1)) == 0
    assert row(replies("a", "x"), replies("a", "y", rewrite=1)) == 0


def test_nothing_is_asked():
    assert equal_in_a_row({}, ["a"]) == 0
    assert row() == 0
