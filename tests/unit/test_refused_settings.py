"""Settings that make no sense: each class refuses them in one sentence, which names the setting and the value."""

from importlib import import_module
from pathlib import Path

import pytest
from golden import Golden

from robust_eval.error import UserError

REFUSED = Golden(Path(__file__).with_name("refused_settings.jsonl"))


@pytest.mark.parametrize("name", sorted({case["class"] for case in REFUSED.cases}))
def test_settings_that_make_no_sense_are_refused_in_one_sentence(name: str):
    module, _, refusing = name.rpartition(".")
    for case in REFUSED.cases:
        if case["class"] == name:
            with pytest.raises((UserError, ValueError)) as refused:
                getattr(import_module(f"robust_eval.{module}"), refusing)(**case["settings"])
            assert "\n" not in str(refused.value)
            REFUSED.check(case, message=str(refused.value))
