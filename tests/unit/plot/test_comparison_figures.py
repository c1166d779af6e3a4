import math
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from robust_eval.metric.metric_spec import MetricSpec
from robust_eval.plot import comparison_figures as plot
from robust_eval.plot.frs_figures import most_robust_first
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


GRID = [0.5, 1.0, 1.5]


def maps(canvas, grid=GRID, **facts):
    """Draw maps of so many facts each, which all break at 1; return the panels."""
    broken = {name: most_robust_first(np.full((n, len(grid)), 0.5), np.ones(n), grid) for name, n in facts.items()}
    plot.accuracy_by_fact(canvas.axes[0], broken, "title")
    canvas.draw_without_rendering()
    return [axes for axes in canvas.axes if axes.get_title()]


def test_maps_of_facts_have_one_scale_rows_of_one_height_and_one_legend():
    with figure() as (canvas, _):
        panels = maps(canvas, small=40, large=60)
        assert [panel.get_title() for panel in panels] == ["small", "large"]
        assert {panel.get_ylim() for panel in panels} == {(60, 0)}
        assert {panel.collections[0].get_clim() for panel in panels} == {(0, 1)}
        (words,) = (text.get_text() for legend in canvas.legends for text in legend.get_texts())
        assert words == "breaking temperature (left edge; far right: unbroken)"


@pytest.mark.parametrize(("number", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (4, 2, 2)])
def test_maps_of_facts_stand_in_a_rectangle_and_no_label_of_a_temperature_lies_on_another(number, rows, columns):
    with figure() as (canvas, _):
        panels = maps(canvas, np.arange(0.2, 2.01, 0.2), **{f"model {place}": 2 for place in range(number)})
        assert panels[0].get_gridspec().get_geometry() == (rows, columns)
        labels = [label for label in panels[-1].get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in labels]
        assert labels[-1].get_text() == "2"
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_long_labels_of_panels_do_not_reach_into_each_other():
    labels = [f"sampler=temperature_sweep, seed={seed}, selection=exact_match, trials=10" for seed in range(2)]
    with figure() as (canvas, _):
        left, right = (panel.title.get_window_extent() for panel in maps(canvas, **dict.fromkeys(labels, 2)))
        assert left.x1 < right.x0
