from dataclasses import replace
from itertools import permutations as all_permutations

import pytest

from robust_eval.prompt.arrangement import FORMS, GIVEN, Arrangement, permutations, read_arrangement, rotations
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question

METALS = Question("metals", "Which is liquid?", choices=("iron", "mercury", "tin"), correct=1)


@pytest.mark.parametrize("choices", [2, 3, 5])
def test_with_the_order_as_it_is_rotations_put_each_choice_at_each_place_once(choices: int):
    orders = [tuple(range(choices)), *(each.order for each in rotations(choices))]
    assert [sorted(at_place) for at_place in zip(*orders, strict=True)] == [list(range(choices))] * choices


def test_random_orders_are_all_different_and_the_first_are_the_same_for_any_number():
    found = permutations(METALS, 4, seed=0)
    assert permutations(METALS, 2, seed=0) == found[:2]
    assert {each.order for each in permutations(METALS, 100, seed=3)} == {*all_permutations(range(3))} - {(0, 1, 2)}
    many = [permutations(replace(METALS, id=str(number)), 1, seed=0)[0].order for number in range(600)]
    counts = [many.count(order) for order in {*all_permutations(range(3))} - {(0, 1, 2)}]
    assert sum((count - 120) ** 2 / 120 for count in counts) < 18.5  # χ² of 4 degrees of freedom, p = 0.001


def test_the_right_choice_goes_with_its_text_and_the_letter_of_a_place_is_the_choice_that_stands_there():
    for order in all_permutations(range(3)):
        arrangement = Arrangement(order)
        shown = arrangement.of(METALS)
        assert shown.choices[shown.correct] == "mercury"
        for place, letter in enumerate("ABC"):
            assert METALS.choices["ABC".index(arrangement.named(letter))] == shown.choices[place]
    assert Arrangement((2, 0, 1)).of(replace(METALS, correct=None)).correct is None


def test_what_an_answer_table_tells_is_the_arrangement_again_and_nothing_else_is_one():
    for order in all_permutations(range(4)):
        for form in (GIVEN, *FORMS):
            assert read_arrangement(Arrangement(order, form).tag) == Arrangement(order, form)
    for told in (None, "", "choices", "choices AAB", "choices BC", "choices ABC as secrets", "choices abc", "A"):
        assert read_arrangement(told) is None


@pytest.mark.parametrize(
    ("form", "choices", "lengths", "answers"),
    [
        ("brackets", "(A) tin\n(B) iron\n(C) mercury", "(A) second\n(B) metre\n(C) kelvin\nAnswer:", "BCA"),
        ("dots", "A. tin\nB. iron\nC. mercury", "A. second\nB. metre\nC. kelvin\nAnswer:", "BCA"),
        ("numbers", "1) tin\n2) iron\n3) mercury", "1) second\n2) metre\n3) kelvin\nAnswer:", "231"),
        ("commas", "A) tin, B) iron, C) mercury", "A) second, B) metre, C) kelvin\nAnswer:", "BCA"),
        ("bars", "A) tin | B) iron | C) mercury", "A) second | B) metre | C) kelvin\nAnswer:", "BCA"),
        (GIVEN, "A) tin\nB) iron\nC) mercury", "A) second\nB) metre\nC) kelvin\nAnswer:", "BCA"),
    ],
)
def test_a_prompt_shows_the_choices_in_their_order_and_its_exemplars_in_the_same_form(
    form: str, choices: str, lengths: str, answers: str
):
    prompt = prompt_for(METALS, arrangement=Arrangement((2, 0, 1), form))
    assert prompt.question == f"Question: Which is liquid?\n{choices}\nAnswer:"
    assert prompt.exemplars[0][0].startswith(f"Question: Which of these is a unit of length?\n{lengths}")
    assert "".join(answer for _, answer in prompt.exemplars) == answers
    assert prompt.system == prompt_for(METALS).system


def test_a_template_with_its_choices_in_one_line_is_shown_in_the_form_as_well():
    given = prompt_for(METALS, prompts="builtin:physics.yaml")
    assert "A. iron, B. mercury, C. tin" in given.question
    other = prompt_for(METALS, prompts="builtin:physics.yaml", arrangement=Arrangement((1, 2, 0), "numbers"))
    assert "1) mercury\n2) tin\n3) iron" in other.question
    assert all(answer[0] in "12345" for _, answer in other.exemplars)
