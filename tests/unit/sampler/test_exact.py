import itertools
from functools import partial

import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader as ByReply
from robust_eval.model.base import Enumeration, LetterChoices, Matcher, Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.reader.reply import ReplyReader
from robust_eval.sampler.base import PrefixGrader
from robust_eval.sampler.exact import Exact

FREE = Question("free", "Capital of Italy?", ("Rome", "Roma"))
CHOICE = Question("choice", "Capital of Italy?", choices=("Rome", "Paris", "Bern"), correct=1)
OPEN_CHOICE = Question("open", "Which?", choices=("Rome", "Paris"))
MATCHER = Matching().matcher(FREE)


class Grading(Matching):
    """Hands out a matcher that can be told from others."""

    def matcher(self, question: Question) -> Matcher | None:
        return MATCHER if question == FREE else super().matcher(question)


def test_free_text_is_enumerated_and_multiple_choice_asks_for_one_token():
    exact = Exact(temperatures=[2.0, 0.5], nodes=7, max_temperature=2.0, max_new_tokens=6, precision=0.02)
    enumeration = partial(Enumeration, 7, exact.curve_temperatures(), draws=8, precision=0.02)
    expected = [
        Request("free", 0, prompt_for(FREE), (0.5, 2.0), 0, 6, 3, 0, 0, MATCHER, False, enumeration(None)),
        *(
            Request(q.id, 0, prompt_for(q), (0.5, 2.0), 0, 1, 3, 0, 0, None, False, enumeration(choices))
            for q, choices in ((CHOICE, LetterChoices(3, 1)), (OPEN_CHOICE, LetterChoices(2, None)))
        ),
    ]
    assert exact.requests([FREE, CHOICE, OPEN_CHOICE], Grading(), seed=3) == expected
    assert [request.max_answers for request in expected] == [7, 7, 7]


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
    ("question", "grader", "end"),
    [
        (Question("q7", "Why?"), Matching(), r"grader\.contains=word"),
        (Question("q7", "Why?", ("", " ")), Matching(), r"grader\.contains=word"),
        (Question("q7", "Why?", ("So",)), Matching("substring"), r"grader\.contains=word"),
        (FREE, ByReply(ReplyReader(), Matching(), first_line=False), "and reader=first_line"),
    ],
    ids=["no accepted answer", "none that is left", "substring", "whole reply"],
)
def test_answers_that_cannot_be_told_right_are_refused_in_one_sentence(
    question: Question, grader: PrefixGrader, end: str
):
    with pytest.raises(UserError, match=rf"grade the answers to question {question.id}: .* {end}$"):
        Exact().requests([question], grader, seed=0)


def test_letters_need_no_whole_words():
    (request,) = Exact().requests([CHOICE], Matching("substring"), seed=0)
    assert request.enumeration.choices == LetterChoices(3, 1)
