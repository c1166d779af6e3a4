"""Numbers in words, digits and signs (numerals.jsonl: the words of a text, and the same with values, by rule)."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import json_lines

from robust_eval.numerals import ROMAN, ordinal, value_of, with_values

RULES = json_lines(Path(__file__).parent / "numerals.jsonl")


def test_each_rule():
    found = [(rule["text"], " ".join(with_values(rule["text"].split()))) for rule in RULES]
    assert found == [(rule["text"], rule["form"]) for rule in RULES]


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.integers(0, 10**9), st.integers(0, 3))
def test_zeros_at_the_end_of_decimals_do_not_matter(number: int, zeros: int):
    assert value_of(f"{number}.{'0' * (zeros + 1)}") == str(number)
    assert value_of(f"{number}.25{'0' * zeros}") == f"{number}.25"


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.integers(-12, 12))
def test_a_power_of_ten_has_its_value(exponent: int):
    value = f"{10**exponent}" if exponent >= 0 else f"0.{'0' * (-exponent - 1)}1"
    assert value_of(f"10^{exponent}") == value_of(f"1e{exponent}") == value


@pytest.mark.parametrize("word", ["", "one", "x^2", "1.2.3", "10^", "e5", "1/2/3"])
def test_what_is_no_number_has_no_value(word: str):
    assert value_of(word) is None


def test_a_power_with_more_digits_than_anyone_writes_is_not_computed():
    assert value_of("9^999999999") == "9^999999999"
    assert value_of("1e999999999") == "1e999999999"


def test_ordinals_end_as_they_are_spoken():
    assert [ordinal(value) for value in (1, 2, 3, 4, 11, 12, 13, 21, 101, 111, 1012)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th", "1012th"),
    ]


def test_roman_numerals_behind_a_name_are_its_number():
    assert [with_values(["louis", word])[1] for word in ROMAN] == [str(value) for value in ROMAN.values()]
    assert ROMAN["xiv"] == 14
    assert ROMAN["xxiii"] == 23
