import math

from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.experiment.scoring import Scoring
from robust_eval.question import UNANSWERABLE, Question


def test_the_share_of_answered_unanswerable_questions_has_the_number_of_those_with_a_reply():
    questions = [Question(name, f"{name}?", (UNANSWERABLE,)) for name in ("a", "b")]
    rows = [answer_row("a", label="x", text="x", correct=False), answer_row("b", outcome="error", correct=None)]
    score = Scoring({}, {}, {}, {}, 0).unanswerable(questions, answer_table(rows))
    assert score.n("profile.answered_unanswerable") == 1


def test_without_a_reply_to_an_unanswerable_question_the_share_of_answered_ones_is_undefined():
    rows = [answer_row("a", outcome="filtered_prompt", correct=None)]
    score = Scoring({}, {}, {}, {}, 0).unanswerable([Question("a", "a?", (UNANSWERABLE,))], answer_table(rows))
    assert math.isnan(score.values["profile.answered_unanswerable"].value)
