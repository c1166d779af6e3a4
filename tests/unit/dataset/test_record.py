"""Hostile cells: no code in them runs, and none takes long. What lists are is judged in ``tables/judged.jsonl``."""

import math
from contextlib import suppress

import pytest
from json_lines import cases

from robust_eval.dataset.record import (
    UnreadableListError,
    Unusable,
    answers,
    choices,
    items,
    letter_position,
    optional,
    position,
    printed_list,
    several,
    text,
)


def reason(function, *arguments):
    with pytest.raises(Unusable) as caught:
        function(*arguments)
    return caught.value.reason


@pytest.mark.parametrize(
    ("value", "shown"),
    [*cases(__file__, "what_a_value_shows"), (math.nan, ""), (math.inf, ""), (10**500, ""), (b"x", "")],
)
def test_what_a_value_shows(value, shown):
    assert optional(value) == shown
    if not shown:
        assert reason(text, value, "no question") == "no question"


def test_text_that_cannot_be_kept_makes_a_record_unusable():
    assert reason(optional, "a\ud800") == "text that is not Unicode"
    assert reason(optional, "x" * 100_001) == "text of more than 100,000 characters"
    assert optional("x" * 100_000) == "x" * 100_000


@pytest.mark.parametrize(
    ("value", "found"), [*cases(__file__, "a_list_or_one_that_is_written_as_text"), (("a",), ["a"]), ("[" * 10_000, [])]
)
def test_a_list_or_one_that_is_written_as_text(value, found):
    assert items(value) == found


def test_accepted_answers_stand_once_and_are_graded_whatever_sign_they_are():
    assert several(["b", None, " a ", "b", "", 3]) == ("b", "a", "3")
    assert answers(["The", "Paris ", "Paris"]) == ("The", "Paris")
    assert [answers([sign]) for sign in ("€", "A", "---")] == [("€",), ("A",), ("---",)]
    assert [reason(answers, given) for given in ([], [" ", "\u200f"], [None])] == ["no accepted answer"] * 3


def test_choices_have_letters_and_show_something():
    assert choices(["a", 2]) == ("a", "2")
    assert len(choices(list("abcdefghij"))) == 10
    assert reason(choices, []) == "no choices"
    assert reason(choices, ["a"]) == "malformed choices"
    assert reason(choices, ["a", " "]) == "malformed choices"
    assert reason(choices, ["x"] * 30) == "more than 13 choices"


def test_the_right_choice_by_number():
    assert [position(value, 4) for value in (0, "3", " 2 ", 1.0)] == [0, 3, 2, 1]
    assert [position(value, 4, first=1) for value in (1, "4")] == [0, 3]
    for value in (4, -1, "A", None, True, 1.5, math.nan, "9" * 5000, "²"):
        assert reason(position, value, 4) == "no right choice"
    assert reason(position, 0, 4, 1) == "no right choice"


def test_the_right_choice_by_label():
    assert letter_position("b", "ABCD") == 1
    assert letter_position(3, ["1", "2", "3", "4"]) == 2
    for value in ("E", "", None, "AB"):
        assert reason(letter_position, value, "ABCD") == "no right choice"
    assert reason(letter_position, "A", "AAB") == "no right choice"


@pytest.mark.parametrize("cell", cases(__file__, "code_in_a_list_is_not_run"))
def test_code_in_a_list_is_not_run(cell: str):
    with pytest.raises(UnreadableListError):
        printed_list(cell)


@pytest.mark.parametrize(
    "cell",
    [
        "[" * 50_000,
        "[" + "," * 99_000,
        "{" + "ab," * 30_000,
        r"['" + r"\'" * 49_000,
        "['" + "' '" * 30_000,
        "(" * 99_000,
    ],
)
def test_no_cell_takes_long(cell: str):
    with suppress(UnreadableListError):
        printed_list(cell)
