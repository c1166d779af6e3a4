import random
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_lines import cases
from unseen import HOSTILE, OF_SCRIPTS, unseen

from robust_eval.runtime.text import (
    duration,
    holds_password,
    number,
    printable,
    printable_lines,
    secret_setting,
    signed,
)

ANY = st.text(st.characters())  # also halves of characters
KEPT = {*OF_SCRIPTS, *"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"} | {
    chr(code) for code in range(0x13430, 0x13440)
}
"""Format characters that are seen, or without which a script is misspelt."""


@given(ANY)
def test_all_that_comes_out_is_seen_on_one_line(text: str):
    out = printable(text)
    assert unseen(out) <= {f"U+{ord(character):04X}" for character in KEPT}
    assert "\n" not in out
    assert "\t" not in out
    assert len(out.splitlines()) <= 1
    out.encode()


@given(ANY)
def test_what_came_out_comes_out_again_as_it_is(text: str):
    assert printable(printable(text)) == printable(text)
    assert printable_lines(printable_lines(text)) == printable_lines(text)


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])))
def test_plain_text_is_as_it_was(text: str):
    assert printable(text) == text
    assert printable_lines(f"{text}\n\t{text}") == f"{text}\n\t{text}"


def test_every_character_that_is_not_seen_becomes_an_escape_that_tells_which():
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in KEPT
        if hidden:
            assert printable(character) == repr(character).strip("'")
        elif unicodedata.category(character) != "Cn":
            assert printable(character) == character


def test_what_is_said_of_a_hostile_line():
    assert printable("Paris\n\x1b[31mred\x9b0m \u202eback\u2028 \ud800\U000e0041") == (
        r"Paris\n\x1b[31mred\x9b0m \u202eback\u2028 \ud800\U000e0041"
    )
    assert printable_lines("one\n\ttwo\r\n") == "one\n\ttwo\\r\n"
    assert unseen(printable(HOSTILE)) == set()


def test_words_that_need_a_joiner_are_spelt_as_they_were():
    for text in ("می\u200cخواهم", "क्\u200dष", "👩\u200d🔬", "日本語", "naïve — “quoted”"):
        assert printable(text) == text


@pytest.mark.parametrize(
    ("value", "form", "shown"), cases(__file__, "a_number_is_rounded_once_and_halves_away_from_zero")
)
def test_a_number_is_rounded_once_and_halves_away_from_zero(value: float, form: str, shown: str):
    assert number(value, form) == shown


def test_numbers_are_those_of_python_but_for_exact_halves_and_the_sign_of_zero():
    draw = random.Random(0)
    for value in (draw.uniform(-2, 2) for _ in range(2000)):
        plain = f"{value:.3f}"
        assert number(value) == ("0.000" if plain == "-0.000" else plain)


def test_a_difference_has_a_sign_unless_it_rounds_to_zero():
    assert [signed(value) for value in (0.25, -0.25, 0.0004, -0.0004, 0.0005)] == [
        "+0.250",
        "-0.250",
        "0.000",
        "0.000",
        "+0.001",
    ]


@pytest.mark.parametrize("name", cases(__file__, "a_text_under_the_name_of_a_secret_is_found_wherever_it_stands"))
def test_a_text_under_the_name_of_a_secret_is_found_wherever_it_stands(name: str):
    assert secret_setting({name: "abc"}) == name
    assert secret_setting({"a": [1, {"b": {name: ["abc"]}}]}) == f"a.1.b.{name}"


@pytest.mark.parametrize("name", cases(__file__, "other_names_hold_no_secret"))
def test_other_names_hold_no_secret(name: str):
    assert secret_setting({name: "abc", "a": {name: ["abc"]}}) is None


def test_what_is_no_text_is_no_secret():
    assert secret_setting({"api_key": None, "token": 3, "auth": True, "password": ""}) is None
    schema = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    assert secret_setting({"response_format": {"json_schema": schema}}) is None


@pytest.mark.parametrize(("address", "holds"), cases(__file__, "an_address_with_a_password_is_told_from_others"))
def test_an_address_with_a_password_is_told_from_others(address: str, holds: bool):
    assert holds_password(address) == holds


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (59.5, "60 s"), (61, "2 min"), (3600, "1 h 0 min"), (100_000, "27 h 47 min")]
)
def test_times_are_rounded_up(seconds: float, said: str):
    assert duration(seconds) == said
