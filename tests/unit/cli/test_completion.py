import pytest
from json_lines import cases

from robust_eval.cli.completion import completions, for_bash
from robust_eval.cli.main import COMMANDS
from robust_eval.config.groups import GROUPS


def test_the_first_word_is_a_command_or_what_can_be_chosen_or_set():
    assert {*completions([""])} - {*completions(["run", ""])} == {*COMMANDS}
    assert {*completions(["run", ""])} >= {"model=", "model.", "seed=", "paths.", "dry_run=", "repeat="}
    assert {word.rstrip("=.") for word in completions([""])} > {*GROUPS}


@pytest.mark.parametrize(("words", "found"), cases(__file__, "a_word_is_completed_by_what_stands_before_it"))
def test_a_word_is_completed_by_what_stands_before_it(words: list[str], found: list[str]):
    assert completions(words) == found


@pytest.mark.parametrize(
    ("line", "part", "found"), cases(__file__, "bash_is_told_what_may_stand_in_place_of_the_part_that_it_completes")
)
def test_bash_is_told_what_may_stand_in_place_of_the_part_that_it_completes(line: str, part: str, found: list[str]):
    assert for_bash(line, part) == found
