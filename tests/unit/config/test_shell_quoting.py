import pytest

from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register
from robust_eval.error import UserError

TOOK = "took the value away (; & $ and ` are signs of its own)"
PARTED = "parted it at blanks"
OWN = ["dataset=local", "dataset.path=quiz.csv"]


def message(overrides: list[str]) -> str:
    register()
    with pytest.raises(UserError) as problem:
        checked_overrides(overrides)
    return str(problem.value)


@pytest.mark.parametrize(
    ("arrived", "hint"),
    [
        ([*OWN, "dataset.separator="], f"{TOOK}, quote it: 'dataset.separator=…'"),
        (["model="], f"{TOOK}, quote it: 'model=…'"),
        (
            [*OWN, "dataset.columns={question:", "prompt}"],
            f"{PARTED}, quote it: 'dataset.columns={{question: prompt}}'",
        ),
        (
            [*OWN, "dataset.columns={question:", "prompt,", "answers:", "gold}", "seed=1"],
            f"{PARTED}, quote it: 'dataset.columns={{question: prompt, answers: gold}}'",
        ),
        (["metric=[frs,", "certainty]"], f"{PARTED}, quote it: 'metric=[frs, certainty]'"),
        (["model.name=a", "b"], "parted it at a blank, quote it: 'model.name=a b'"),
        (
            [*OWN, "dataset.columns=question:prompt", "dataset.columns=answers:gold"],
            "made several of one with braces, quote it: 'dataset.columns={question:prompt,answers:gold}'",
        ),
    ],
    ids=str,
)
def test_what_a_shell_has_taken_away_is_quoted_in_the_message(arrived: list[str], hint: str):
    assert message(arrived).endswith(f"; if your shell {hint}")


@pytest.mark.parametrize(
    "arrived",
    [
        ["dataset.separator="],  # which facts do not have
        ["model.path=", "seed=-1"],
        ["b", "seed=1"],
        ["rewriter=recorded", "b"],
        ["metric=[frs,certainty]", "seed=-1"],
        ["metric=[frs,"],
        ["model=openai_compatible", "model.base_url=http://a", "model.base_url=http://b", "seed=-1"],
    ],
    ids=str,
)
def test_a_message_about_anything_else_has_no_hint(arrived: list[str]):
    assert "your shell" not in message(arrived)
