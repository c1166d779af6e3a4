"""Options of lm-eval's tasks that are none, and what is said then."""

from typing import Any

import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.interop.lm_eval_tasks.tasks import Options


@pytest.mark.parametrize(("given", "said"), cases(__file__, "it_is_a_sentence"))
def test_it_is_a_sentence(given: Any, said: str):
    with pytest.raises(UserError, match=said):
        Options.of(given)


def test_temperatures_ascend_and_stand_once():
    assert Options.of({"temperatures": [1, 0.5, 1.0]}).temperatures == (0.5, 1.0)
