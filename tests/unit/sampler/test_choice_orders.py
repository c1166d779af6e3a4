from dataclasses import replace

import pytest

from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Request
from robust_eval.prompt.arrangement import FORMS, Arrangement, permutations
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.sampler.perturbation import ChoiceOrders, Perturbation

METALS = Question("metals", "Liquid?", choices=("iron", "mercury", "tin"), correct=1, rewrites=("Which one flows?",))
FREE = Question("free", "Who wrote Emma?", ("Austen",), rewrites=("Emma is by whom?",))
WHOLE = (0, 1, 2)


def asked(requests: list[Request]) -> list[tuple[str, int, str | None]]:
    return [(request.question_id, request.variant, request.form) for request in requests]


def test_each_order_and_each_form_is_a_rater_and_the_question_as_it_stands_is_the_first():
    requests = ChoiceOrders(temperatures=[2.0, 0.5], trials=3, max_new_tokens=7).requests([METALS], Matching(), seed=4)
    arranged = {
        1001: Arrangement((1, 2, 0)),
        1002: Arrangement((2, 0, 1)),
        **{3000 + number: Arrangement(WHOLE, form) for number, form in enumerate(FORMS, 1)},
    }
    first = Request("metals", 0, prompt_for(METALS), (0.5, 2.0), 3, 7, 4)
    assert requests == [
        first,
        *(
            replace(first, variant=rater, prompt=prompt_for(METALS, arrangement=each), form=each.tag)
            for rater, each in arranged.items()
        ),
    ]
    assert ChoiceOrders(trials=3).repetitions == 3 * (1 + 1 + 5)


def test_random_orders_are_those_of_the_seed_and_keep_their_numbers_whatever_else_is_asked():
    few = ChoiceOrders(orders="permutations", permutations=2, forms=[]).requests([METALS], Matching(), seed=1)
    assert [request.form for request in few[1:]] == [each.tag for each in permutations(METALS, 2, seed=1)]
    more = ChoiceOrders(orders="permutations", permutations=4, forms=["bars", "numbers"])
    all_of_them = more.requests([METALS], Matching(), seed=1)
    assert [request.variant for request in all_of_them] == [0, 2001, 2002, 2003, 2004, 3003, 3005]
    assert all_of_them[:3] == few


def test_questions_without_choices_are_asked_nothing_and_rewrites_are_not_asked():
    sampler = ChoiceOrders(orders="rotations", forms=[])
    assert asked(sampler.requests([FREE, METALS], Matching(), seed=0)) == [
        ("metals", 0, None),
        ("metals", 1001, "choices BCA"),
        ("metals", 1002, "choices CAB"),
    ]
    assert sampler.candidates([FREE, METALS]) == [METALS]
    with pytest.raises(UserError, match=r"none of the questions has choices: .*dataset=physics"):
        sampler.candidates([FREE])


def test_perturbation_asks_them_beside_the_rewrites_only_where_it_is_told_to():
    assert asked(Perturbation().requests([METALS], Matching(), seed=0)) == [("metals", 0, None), ("metals", 1, None)]
    both = Perturbation(orders="rotations", forms=["dots"])
    assert asked(both.requests([METALS, FREE], Matching(), seed=0)) == [
        ("metals", 0, None),
        ("metals", 1, None),
        ("metals", 1001, "choices BCA"),
        ("metals", 1002, "choices CAB"),
        ("metals", 3002, "choices ABC as dots"),
        ("free", 0, None),
        ("free", 1, None),
    ]
    assert both.repetitions == 1 + 5 + 1 + 1
    assert (both.arranges_choices, Perturbation().arranges_choices) == (True, False)


def test_structured_replies_have_the_signs_of_the_form():
    requests = ChoiceOrders(orders="given", forms=["numbers", "dots"], structured=True).requests(
        [METALS], Matching(), 0
    )
    assert [(each.form, "".join(each.signs)) for each in requests] == [
        (None, "ABC"),
        ("choices ABC as dots", "ABC"),
        ("choices ABC as numbers", "123"),
    ]
    with pytest.raises(UserError, match=r"^sampler.structured=true .* question free has none: "):
        ChoiceOrders(structured=True).requests([FREE], Matching(), 0)
