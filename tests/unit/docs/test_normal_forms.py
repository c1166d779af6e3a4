"""Rows of docs/development/normal_forms.md, each graded as it says."""

import re

import pytest
from graded_replies import graded_replies

from robust_eval.config.groups import PROJECT
from robust_eval.grader.matching import Matching

PAGE = (PROJECT / "docs" / "development" / "normal_forms.md").read_text(encoding="utf-8")
EQUAL, BY_DEFAULT, DIFFERENT = "Treated as equal", "Treated as equal by default", "Treated as different"
STRICT = {"grader.spelling": Matching(spelling="strict"), "grader.accents": Matching(accents="keep")}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def verdicts(one: str, other: str, grader: Matching) -> list[bool]:
    return [verdict.correct for verdict in graded_replies([(one, [other]), (other, [one])], grader=grader)]


@pytest.mark.parametrize(("heading", "joined"), [(EQUAL, True), (BY_DEFAULT, True), (DIFFERENT, False)])
def test_every_pair_is_joined_or_kept_apart_in_both_directions(heading: str, joined: bool):
    pairs = [(one, other) for _, one, other, *_ in rows(heading)]
    assert len(pairs) >= 5
    assert [pair for pair in pairs if verdicts(*pair, Matching()) != [joined, joined]] == []


def test_a_reply_is_the_accepted_answer_without_its_footnotes():
    cases = [(reply, [accepted]) for _, reply, accepted, _ in rows("Treated as equal in conversations")]
    assert [verdict.correct for verdict in graded_replies(cases)] == [True] * 3


def test_a_setting_keeps_apart_what_it_names():
    differ = [
        (one, other)
        for _, one, other, setting, _ in rows(BY_DEFAULT)
        if verdicts(one, other, STRICT[setting.strip("`")]) != [False, False]
    ]
    assert differ == []


def test_every_row_has_a_reason():
    assert all(row[-1] for heading in (EQUAL, BY_DEFAULT, DIFFERENT) for row in rows(heading))
