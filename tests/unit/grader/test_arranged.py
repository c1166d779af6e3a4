from itertools import permutations

import pyarrow as pa
import pytest
from answer_rows import answer_row
from json_lines import cases

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader, with_letters
from robust_eval.prompt.arrangement import Arrangement
from robust_eval.question import Question
from robust_eval.reader.reply import FirstLineReader, ReplyReader

METALS = Question("metals", "Which is liquid?", choices=("iron", "mercury", "tin"), correct=1)
FREE = Question("free", "Who wrote Emma?", ("Austen",))
JUDGE = ReplyGrader(FirstLineReader(), Matching(), first_line=True)


def replies(*said: tuple[str, str, str | None]) -> pa.Table:
    rows = [
        answer_row(question_id, rewrite=number, text=text, form=form)
        for number, (question_id, text, form) in enumerate(said)
    ]
    return answer_table(rows)


def test_a_letter_means_the_same_choice_in_every_order():
    orders = [Arrangement(order) for order in permutations(range(3))]
    said = [("metals", "ABC"[place], each.tag) for each in orders for place in range(3)]
    graded = JUDGE.grade([METALS, FREE], replies(*said, ("metals", "B", None), ("free", "Jane Austen", None)))
    chosen = ["ABC"[each.order[place]] for each in orders for place in range(3)]
    assert graded["label"].to_pylist()[:-1] == [*chosen, "B"]
    assert graded["correct"].to_pylist() == [*(letter == "B" for letter in chosen), True, True]
    asked = replies(*said, ("metals", "B", None), ("free", "Jane Austen", None))
    for name in ("question_id", "text", "form", "rewrite"):
        assert graded[name].to_pylist() == asked[name].to_pylist()


def test_the_text_of_a_choice_in_a_conversation_is_that_choice_wherever_it_stands():
    chat = ReplyGrader(ReplyReader(), Matching(), first_line=False)
    graded = chat.grade([METALS], replies(("metals", "mercury", "choices BAC"), ("metals", "It is C.", "choices ACB")))
    assert graded["label"].to_pylist() == ["B", "B"]
    assert graded["correct"].to_pylist() == [True, True]


def test_numbered_choices_are_read_as_letters_and_in_no_other_form():
    graded = JUDGE.grade(
        [METALS],
        replies(
            ("metals", "2", "choices ABC as numbers"),
            ("metals", "3) tin", "choices ABC as numbers"),
            ("metals", "7", "choices ABC as numbers"),
            ("metals", "2", None),
        ),
    )
    assert graded["label"].to_pylist() == ["B", "C", None, None]
    assert graded["outcome"].to_pylist() == ["ok", "ok", "invalid", "invalid"]


@pytest.mark.parametrize(("reply", "read"), cases(__file__, "a_number_is_a_letter_where_it_is_the_sign_of_a_choice"))
def test_a_number_is_a_letter_where_it_is_the_sign_of_a_choice(reply: str, read: str):
    assert with_letters(reply, ["3 m/s", "4 m/s", "5 m/s"]) == read


def test_answers_to_other_choices_than_a_question_has_are_refused():
    with pytest.raises(UserError) as problem:
        JUDGE.grade([METALS], replies(("metals", "A", "choices CABD")))
    assert str(problem.value) == ("question metals has 3 choices, but the prompt of an answer had 4 (choices CABD)")
