"""Replies that say that they do not know, in the languages of the readers, and those that only look so."""

import json
from pathlib import Path

import pytest

from robust_eval.reader.abstention import abstains

CASES = [json.loads(line) for line in Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["reply"])
def test_a_reply_abstains_if_it_says_that_it_does_not_know_and_nothing_else(case: dict):
    assert abstains(case["reply"]) is case["abstains"]


@pytest.mark.parametrize("reply", [case["reply"] for case in CASES if case["abstains"] and "explicit" not in case])
def test_an_answer_after_an_abstention_ends_it(reply: str):
    assert not abstains(f"{reply}\nCanberra.")
