"""Replies that say that they do not know, in the languages of the readers, and those that only look so."""

import json
from pathlib import Path

import pytest
from graded_replies import graded_replies

from robust_eval.reader.abstention import abstains
from robust_eval.reader.free_text import read_free_text

CASES = [json.loads(line) for line in Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["reply"])
def test_a_reply_abstains_if_it_says_that_it_does_not_know_and_nothing_else(case: dict):
    assert abstains(case["reply"]) is case["abstains"]


@pytest.mark.parametrize("reply", [case["reply"] for case in CASES if case["abstains"] and "explicit" not in case])
def test_an_answer_after_an_abstention_ends_it(reply: str):
    assert not abstains(f"{reply}\nCanberra.")


@pytest.mark.parametrize(
    "reply", [case["reply"] for case in CASES if case["reply"].startswith("I") and case["abstains"]]
)
def test_an_abstention_is_no_answer_of_one_letter(reply: str):
    for each in (reply, f"Answer: {reply}", f"The answer is {reply}"):
        assert not graded_replies([(each, ["I"])])[0].correct
        assert read_free_text(each).answer.startswith(reply.partition(".")[0].partition(";")[0].partition(",")[0])
