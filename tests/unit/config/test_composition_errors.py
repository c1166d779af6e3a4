"""A mistake on the command line or in a file of options is answered in one sentence."""

from pathlib import Path
from typing import Any

import pytest
from golden import Golden

from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register
from robust_eval.error import UserError

MISTAKES = Golden(Path(__file__).with_name("mistakes.jsonl"))


@pytest.fixture(autouse=True, scope="module")
def registered():
    register()


@pytest.mark.parametrize("case", MISTAKES.cases, ids=lambda case: " ".join(case.get("overrides", case.values())))
def test_a_mistake_is_answered_in_one_sentence(case: dict[str, Any], tmp_path: Path):
    overrides = case.get("overrides", [])
    if "file" in case:
        file = tmp_path / f"{case['file']}.yaml"
        file.parent.mkdir()
        file.write_text(case["text"])
        overrides = [f"hydra.searchpath=[file://{tmp_path}]", case["file"].replace("/", "=")]
    with pytest.raises(UserError) as problem:
        checked_overrides(overrides)
    MISTAKES.check(case, message=str(problem.value).replace(str(tmp_path), "{folder}"))
