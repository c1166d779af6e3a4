import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import answer_table
from robust_eval.grader.matching import Matching
from robust_eval.question import LETTERS, Question
from robust_eval.reader.letters import anchored_letter


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        # the whole reply is a letter
        ("B", "B"),
        ("b", "B"),
        ("A", "A"),
        ("E", "E"),
        (" C \n", "C"),
        ("\n\nD", "D"),
        ("C.", "C"),
        ("C)", "C"),
        ("C:", "C"),
        ("C\nbecause 2 + 2 is 4, and not D", "C"),
        ("(B)", "B"),
        ("(b)", "B"),
        ("(B).", "B"),
        ("[B]", "B"),
        ("*B*", "B"),
        ("**B**", "B"),
        ("**B.**", "B"),
        ('"B"', "B"),
        ("'B'", "B"),
        ('"B."', "B"),
        # answer is X
        ("The answer is C.", "C"),
        ("The answer is C", "C"),
        ("the answer is c", "C"),
        ("THE ANSWER IS C", "C"),
        ("answer is  C", "C"),
        ("So the correct answer is D because of inertia", "D"),
        ("The answer is (C)", "C"),
        ("The answer is **C**.", "C"),
        ('The answer is "C".', "C"),
        ("The answer is A", "A"),
        ("The answer is a.", "A"),
        ("Answer: C", "C"),
        ("**Answer: C**", "C"),
        ("Answer: **C**", "C"),
        ("The answer is C) 4 m/s", "C"),
        ("The answer is B. Yes, the answer is B.", "B"),
        ("The answer is A. No, the answer is B.", "B"),  # a correction leads to the second
        ("It is B.", "B"),
        ("B. The answer is B.", "B"),
        # X. or X) at the start
        ("B. 4 m/s", "B"),
        ("B) 4 m/s", "B"),
        (" B) 4 m/s", "B"),
        ("A. 3 m/s", "A"),
        ("(B) 4 m/s", "B"),
        ("**B.** 4 m/s", "B"),
        ("**B) 4 m/s**", "B"),
        ('"B) 4 m/s"', "B"),
    ],
)
def test_a_letter_in_an_anchored_place_is_chosen(reply, expected):
    assert anchored_letter(reply, 5) == expected


@pytest.mark.parametrize(
    "reply",
    [
        "A force",
        "A force of 3 N",
        "A body at rest stays at rest.",
        "The answer is a force",
        "The answer is a bigger force.",
        "It is a vector",
        "a force",
    ],
)
def test_the_article_is_no_answer(reply):
    assert anchored_letter(reply, 5) is None


@pytest.mark.parametrize(
    "reply",
    [
        "A or B",
        "A, B",
        "A B",
        "AB",
        "A and B",
        "The answer is A. The answer is B.",
        "A. The answer is B.",
        "The answer is A or B.",
        "The answer is A and B",
        "Answer: A, C",
        "A) or B)",
        "A. or B.",
        "(A) and (C)",
    ],
)
def test_two_letters_are_no_answer(reply):
    assert anchored_letter(reply, 5) is None


@pytest.mark.parametrize(
    "reply",
    [
        # Mixtral's replies to the physics questions (Reganova & Steinbach)
        "A\nB",
        "A\nE",
        "A, D",
        "B,D",
        "A, C, E",
        "ACD",
        "C, F",
        # letters below one another
        "A\nB\nC",
        "A.\nB.",
        "**A**\n\n**B**",
        "Answer: A\nB",
        "A. 3 m/s\nB. 4 m/s",
        # the choices themselves
        "A) B) C) D) E)",
        "A. B. C. D. E.",
        "C) B)",
        "C. A.",
        "A. 3 m/s, B. 4 m/s, C. 5 m/s, D. 6 m/s, E. 7 m/s",
        "A. 3 m/s, B. 4 m/s, …",
        "A. 3 m/s, B",
        "A) 3 m/s; B) 4 m/s",
        "(A) 3 m/s (B) 4 m/s",
        "A. 3 B. 4",
        "B. 3 C. 4 D. 5",
        "B. 4 m/s or C. 5 m/s",
        "The answer is A) 3 m/s, B) 4 m/s",
        # nothing but letters, whatever parts them
        "A - E",
        "A–E",
        "A:E",
        "A. B",
        "A.B.C.",
        "A...E",
        "A。B。",
        "A\nor\nE",
        "[A] [E]",
        "a) e)",
        # said one after the other
        "A\nThe answer is B.",
        "The answer is B.\nThe answer is C.",
        "The answer is A or B because both move.",
        "The answer is A + B",
    ],
)
def test_several_letters_are_no_answer_whatever_parts_them(reply):
    assert anchored_letter(reply, 5) is None


