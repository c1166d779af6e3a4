import pytest
from json_lines import cases

from robust_eval.reader.reasoning import without_reasoning


@pytest.mark.parametrize(("reply", "spoken"), cases(__file__, "what_is_said_after_the_reasoning_is_left"))
def test_what_is_said_after_the_reasoning_is_left(reply: str, spoken: str):
    assert without_reasoning(reply) == spoken


@pytest.mark.parametrize("reply", cases(__file__, "reasoning_that_does_not_end_leaves_nothing"))
def test_reasoning_that_does_not_end_leaves_nothing(reply: str):
    assert without_reasoning(reply) is None
