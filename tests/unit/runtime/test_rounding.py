import math
import random

import pytest

from robust_eval.runtime.text import number, signed


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (0.654527, ".3f", "0.655"),
        (0.6545, ".3f", "0.654"),  # in binary it is less than its half
        (0.0005, ".3f", "0.001"),  # and this is more
        (0.0625, ".3f", "0.063"),
        (0.1875, ".3f", "0.188"),
        (-0.0625, ".3f", "-0.063"),
        (-0.0004, ".3f", "0.000"),
        (-0.0, ".0f", "0"),
        (2.5, ".0f", "3"),
        (0.125, ".0%", "13%"),
        (0.295, ".0%", "29%"),  # as 0.295 in two digits is 0.29
        (0.32, ".2g", "0.32"),
        (0.25, "g", "0.25"),
        (-1, "+.3f", "-1.000"),
        (math.nan, ".3f", "undefined"),
        (math.inf, ".1f", "unbroken"),
    ],
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
