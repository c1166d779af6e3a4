import pytest
from json_lines import cases

from robust_eval.cli.completion import completions, for_bash
from robust_eval.cli.help import Catalogue, Group, Option
from robust_eval.cli.main import COMMANDS

BREAKS = " \t\n\"'><=;|&(:"
"""COMP_WORDBREAKS, as bash has it."""
KNOWN = Catalogue(
    {
        "model": Group("", ["small"], False, {"small": Option("", ["path", "generation.top_k"], {})}),
        "rewriter": Group("", ["kept"], False, {"kept": Option("", ["file"], {})}),
        "sampler": Group(
            "",
            ["sweep"],
            True,
            {
                "sweep": Option("", ["trials", "temperatures"], {}),
                "exact": Option("", ["nodes", "temperatures"], {}),
                "file": Option("", ["file"], {"model": []}),
            },
        ),
        "metric": Group("", ["frs"], True, {"frs": Option("", ["d"], {}), "certainty": Option("", [], {})}),
        "experiment": Group("", [], False, {"profile": Option("", [], {"sampler": ["sweep", "exact"]})}),
    },
    ["seed", "paths.mlruns"],
)


def test_the_first_word_is_a_command_or_what_can_be_chosen_or_set():
    groups = ["experiment=", "metric.", "metric=", "model.", "model=", "rewriter.", "rewriter=", "sampler.", "sampler="]
    others = ["cancel_batches=", "dry_run=", "paths.", "repeat=", "seed="]
    assert completions([""], KNOWN) == sorted([*COMMANDS, *groups, *others])
    assert completions(["run", ""], KNOWN) == sorted([*groups, *others])


@pytest.mark.parametrize(("words", "found"), cases(__file__, "a_word_is_completed_by_what_stands_before_it"))
def test_a_word_is_completed_by_what_stands_before_it(words: list[str], found: list[str]):
    assert completions(words, KNOWN) == found


@pytest.mark.parametrize(
    ("line", "found"), cases(__file__, "bash_is_told_what_may_stand_behind_the_sign_at_which_it_parts_words")
)
def test_bash_is_told_what_may_stand_behind_the_sign_at_which_it_parts_words(line: str, found: list[str]):
    assert for_bash(line, BREAKS, KNOWN) == found


def test_a_bash_that_parts_no_words_at_equals_signs_is_told_whole_ones():
    assert for_bash("robust-eval model=s", BREAKS.replace("=", ""), KNOWN) == ["model=small"]
