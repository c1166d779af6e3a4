import math

import matplotlib.pyplot as plt
import pytest

from robust_eval.plot import challenge_figures as plot
from robust_eval.stats.estimate import Estimate

NOTHING = [Estimate(math.nan)] * 2


@pytest.fixture
def axes():
    drawn, axes = plt.subplots()
    yield axes
    plt.close(drawn)


def test_facts_that_hold_are_a_step_curve_and_mended_ones_a_line_each_with_its_band(axes):
    holding = [Estimate(0.75, 0.5, 1.0), Estimate(0.5, 0.25, 0.75)]
    mended = [Estimate(0.0, 0.0, 0.25), Estimate(0.25, 0.0, 0.5)]
    assert plot.facts_under_doubt(axes, holding, mended) is axes
    steps, line = axes.lines
    assert steps.get_xydata().tolist() == [[0, 1], [1, 0.75], [2, 0.5]]
    assert steps.get_drawstyle() == "steps-post"
    assert line.get_xydata().tolist() == [[0, 0], [1, 0], [2, 0.25]]
    assert len(axes.collections) == 2
    said = [text.get_text() for text in axes.get_legend().get_texts()]
    assert said == ["right at first: facts that hold", "wrong at first: right answers"]
    assert axes.get_title() == "Facts under doubt"


@pytest.mark.parametrize(
    ("holding", "mended", "label"), [(NOTHING, [Estimate(0.5)] * 2, "wrong"), ([Estimate(0.5)] * 2, NOTHING, "right")]
)
def test_where_no_fact_was_right_or_none_wrong_there_is_one_curve(axes, holding, mended, label):
    plot.facts_under_doubt(axes, holding, mended)
    (text,) = axes.get_legend().get_texts()
    assert text.get_text().startswith(f"{label} at first")
