"""The conditions under which a finished run asked."""

import pytest

from robust_eval.interop.finished_answers import ConditionAnswers
from robust_eval.question import Question


@pytest.mark.parametrize(("rewrite", "wording"), [(0, "Who?"), (1, "What person?"), (2, "Who?")])
def test_the_wording_is_the_rewrite_that_was_asked_where_the_run_knows_it(rewrite: int, wording: str):
    question = Question("1", "Who?", rewrites=("What person?",))
    assert ConditionAnswers(question, "perturbation", rewrite, 1.0, [], "1").wording == wording
