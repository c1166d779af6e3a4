import pytest
from json_lines import cases

from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register
from robust_eval.error import UserError


def message(overrides: list[str]) -> str:
    register()
    with pytest.raises(UserError) as problem:
        checked_overrides(overrides)
    return str(problem.value)


@pytest.mark.parametrize(("arrived", "hint"), cases(__file__, "what_a_shell_has_taken_away_is_quoted_in_the_message"))
def test_what_a_shell_has_taken_away_is_quoted_in_the_message(arrived: list[str], hint: str):
    assert message(arrived).endswith(f"; if your shell {hint}")


@pytest.mark.parametrize("arrived", cases(__file__, "a_message_about_anything_else_has_no_hint"))
def test_a_message_about_anything_else_has_no_hint(arrived: list[str]):
    assert "your shell" not in message(arrived)
