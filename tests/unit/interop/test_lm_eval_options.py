"""Options of lm-eval's tasks that are none, and what is said then."""

from typing import Any

import pytest

from robust_eval.error import UserError
from robust_eval.interop.lm_eval_tasks.tasks import Options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": 3}, "are dataset, trials, temperatures, .* and not 'limit'"),
        ("quiz.jsonl", "and not 'quiz.jsonl'"),
        ({"dataset": 7}, "dataset must be a text, not 7"),
        ({"seeds": "yes"}, "seeds must be true or false, not 'yes'"),
        ({"trials": 0}, "trials must be a whole number of 1 or more, not 0"),
        ({"trials": True}, "trials must be"),
        ({"temperatures": [0.5]}, r"temperatures must be two or more numbers, all above 0, not \[0.5\]"),
        ({"temperatures": [0, 1]}, "temperatures must be"),
        ({"temperatures": ["hot", "cold"]}, "temperatures must be"),
        ({"temperatures": 0.5}, "temperatures must be"),
        ({"temperature": 0}, "temperature must be a number above 0, not 0"),
        ({"temperature": float("nan")}, "temperature must be a number above 0"),
        ({"threshold": 1.5}, "threshold must be above 0 and at most 1, not 1.5"),
    ],
)
def test_it_is_a_sentence(given: Any, said: str):
    with pytest.raises(UserError, match=said):
        Options.of(given)


def test_temperatures_ascend_and_stand_once():
    assert Options.of({"temperatures": [1, 0.5, 1.0]}).temperatures == (0.5, 1.0)
