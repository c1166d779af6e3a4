import itertools
import math

import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.grader.base import LetterChoices
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader as ByReply
from robust_eval.model.base import Enumeration, Matcher, Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.reader.reply import ReplyReader
from robust_eval.sampler.exact import Exact

FREE = Question("free", "Capital of Italy?", ("Rome", "Roma"))
CHOICE = Question("choice", "Capital of Italy?", choices=("Rome", "Paris", "Bern"), correct=1)
OPEN_CHOICE = Question("open", "Which?", choices=("Rome", "Paris"))
MATCHER = Matching().matcher(FREE)


class Grading(Matching):
    """Hands out a matcher that can be told from others."""

    def matcher(self, question: Question) -> Matcher | None:
        return MATCHER if question == FREE else super().matcher(question)


def test_the_defaults_are_those_of_the_sweep():
    exact = Exact()
    assert exact.temperatures == [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    assert (exact.max_new_tokens, exact.selection, exact.max_questions) == (5, "exact_match", 1000)
    assert (exact.nodes, exact.precision, exact.draws, exact.max_temperature) == (128, 0.0, 8, 4.0)
    assert (exact.estimator, exact.repetitions) == ("exact", math.inf)


def test_free_text_is_enumerated_and_multiple_choice_asks_for_one_token():
    exact = Exact(temperatures=[2.0, 0.5], nodes=7, max_temperature=2.0, max_new_tokens=6)
    curve = exact.curve_temperatures()
    expected = [
        Request("free", 0, prompt_for(FREE), (0.5, 2.0), 0, 6, 3, 0, 0, MATCHER, False, Enumeration(7, curve, None, 8)),
        *(
            Request(q.id, 0, prompt_for(q), (0.5, 2.0), 0, 1, 3, 0, 0, None, False, Enumeration(7, curve, choices, 8))
            for q, choices in ((CHOICE, LetterChoices(3, 1)), (OPEN_CHOICE, LetterChoices(2, None)))
        ),
    ]
    assert exact.requests([FREE, CHOICE, OPEN_CHOICE], Grading(), seed=3) == expected
    assert [request.max_answers for request in expected] == [7, 7, 7]


def test_the_precision_that_is_enough_goes_with_each_request():
    (request,) = Exact(precision=0.02).requests([FREE], Grading(), seed=3)
    assert request.enumeration is not None
    assert request.enumeration.precision == 0.02


@pytest.mark.parametrize(("settings", "expected"), cases(__file__, "the_curve_reaches_below_and_above_the_grid"))
def test_the_curve_reaches_below_and_above_the_grid(settings: dict, expected: list[float]):
    assert Exact(**settings).curve_temperatures() == pytest.approx(tuple(expected), abs=1e-9)


@pytest.mark.parametrize("step", [1, 2, 4])
@pytest.mark.parametrize("last", [0.5, 1.0, 2.4])
@pytest.mark.parametrize("beyond", [0.0, 0.03, 0.5, 2.0])
def test_the_curve_holds_the_grid_itself_and_1_and_the_last_temperature(step: int, last: float, beyond: float):
    grid = [round(last * (index + 1) / step, 10) for index in range(step)]
    exact = Exact(temperatures=grid, max_temperature=last + beyond)
    curve = exact.curve_temperatures()
    assert {*exact.temperatures, 1.0} <= set(curve)  # looked up by equality later on
    assert list(curve) == sorted(set(curve))
    assert 0 < curve[0] < grid[0]
    assert sum(t < grid[0] for t in curve if t != 1.0) == 2
    assert curve[-1] == pytest.approx(max(1.0, exact.max_temperature))
    assert min(b - a for a, b in itertools.pairwise(curve)) > 1e-6


def test_a_grid_of_long_fractions_is_in_the_curve_as_it_is():
    exact = Exact(temperatures=[1 / 3, 2 / 3, 1.0, 4 / 3])
    assert set(exact.temperatures) <= set(exact.curve_temperatures())


@pytest.mark.parametrize(
    ("question", "grader"),
    [
        (Question("q7", "Why?"), Matching()),
        (Question("q7", "Why?", ("", " ")), Matching()),
        (Question("q7", "Why?", ("So",)), Matching("substring")),
    ],
    ids=["no accepted answer", "none that is left", "substring"],
)
def test_answers_that_cannot_be_told_right_are_refused_in_one_sentence(question: Question, grader: Matching):
    with pytest.raises(UserError, match=r"grade the answers to question q7: .* grader\.contains=word$"):
        Exact().requests([FREE, question] if grader.contains == "word" else [question], grader, seed=0)


def test_an_answer_that_is_looked_for_in_a_whole_reply_cannot_be_enumerated():
    grader = ByReply(ReplyReader(), Matching(), first_line=False)
    with pytest.raises(UserError, match=r"grade the answers to question free: .* and reader=first_line$"):
        Exact().requests([FREE], grader, seed=0)


def test_letters_need_no_whole_words():
    (request,) = Exact().requests([CHOICE], Matching("substring"), seed=0)
    assert request.enumeration.choices == LetterChoices(3, 1)
