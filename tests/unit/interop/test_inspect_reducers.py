"""What the epochs of a sample say together."""

import math

import pytest
from inspect_ai.scorer import Score

from robust_eval.interop.inspect_scoring import answer_entropy, firmness


def scores(*answers: str | None, value: object = 1.0) -> list[Score]:
    return [Score(value=value, answer=answer) for answer in answers]


def test_the_entropy_is_that_of_answers_with_the_same_normal_form():
    halves = scores("Rome", "rome.", "Paris", "Paris!", None)
    assert answer_entropy()(halves).value == pytest.approx(math.log(2))
    assert answer_entropy()(scores("Rome", "Rome")).value == 0
    assert math.isnan(answer_entropy()(scores(None, "")).value)


@pytest.mark.parametrize(
    ("values", "firm"), [("CI", 1.0), ("CII", 0.0), ("CIN", 0.0), ([1.0, math.nan], 1.0), ([math.nan], math.nan)]
)
def test_a_sample_is_firm_where_enough_epochs_are_right(values: object, firm: float):
    found = firmness()([Score(value=value) for value in values]).value
    assert found == firm or (math.isnan(firm) and math.isnan(found))
