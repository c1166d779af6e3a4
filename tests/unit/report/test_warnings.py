import pytest
from json_lines import cases

from robust_eval.report.warnings import few


@pytest.mark.parametrize(
    ("questions", "grouped", "said"), cases(__file__, "below_30_questions_an_interval_is_a_warning")
)
def test_below_30_questions_an_interval_is_a_warning(questions, grouped, said):
    expected = f"Some intervals rest on only {said}: with fewer than 30 they are rough."
    assert few(questions, grouped) == expected


def test_from_30_questions_on_and_of_none_nothing_is_said():
    assert [few(n, grouped) for n in (0, 30, 6000) for grouped in (False, True)] == [""] * 6
