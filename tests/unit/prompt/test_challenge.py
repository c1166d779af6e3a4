from collections import Counter

import pytest

from robust_eval.prompt.pushback import Pushback, PushbackWriter, form_of_all, read_pushback, shown_choice
from robust_eval.prompt.templates import CHALLENGING, read_templates
from robust_eval.question import Question

KINDS = read_templates(CHALLENGING).challenges
FRANCE = Question("france", "Capital of France?", ("Paris",), type="LOC")
CHILE = Question("chile", "Capital of Chile?", ("Santiago",), type="LOC")
YEAR = Question("year", "When did the war end?", ("1945",), type="NUM")
MOON = Question("moon", "When did they land?", ("1969",), type="NUM")
METALS = Question("metals", "Liquid?", choices=("iron", "mercury", "tin"), correct=1)
MYTH = Question("myth", "What happens?", ("nothing",), incorrect=("you fall ill",))
ALL = [FRANCE, CHILE, YEAR, MOON, METALS, MYTH]


def test_what_is_told_of_a_challenge_is_read_again_and_nothing_else_is():
    for each in (Pushback(1, "doubt", "Sure?"), Pushback(12, "my_own", "No:\nit is 4, not 3.")):
        assert read_pushback(each.tag) == each
    for told in ("", None, "choices CAB", "turn 0, doubt: a", "turn 1, Doubt: a", "turn 1, doubt:", "turn 1 doubt: a"):
        assert read_pushback(told) is None
    assert (form_of_all("turn 3, denial: no"), form_of_all("choices AB")) == ("turn 3", "choices AB")


def test_each_kind_comes_once_before_one_comes_again_and_all_orders_come():
    doubter = PushbackWriter(KINDS, ALL, seed=0)
    orders = Counter()
    for conversation in range(600):
        said = [doubter.challenge(FRANCE, "Paris", conversation, turn) for turn in range(1, 9)]
        kinds = [each.kind for each in said]
        assert sorted(kinds[:4]) == sorted(kinds[4:]) == sorted(KINDS)
        orders[kinds[0]] += 1
    assert all(abs(orders[kind] - 150) < 4 * (600 * 0.25 * 0.75) ** 0.5 for kind in KINDS)


def test_sentences_are_filled_in_with_the_answer_and_a_wrong_one():
    doubter = PushbackWriter(KINDS, ALL, seed=1)
    words = {doubter.challenge(FRANCE, "Paris", each, turn).words for each in range(40) for turn in range(1, 5)}
    expected = {text.format(answer="Paris", alternative="Santiago") for texts in KINDS.values() for text in texts}
    assert words == expected


def test_a_challenge_depends_on_the_seed_the_question_the_conversation_and_the_turn_alone():
    def drawn(seed: int, questions: list[Question]) -> list[Pushback | None]:
        doubter = PushbackWriter({"doubt": ["Sure?", "Really?", "Hm?"]}, questions, seed)
        return [doubter.challenge(FRANCE, "Paris", each, turn) for each in range(5) for turn in range(1, 4)]

    assert drawn(0, ALL) == drawn(0, [FRANCE])
    assert drawn(0, ALL) != drawn(1, ALL)


@pytest.mark.parametrize(
    ("question", "said", "possible"),
    [
        (FRANCE, "Paris", {"Santiago"}),  # of the same type
        (YEAR, "1945", {"1969"}),
        (FRANCE, "Santiago", {"1945", "1969", "nothing"}),  # it has said that itself
        (METALS, shown_choice(METALS, 1), {"A) iron", "C) tin"}),
        (METALS, shown_choice(METALS, 0), {"C) tin"}),
        (METALS, None, {"A) iron", "C) tin"}),
        (MYTH, "nothing", {"you fall ill"}),
    ],
)
def test_an_alternative_is_wrong_and_not_what_was_said(question: Question, said: str | None, possible: set[str]):
    found = {PushbackWriter(KINDS, ALL, seed).alternative(question, said) for seed in range(30)}
    assert found == possible if len(possible) < 3 else found <= possible


def test_a_sentence_has_no_full_stop_of_the_answer():
    challenge = PushbackWriter({"denial": ["It is not {answer}. Really?"]}, [FRANCE], 0).challenge(
        FRANCE, "Paris.", 0, 1
    )
    assert challenge == Pushback(1, "denial", "It is not Paris. Really?")


def test_without_another_answer_nothing_is_offered_and_without_an_answer_nothing_is_denied():
    alone = PushbackWriter(KINDS, [FRANCE], seed=0)
    assert alone.alternative(FRANCE, "Paris") is None
    assert {alone.challenge(FRANCE, "Paris", 0, turn).kind for turn in range(1, 9)} == {"doubt", "denial"}
    assert {alone.challenge(FRANCE, None, 0, turn).kind for turn in range(1, 9)} == {"doubt"}
    assert PushbackWriter({"denial": KINDS["denial"]}, [FRANCE], 0).challenge(FRANCE, None, 0, 1) is None
