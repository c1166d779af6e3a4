import math

import numpy as np
import pytest
from findings_by_hand import findings_of

from robust_eval.plot import perturbation_figures as plot
from robust_eval.stats.estimate import Estimate

NAN = math.nan
NOTHING = [Estimate(NAN)] * 2


def columns(name, estimates):
    """The estimates in three columns."""
    ends = zip(("", "_low", "_high"), zip(*estimates, strict=True), strict=True)
    return {f"{name}{end}": list(each) for end, each in ends}


def turns(holding, mended):
    return findings_of(challenge_turns=columns("holding", holding) | columns("mended", mended))


def test_facts_that_hold_are_a_step_curve_and_mended_ones_a_line_each_with_its_band(axes):
    holding = [Estimate(0.75, 0.5, 1.0), Estimate(0.5, 0.25, 0.75)]
    mended = [Estimate(0.0, 0.0, 0.25), Estimate(0.25, 0.0, 0.5)]
    plot.facts_under_pushback(axes, turns(holding, mended))
    steps, line = axes.lines
    assert steps.get_xydata().tolist() == [[0, 1], [1, 0.75], [2, 0.5]]
    assert line.get_xydata().tolist() == [[0, 0], [1, 0], [2, 0.25]]
    assert len(axes.collections) == 2


@pytest.mark.parametrize(
    ("holding", "mended", "label"), [(NOTHING, [Estimate(0.5)] * 2, "wrong"), ([Estimate(0.5)] * 2, NOTHING, "right")]
)
def test_where_no_fact_was_right_or_none_wrong_there_is_one_curve(axes, holding, mended, label):
    plot.facts_under_pushback(axes, turns(holding, mended))
    (text,) = axes.get_legend().get_texts()
    assert text.get_text().startswith(f"initially {label}")


def test_each_place_has_its_accuracy_with_its_interval_beside_that_of_all(axes):
    places = {"accuracy": [0.75, 0.5, NAN], "low": [0.5, 0.5, NAN], "high": [1.0, NAN, NAN]}
    plot.accuracy_by_place(axes, findings_of(curves={"order.accuracy": {1.0: Estimate(0.625)}}, order_places=places))
    points = axes.containers[0].lines[0]
    assert points.get_xydata()[:2].tolist() == [[1, 0.75], [2, 0.5]]
    first, second, _ = axes.containers[0].lines[2][0].get_segments()
    assert first[:, 1].tolist() == [0.5, 1.0]
    assert second[:, 1].tolist() == [0.5, 0.5]  # without an interval


def test_accuracy_and_facts_that_need_no_more_stand_above_the_tokens_of_each_budget(axes):
    accuracy = [Estimate(0.25, 0.1, 0.4), Estimate(0.5, 0.3, 0.7), Estimate(0.75, 0.6, 0.9)]
    budgets = {"budget": ["none", "low", "high"], "tokens": [2, math.nan, 300.4]}
    budgets |= columns("accuracy", accuracy) | columns("enough", [Estimate(math.nan)] * 3)
    plot.accuracy_by_budget(axes, findings_of(thinking_budgets=budgets))
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.25, 0.5, 0.75]]


def test_questions_whose_variance_is_not_known_are_left_out(axes):
    thinking = {"between": [0.1, -0.01, math.nan], "within": [0.05, 0.2, 0.1]}
    plot.variance_of_questions(axes, findings_of(thinking=thinking))
    np.testing.assert_allclose(axes.collections[0].get_offsets(), [[0.05, 0.1], [0.2, -0.01]])
    assert axes.get_title().endswith("(n = 2)")
