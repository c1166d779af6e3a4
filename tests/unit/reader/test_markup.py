import pytest
from json_lines import cases

from robust_eval.reader.markup import compatible, plain, without_footnotes, without_template


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
