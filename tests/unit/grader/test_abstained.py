"""Outcome, label and verdict of replies that say that they do not know."""

from types import SimpleNamespace

import pytest
from answer_rows import answer_row

from robust_eval.answer import ABSTENTION, answer_table
from robust_eval.grader.base import Grader
from robust_eval.grader.judge_model import JudgeModel
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.prompt.arrangement import Arrangement
from robust_eval.question import UNANSWERABLE, Question
from robust_eval.reader.base import read
from robust_eval.reader.reply import FirstLineReader, ReplyReader

CITY = Question("city", "What is the capital of Italy?", ("Rome",))
SONG = Question("song", "Which song is it?", ("I Don't Know", "Dunno"))
SPEED = Question("speed", "How fast is it?", choices=("3 m/s", "It cannot be determined"), correct=0)
OPEN = Question("open", "What do you think?")
NOBODY = Question("nobody", "Who is Lena Vost?", (UNANSWERABLE,))
QUESTIONS = [CITY, SONG, SPEED, OPEN, NOBODY]
COLUMNS = ("outcome", "label", "correct", "exact", "reason")


def graded(question: Question, text: str, grader: Grader | None = None, outcome: str = "ok", reader=None) -> tuple:
    """Outcome, label, correct, exact and reason of a reply."""
    replies = answer_table([answer_row(question.id, text=text, outcome=outcome)])
    table = (grader or Matching()).grade(QUESTIONS, read(reader or ReplyReader(), QUESTIONS, replies))
    return tuple(table[name][0].as_py() for name in COLUMNS)


@pytest.mark.parametrize("grader", [Matching(), Matching(contains="substring"), Levenshtein()])
def test_an_abstention_has_an_outcome_and_a_label_and_is_wrong(grader: Grader):
    found = {graded(CITY, text, grader) for text in ("I don't know.", "Sorry, no idea!", "Je ne sais pas.")}
    assert found == {("abstained", ABSTENTION, False, False, None)}


def test_a_choice_without_a_letter_may_be_an_abstention():
    assert graded(SPEED, "I am not sure.") == ("abstained", ABSTENTION, False, False, None)
    assert graded(SPEED, "It cannot be determined.")[:3] == ("ok", "B", False)
    assert graded(SPEED, "Metres!") == ("invalid", None, False, False, "no letter")


def test_only_the_first_line_of_a_base_model_counts():
    text = "I don't know\nQuestion: Who? Answer: He"
    assert graded(CITY, text, reader=FirstLineReader())[0] == "abstained"
    assert graded(CITY, "Paris\nI don't know", reader=FirstLineReader())[0] == "ok"


def test_a_right_answer_is_no_abstention_whatever_it_says():
    assert graded(SONG, "I don't know")[:4] == ("ok", "i don t know", True, True)


def test_a_refusal_by_the_service_stays_one():
    assert graded(CITY, "I don't know.", outcome="refused")[:3] == ("refused", None, False)


def test_without_an_accepted_answer_it_is_neither_right_nor_wrong():
    assert graded(OPEN, "I don't know.")[:3] == ("abstained", ABSTENTION, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I have no information about this person.", ("abstained", ABSTENTION, True, True)),
        ("I don't know", ("abstained", ABSTENTION, True, True)),
        ("I don't know, but she may be a painter.", ("ok", "i don t know but she may be painter", False, False)),
        ("A painter.", ("ok", "painter", False, False)),
    ],
)
def test_to_abstain_is_right_where_there_is_no_answer(text: str, expected: tuple):
    assert graded(NOBODY, text)[:4] == expected
    assert Matching().matcher(NOBODY) is None  # a reply that begins with "I don't know" may go on


def test_an_abstention_that_another_grader_read_is_read_anew():
    none = Matching(abstention="none")
    assert graded(CITY, "I don't know.", none, outcome="abstained")[:3] == ("ok", "i don t know", False)
    assert graded(CITY, "Rome.", outcome="abstained")[:3] == ("ok", "rome", True)


def test_the_label_of_an_abstention_is_the_same_in_any_order_of_choices():
    replies = answer_table([answer_row("speed", text="I don't know.", form=Arrangement((1, 0)).tag)])
    table = ReplyGrader(ReplyReader(), Matching(), first_line=False).grade(QUESTIONS, replies)
    assert table["label"].to_pylist() == [ABSTENTION]


class Asked:
    """A judge that calls every reply to be judged wrong, but for one, and counts its prompts by template."""

    def __init__(self, right: str) -> None:
        self.right, self.prompts = right, []
        self.config = SimpleNamespace(name="judge")

    def answers(self, requests, stage):
        self.prompts += [str(request.prompt) for request in requests]
        texts = ["Verdict: right" if self.right in str(request.prompt) else "Verdict: wrong" for request in requests]
        rows = [
            answer_row(request.question_id, temperature=0.0, text=text)
            for request, text in zip(requests, texts, strict=True)
        ]
        return SimpleNamespace(table=answer_table(rows))


def test_a_judge_finds_what_no_phrase_does_among_the_replies_that_are_not_right():
    asked = Asked("The archives are silent")
    judge = JudgeModel(abstention="judge", cascade="uncertain").with_judge(asked, 0)
    assert graded(NOBODY, "The archives are silent.", judge)[:3] == ("abstained", ABSTENTION, True)
    assert graded(CITY, "Lyon.", judge)[:3] == ("ok", "lyon", False)
    assert graded(CITY, "Rome.", judge)[:3] == ("ok", "rome", True)
    assert len(asked.prompts) == 2
    assert all("does not know" in prompt for prompt in asked.prompts)
    assert len(judge.expected_requests(CITY, 3)) == 6


def test_only_a_judge_can_be_asked_about_abstentions():
    with pytest.raises(ValueError, match="with grader=judge also judge, not judge"):
        Matching(abstention="judge")
