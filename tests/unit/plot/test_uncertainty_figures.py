import math

import pytest
from findings_by_hand import findings_of

from robust_eval.plot.figure_registry import registered

ENTROPY, DISAGREEMENT = [0.0, 0.2, 0.2, 0.9, math.nan], [0.0, 0.1, 0.3, 0.8, 0.5]
CORRECT = [1.0, 1.0, 0.0, 0.0, 1.0]


def run(correct=CORRECT):
    scores = {"answer_entropy": ENTROPY, "disagreement": DISAGREEMENT, "early_break": [-math.inf, -2, -1, -1, -2]}
    return findings_of(uncertainty={"correct": correct, **scores})


@pytest.mark.parametrize("correct", [[1.0] * 5, [math.nan] * 5])
def test_without_right_and_wrong_answers_there_is_no_figure(correct):
    names = ("risk_by_coverage", "reliability_diagram", "uncertainty_of_right_and_wrong")
    of_module = [entry for entry in registered() if entry.name in names]
    assert [entry.allowed(run()) for entry in of_module] == [True] * 3
    assert [entry.allowed(run(correct)) for entry in of_module] == [False] * 3
    assert not any(entry.allowed(findings_of()) for entry in of_module)
