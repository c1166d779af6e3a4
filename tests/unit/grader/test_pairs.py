"""Pairs of answers that a person would call the same, and pairs that she would call different."""

from pathlib import Path

from graded_replies import graded_replies
from json_lines import json_lines

CASES = Path(__file__).parent
SAME = json_lines(CASES / "pairs_same.jsonl")
DIFFERENT = json_lines(CASES / "pairs_different.jsonl")
NOT_SAID = {("Henry VIII", "Henry the Eighth")}
"""Pairs that the normal forms cannot join; docs/development/normal_forms.md names them."""


def wrong(pairs: list[dict[str, str]], same: bool) -> set[tuple[str, str]]:
    verdicts = graded_replies([(pair["reply"], [pair["answer"]]) for pair in pairs])
    return {
        (pair["answer"], pair["reply"])
        for pair, verdict in zip(pairs, verdicts, strict=True)
        if verdict.correct is not same
    }


def test_pairs_that_a_person_calls_the_same_are_the_same_but_for_those_that_the_docs_name():
    assert wrong(SAME, same=True) == NOT_SAID


def test_pairs_that_a_person_calls_different_are_different():
    assert wrong(DIFFERENT, same=False) == set()
