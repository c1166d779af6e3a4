"""Arguments that make no sense: each function refuses them in one sentence, which names the argument."""

from importlib import import_module
from pathlib import Path

import pytest
from golden import Golden

REFUSED = Golden(Path(__file__).with_name("refused_arguments.jsonl"))


@pytest.mark.parametrize("name", sorted({case["function"] for case in REFUSED.cases}))
def test_arguments_that_make_no_sense_are_refused_in_one_sentence(name: str):
    module, _, function = name.rpartition(".")
    for case in REFUSED.cases:
        if case["function"] == name:
            with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message is compared)
                getattr(import_module(f"robust_eval.stats.{module}"), function)(**case["arguments"])
            assert "\n" not in str(refused.value)
            REFUSED.check(case, message=str(refused.value))