@pytest.mark.parametrize(
    "reply",
    [
        "The answer is A force of 3 N.",
        "The answer is A very large force",
        "Answer: A body at rest",
        "The answer is E = mc²",
        "The answer is B-field",
    ],
)
def test_a_word_or_a_symbol_is_no_letter(reply):
    assert anchored_letter(reply, 5) is None


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (" A\n", "A"),
        ("B\nB", "B"),
        ("B) because A is too small", "B"),
        ("B. 4 m/s, not A. 3 m/s", "B"),
        ("B) 4 m/s (see figure A)", "B"),
        ("B) 4 m/s\n\nExplanation:\nA) is too small.", "B"),
        ("B\n\nQuestion: What is heavier?\nA) lead\nAnswer: A", "B"),
        ("The answer is A because it is lighter.", "A"),
        ("The answer is A, since it is lighter.", "A"),
        ("Answer: D - inertia", "D"),
        # letters that belong to what a choice says
        ("A. A force of 3 N", "A"),
        ("A. Vitamin B", "A"),
        ("B. 5 C.", "B"),
        ("B. The charge is 5 C. It is negative.", "B"),
        ("B. Robert A. Millikan", "B"),
        ("D) D. H. Lawrence", "D"),
        ("E. A and B", "E"),
        ("D) Both (A) and (B)", "D"),
        ("E. E = mc²", "E"),
    ],
)
def test_a_letter_that_says_something_else_does_not_hide_the_answer(reply, expected):
    assert anchored_letter(reply, 5) == expected


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " \n\t ",
        ".",
        "4 m/s",
        "1",
        "1)",
        "I do not know.",
        "None of these",
        "Energy",
        "Because B is too large",
        "The answer is Energy",
        "The answer is D'Alembert's principle",
        "The answer is D’Alembert’s principle",
        "The answer is 4 m/s",
        "The answer is not B",
        "The force\nB",
        "E = mc²",
        "Ä",
        "Β",  # the Greek capital beta
    ],
)
def test_a_reply_without_an_anchored_letter_chooses_none(reply):
    assert anchored_letter(reply, 5) is None


@pytest.mark.parametrize("reply", ["F", "f", "F) 4 m/s", "F. 4 m/s", "The answer is F", "J", "K", "Z", "Z) x"])
def test_a_letter_beyond_the_choices_is_no_answer(reply):
    assert anchored_letter(reply, 5) is None


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


@pytest.mark.parametrize(
    "reply", ["The answer is: B", "The correct answer is: B) 4 m/s", "**Answer:** B", "**Answer**: B"]
)
def test_a_colon_or_emphasis_between_answer_and_letter_does_not_hide_it(reply):
    assert anchored_letter(reply, 5) == "B"


@pytest.mark.parametrize("reply", ["“B”", "‘B’", "The answer is “B”.", "**B**. 4 m/s", "**B**) 4 m/s"])
def test_typographic_quotes_and_emphasis_of_the_letter_alone_do_not_hide_it(reply):
    assert anchored_letter(reply, 5) == "B"


LIKE_REPLIES = st.lists(
    st.sampled_from(["A", "B", "F", "a", "b", "answer", "is", "The", ".", ")", "(", ":", "*", "'", '"', " ", "\n", "4"])
).map("".join)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(reply=st.one_of(st.text(), LIKE_REPLIES), choices=st.integers(2, 10))
def test_every_reply_gives_a_letter_that_it_holds_and_that_is_offered_or_none(reply, choices):
    letter = anchored_letter(reply, choices)
    assert letter is None or (letter in LETTERS[:choices] and letter in reply.upper())


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(letter=st.sampled_from("ABCDE"), before=st.text(alphabet=" \n("), after=st.text(alphabet=" .)*\n"))
def test_a_bare_letter_is_chosen_whatever_stands_around_it(letter, before, after):
    assert anchored_letter(before.replace("\n", "") + letter + after, 5) == letter


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("B", "B"),
        (" b\n", "B"),
        ("B)", None),
        ("B.", None),
        ("B) 4 m/s", None),
        ("The answer is B.", None),
        ("F", None),
    ],
)
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


def test_another_way_of_reading_letters_is_refused():
    with pytest.raises(ValueError, match=r"^grader.letter must be anchored or strict, got loose$"):
        Matching(letter="loose")
