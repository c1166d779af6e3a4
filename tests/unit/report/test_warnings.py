import pytest
from json_lines import cases

from robust_eval.report.warnings import few, unread


@pytest.mark.parametrize(
    ("questions", "grouped", "said"), cases(__file__, "below_30_questions_an_interval_is_a_warning")
)
def test_below_30_questions_an_interval_is_a_warning(questions, grouped, said):
    expected = f"Some intervals rest on only {said}: with fewer than 30 they are rough."
    assert few(questions, grouped) == expected


def test_from_30_questions_on_and_of_none_nothing_is_said():
    assert [few(n, grouped) for n in (0, 30, 6000) for grouped in (False, True)] == [""] * 6


def test_replies_without_an_answer_are_as_many_as_their_reasons_are_together():
    enumerated = {"invalid.no_letter": 13.7, "outcomes.empty": 10.7}
    assert unread(enumerated) == "25 replies, none of which counts as right (no letter: 14, empty: 11)"


def test_a_half_of_a_reply_that_is_shown_as_none_is_not_mentioned():
    assert unread({"invalid.no_letter": 0.5, "outcomes.empty": 0.5}) == ""
    some = {"invalid.no_letter": 0.5, "outcomes.empty": 1.5}
    assert unread(some) == "2 replies, none of which counts as right (empty: 2)"
