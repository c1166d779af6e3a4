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


def test_sentences_end_where_a_person_would_end_them():
    text = "Dr. Who met J. R. R. Tolkien. It was 3.5 km away! Was it?\nYes (truly.) 是的。好"
    assert sentences(text) == [
        *("Dr. Who met J. R. R. Tolkien.", "It was 3.5 km away!", "Was it?", "Yes (truly.)", "是的。", "好"),
    ]


def test_an_abbreviation_the_number_of_a_day_and_a_lower_case_letter_go_on_with_a_sentence():
    text = "He was born in St. Louis on the 9. November 1989, e.g. there. iPhones came later."
    assert sentences(text) == [text]


def test_a_year_and_a_unit_end_a_sentence():
    assert sentences("It ended in 1945. He ran 5 km. She won.") == ["It ended in 1945.", "He ran 5 km.", "She won."]


def test_a_blank_text_has_no_sentence():
    assert sentences(" \n ") == []
