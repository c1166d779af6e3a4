import math

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from robust_eval.metric.metric_spec import MetricSpec
from robust_eval.plot import comparison_figures as plot
from robust_eval.plot.frs_figures import FactAccuracy
from robust_eval.plot.style import figure
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, UNKNOWN


def test_a_verdict_is_seen_without_colour_and_only_a_metric_that_fails_is_whole_in_the_zone_beyond_its_margin():
    judgements = {
        "knowledge": plot.Judgement(Estimate(-0.25, -0.375, -0.125), 0.0625, "FAIL"),
        "firmness": plot.Judgement(Estimate(0.0, -0.03125, 0.03125), 0.0625, "PASS"),
        "speed": plot.Judgement(Estimate(0.0, -0.5, 0.5), 0.0625, "INCONCLUSIVE"),
    }
    with figure() as (_, axes):
        plot.margins(axes, judgements, "candidate − baseline")
        named = [text.get_text() for text in axes.texts]
        assert named == ["knowledge: FAIL", "firmness: PASS", "speed: INCONCLUSIVE"]
        bars = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
        assert (
            len({each.lines[0].get_marker() for each in bars}) == len({each.lines[0].get_color() for each in bars}) == 3
        )
        edges = [zone.get_paths()[0].get_extents().x1 for zone in axes.collections if zone.get_label() != "_none"][:1]
        assert edges == [-0.0625]
        ends = [each.lines[2][0].get_segments()[0][:, 0].tolist() for each in bars]
        assert [end < -0.0625 for _, end in ends] == [True, False, False]


@pytest.mark.parametrize(
    ("limits", "ends"),
    [
        (SHARE, (0, 1.02)),
        ((-1.0, 1.0), (-1.02, 1.02)),
        ((10.0, 20.0), (10, 20.2)),
        ((-math.inf, 1.0), (-1.02, 1.02)),  # the bound of −9 is cut off
        ((0.0, math.inf), (0, None)),
        ((-math.inf, 0.0), (None, 0)),
        (UNKNOWN, (None, None)),
    ],
)
def test_the_axis_of_a_figure_ends_where_its_values_end(limits, ends):
    about = MetricSpec("mine", "cost in $ of $x", unit="cents", limits=limits)
    with figure() as (canvas, axes):
        plot.by_temperature(axes, {"small": {0.5: Estimate(0.5, -9, 0.75), 1.0: Estimate(0.25)}}, about, "Mine")
        canvas.canvas.draw()  # a label is no mathematics
        seen = axes.get_ylim()
        assert [a for a, end in zip(seen, ends, strict=True) if end is not None] == pytest.approx(
            [end for end in ends if end is not None]
        )


def test_long_labels_of_panels_do_not_reach_into_each_other():
    labels = [f"sampler=temperature_sweep, seed={seed}, selection=exact_match, trials=10" for seed in range(2)]
    facts = FactAccuracy(np.array([0, 1]), np.ones((2, 2)), np.array([math.inf, 1.0]), np.array([0.5, 1.0]), 2)
    with figure() as (canvas, axes):
        plot.accuracy_by_fact(axes, dict.fromkeys(labels, facts), "Accuracy of every fact")
        canvas.draw_without_rendering()
        left, right = (panel.title.get_window_extent() for panel in canvas.axes if panel.get_title())
        assert left.x1 < right.x0
