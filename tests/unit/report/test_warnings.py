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
