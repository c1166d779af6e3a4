import pytest
from json_lines import cases

from robust_eval.reader.clauses import is_denial, sentences, without_denials, without_doubts


@pytest.mark.parametrize(("text", "named"), cases(__file__, "what_is_denied_supposed_or_said_of_others_is_left_out"))
def test_what_is_denied_supposed_or_said_of_others_is_left_out(text: str, named: bool):
    assert ("Sydney" in without_denials(text)) is named


@pytest.mark.parametrize(
    ("text", "left"), cases(__file__, "candidates_among_which_a_reply_does_not_decide_are_left_out")
)
def test_candidates_among_which_a_reply_does_not_decide_are_left_out(text: str, left: str):
    assert without_doubts(text) == left


def test_an_answer_that_denies_is_no_aside():
    assert [form for form in ("not guilty", "no", "never", "paris", "nothing else matters") if is_denial(form)] == [
        *("not guilty", "no", "never", "nothing else matters"),
    ]


@pytest.mark.parametrize(("text", "expected"), cases(__file__, "sentences_end_where_a_person_would_end_them"))
def test_sentences_end_where_a_person_would_end_them(text: str, expected: list[str]):
    assert sentences(text) == expected
