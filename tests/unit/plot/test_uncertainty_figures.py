import math

import numpy as np
import pytest
from findings_by_hand import findings_of
from matplotlib.figure import Figure

from robust_eval.plot import uncertainty_figures as plot
from robust_eval.plot.figure_registry import registered
from robust_eval.stats.uncertainty import risk_coverage

ENTROPY, DISAGREEMENT = [0.0, 0.2, 0.2, 0.9, math.nan], [0.0, 0.1, 0.3, 0.8, 0.5]
CORRECT = [1.0, 1.0, 0.0, 0.0, 1.0]


def run(correct=CORRECT):
    scores = {"answer_entropy": ENTROPY, "disagreement": DISAGREEMENT, "early_break": [-math.inf, -2, -1, -1, -2]}
    return findings_of(uncertainty={"correct": correct, **scores})


def test_risk_has_a_curve_for_each_score_above_the_oracle(axes):
    plot.risk_by_coverage(axes, run())
    entropy, disagreement, break_, oracle, chance = axes.lines
    assert entropy.get_ydata().tolist() == risk_coverage(ENTROPY[:4], CORRECT[:4]).risk.tolist()
    assert disagreement.get_ydata().tolist() == risk_coverage(DISAGREEMENT, CORRECT).risk.tolist()
    assert len(break_.get_ydata()) == 5
    assert oracle.get_ydata().tolist() == [0, 0, pytest.approx(1 / 3), 0.5]
    assert chance.get_ydata()[0] == 0.5
    assert len({line.get_linestyle() for line in axes.lines[:3]}) == 3


def test_the_reliability_diagram_has_the_scores_that_are_probabilities(axes):
    plot.reliability_diagram(axes, run())
    (points,) = (container.lines[0] for container in axes.containers)
    assert points.get_xydata().tolist() == [[pytest.approx(np.mean(1 - np.array(DISAGREEMENT))), 0.6]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["calibrated", "share of the majority, n = 5"]


def test_right_and_wrong_answers_stand_side_by_side_by_their_place():
    fig = Figure()
    plot.uncertainty_of_right_and_wrong(fig.subplots(), run())
    panel = fig.axes[1]
    right, wrong = (np.array([bar.get_height() for bar in container]) for container in panel.containers)
    assert right.tolist() == [0, pytest.approx(1 / 3), 0, pytest.approx(1 / 3), 0, 0, 0, pytest.approx(1 / 3), 0, 0]
    assert wrong.tolist() == [0, 0, 0, 0, 0, 0.5, 0, 0, 0, 0.5]


@pytest.mark.parametrize("correct", [[1.0] * 5, [math.nan] * 5])
def test_without_right_and_wrong_answers_there_is_no_figure(correct):
    names = ("risk_by_coverage", "reliability_diagram", "uncertainty_of_right_and_wrong")
    of_module = [entry for entry in registered() if entry.name in names]
    assert [entry.allowed(run()) for entry in of_module] == [True] * 3
    assert [entry.allowed(run(correct)) for entry in of_module] == [False] * 3
    assert not any(entry.allowed(findings_of()) for entry in of_module)
