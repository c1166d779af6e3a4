import pytest
from json_lines import cases

from robust_eval.reader.markup import compatible, plain, without_footnotes, without_reasoning, without_template


@pytest.mark.parametrize(("reply", "said"), cases(__file__, "marks_of_a_template_and_further_turns_go"))
def test_marks_of_a_template_and_further_turns_go(reply: str, said: str):
    assert without_template(reply) == said


@pytest.mark.parametrize(("reply", "text"), cases(__file__, "markup_goes_and_the_text_stays"))
def test_markup_goes_and_the_text_stays(reply: str, text: str):
    assert plain(reply) == text


def test_full_width_and_circled_letters_are_letters():
    assert compatible("（Ｃ）, Ⓒ or ⒞") == "(C), C or (c)"


@pytest.mark.parametrize(("text", "without"), cases(__file__, "footnote_marks_glued_to_a_word_go"))
def test_footnote_marks_glued_to_a_word_go(text: str, without: str):
    assert without_footnotes(text) == without


@pytest.mark.parametrize(("reply", "spoken"), cases(__file__, "what_is_said_after_the_reasoning_is_left"))
def test_what_is_said_after_the_reasoning_is_left(reply: str, spoken: str):
    assert without_reasoning(reply) == spoken


@pytest.mark.parametrize("reply", cases(__file__, "reasoning_that_does_not_end_leaves_nothing"))
def test_reasoning_that_does_not_end_leaves_nothing(reply: str):
    assert without_reasoning(reply) is None
