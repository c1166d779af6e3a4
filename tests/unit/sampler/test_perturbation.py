from dataclasses import replace

import pytest

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.sampler.perturbation import Perturbation

FREE = Question("free", "Who wrote Emma?", ("Austen",), rewrites=("Emma is by whom?", "Name Emma's author."))
EXTRACT = Question("extract", "Who drew?", ("Karl",), context="Karl drew. Ann wrote.", rewrites=("Drawn by whom?",))
CHOICE = Question("choice", "Unit of force?", choices=("joule", "newton"), correct=1, rewrites=("Force, in what?",))
BARE = Question("bare", "Why?", ("because",))
NOTHING = answer_table([])


def test_each_question_and_each_of_its_rewrites_is_asked_in_a_prompt_of_its_own():
    questions = [FREE, EXTRACT, CHOICE]
    sampler = Perturbation(temperatures=[2.0, 0.5], trials=3, max_new_tokens=7)
    assert sampler.requests(questions, Matching(), seed=4) == [
        Request(question.id, rewrite, prompt_for(question, rewrite), (0.5, 2.0), 3, 7, 4)
        for question in questions
        for rewrite in range(1 + len(question.rewrites))
    ]


@pytest.mark.parametrize(("rewrites", "numbers"), [(1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3]), (5, [0, 1, 2, 3])])
def test_no_more_rewrites_are_asked_than_wanted_or_there_are(rewrites: int, numbers: list[int]):
    question = replace(BARE, rewrites=("One?", "Two?", "Three?"))
    requests = Perturbation(rewrites=rewrites).requests([question], Matching(), seed=0)
    assert [request.variant for request in requests] == numbers


def test_raters_are_the_question_and_its_rewrites_each_as_often_as_it_is_asked():
    assert Perturbation().repetitions == 6
    assert Perturbation(rewrites=2, trials=4).repetitions == 12


def test_questions_without_rewrites_are_left_out_whatever_was_answered():
    questions = [BARE, FREE, replace(BARE, id="bare2"), CHOICE]
    assert Perturbation().candidates(questions) == [FREE, CHOICE]
    assert Perturbation().select([FREE, CHOICE], NOTHING, seed=0) == [FREE, CHOICE]


def test_where_no_question_has_rewrites_it_is_said_where_to_give_them():
    with pytest.raises(UserError, match=r"none of the questions has rewrites, .*rewriter=llm rewriter\.model="):
        Perturbation().candidates([BARE, replace(BARE, id="bare2")])
