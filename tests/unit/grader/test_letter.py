import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases

from robust_eval.answer import answer_table
from robust_eval.grader.matching import Matching
from robust_eval.question import LETTERS, Question
from robust_eval.reader.letters import anchored_letter


@pytest.mark.parametrize(("reply", "letter"), cases(__file__, "an_anchored_letter_is_the_answer_and_nothing_else_is"))
def test_an_anchored_letter_is_the_answer_and_nothing_else_is(reply, letter):
    assert anchored_letter(reply, 5) == letter


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (2, ["A", "B", None, None, None, None, None, None, None, None, None]),
        (4, ["A", "B", "C", "D", None, None, None, None, None, None, None]),
        (5, ["A", "B", "C", "D", "E", None, None, None, None, None, None]),
        (10, ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", None]),
    ],
)
@pytest.mark.parametrize("pattern", ["{}", "{}) 4 m/s", "The answer is {}."])
def test_exactly_as_many_letters_as_there_are_choices_are_answers(choices, expected, pattern):
    assert [anchored_letter(pattern.format(letter), choices) for letter in "ABCDEFGHIJK"] == expected


LIKE_REPLIES = st.lists(
    st.sampled_from(["A", "B", "F", "a", "b", "answer", "is", "The", ".", ")", "(", ":", "*", "'", '"', " ", "\n", "4"])
).map("".join)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(reply=st.one_of(st.text(), LIKE_REPLIES), choices=st.integers(2, 10))
def test_every_reply_gives_a_letter_that_it_holds_and_that_is_offered_or_none(reply, choices):
    letter = anchored_letter(reply, choices)
    assert letter is None or (letter in LETTERS[:choices] and letter in reply.upper())


@pytest.mark.parametrize(("reply", "chosen"), cases(__file__, "a_strict_reader_takes_the_letter_and_nothing_else"))
def test_a_strict_reader_takes_the_letter_and_nothing_else(reply: str, chosen: str | None):
    assert anchored_letter(reply, 5, strict=True) == chosen


@pytest.mark.parametrize(("letter", "label", "outcome"), [("anchored", "B", "ok"), ("strict", None, "invalid")])
def test_a_grader_reads_letters_as_its_setting_says(letter: str, label: str | None, outcome: str):
    question = Question("q", "Which?", choices=("1", "2", "3"), correct=1)
    answer = {"question_id": "q", "rewrite": 0, "temperature": 1.0, "trial": 0, "text": "B) 2", "weight": 1.0}
    graded = Matching(letter=letter).grade([question], answer_table([{**answer, "outcome": "ok"}])).to_pylist()[0]
    assert (graded["label"], graded["correct"], graded["outcome"]) == (label, letter == "anchored", outcome)
    choices = Matching(letter=letter).choices(question)
    assert choices is not None
    assert choices.identity == ("letters 3 1" if letter == "anchored" else "letters 3 1 strict")
