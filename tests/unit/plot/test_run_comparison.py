import math
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from robust_eval.metric.agreement_metric import FIGURES as OF_AGREEMENT
from robust_eval.metric.frs_specs import ACCURACY, FRS, SURVIVAL
from robust_eval.metric.metric_spec import MetricSpec, spec_of
from robust_eval.plot import run_comparison as plot
from robust_eval.plot.style import figure
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, UNKNOWN
from robust_eval.stats.significance import Difference

NAN = math.nan
CURVES = {
    "small": {1.0: Estimate(0.25, 0.125, 0.5), 0.5: Estimate(0.75, 0.5, 0.875)},
    "large": {0.5: Estimate(1.0, 1.0, 1.0), 2.0: Estimate(0.5, 0.25, 0.625)},
}
KINDS = [(plot.by_number, FRS), (plot.by_temperature, ACCURACY), (plot.by_temperature, SURVIVAL)]


def drawn_intervals(bars):
    """The data of an errorbar: (x, value, low, high) at every point with an interval."""
    line, _, (columns,) = bars.lines
    (x, y) = line.get_data()
    ends = np.array([segment[:, 1] if len(segment) else (NAN, NAN) for segment in columns.get_segments()])
    return np.column_stack([x, y, ends])


def containers(axes):
    return {bars.get_label(): bars for bars in axes.containers if isinstance(bars, ErrorbarContainer)}


def legend(axes):
    (found,) = axes.figure.legends
    return found


def legend_labels(axes):
    return [text.get_text() for text in legend(axes).get_texts()]


def many(count):
    return {f"run {place}": {0.5: Estimate(0.9, 0.8, 1.0), 1.0: Estimate(0.5, 0.4, 0.6)} for place in range(count)}


def test_accuracy_is_drawn_at_its_temperatures_with_its_intervals():
    with figure() as (_, axes):
        assert plot.by_temperature(axes, CURVES, ACCURACY, "On facts") is axes
        bars = containers(axes)
        assert list(bars) == legend_labels(axes) == ["small", "large"]
        np.testing.assert_allclose(drawn_intervals(bars["small"]), [[0.5, 0.75, 0.5, 0.875], [1, 0.25, 0.125, 0.5]])
        np.testing.assert_allclose(drawn_intervals(bars["large"]), [[0.5, 1, 1, 1], [2, 0.5, 0.25, 0.625]])
        assert axes.get_xticks().tolist() == [0.5, 1.0, 2.0]
        assert axes.get_title() == "On facts"
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("temperature t", "accuracy (share of right replies)")


def test_the_score_is_drawn_for_each_d_with_runs_beside_one_another():
    scores = {
        "small": {5.0: Estimate(0.5, 0.25, 0.75), 1.0: Estimate(0.625, 0.5, 0.75)},
        "large": {1.0: Estimate(0.75, 0.5, 0.875), 10.0: Estimate(0.25, 0.125, 0.375)},
    }
    with figure() as (_, axes):
        assert plot.by_number(axes, scores, FRS, "Scores") is axes
        bars = containers(axes)
        small, large = drawn_intervals(bars["small"]), drawn_intervals(bars["large"])
        np.testing.assert_allclose(small[:, 1:], [[0.625, 0.5, 0.75], [0.5, 0.25, 0.75]])
        np.testing.assert_allclose(large[:, 1:], [[0.75, 0.5, 0.875], [0.25, 0.125, 0.375]])
        np.testing.assert_allclose(small[:, 0], [1, 5], rtol=0.03)
        np.testing.assert_allclose(large[:, 0], [1, 10], rtol=0.03)
        assert small[0, 0] < 1 < large[0, 0]
        assert axes.get_xscale() == "log"
        assert axes.get_xticks().tolist() == [1, 5, 10]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "5", "10"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("weight d of the entropy", "mean FRS")


def test_one_run_of_one_d_stands_where_its_d_is():
    with figure() as (canvas, axes):
        plot.by_number(axes, {"small": {0.1: Estimate(0.5, 0.25, 0.75)}}, FRS, "Scores")
        canvas.canvas.draw()
        np.testing.assert_allclose(drawn_intervals(containers(axes)["small"]), [[0.1, 0.5, 0.25, 0.75]])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1"]


def test_survival_starts_at_one_and_steps_where_a_break_was_seen():
    with figure() as (_, axes):
        assert plot.by_temperature(axes, CURVES, SURVIVAL, "Facts that hold") is axes
        small, large = axes.get_lines()
        assert [small.get_drawstyle(), large.get_drawstyle()] == ["steps-post"] * 2
        assert np.transpose(small.get_data()).tolist() == [[0, 1], [0.5, 0.75], [1, 0.25]]
        assert np.transpose(large.get_data()).tolist() == [[0, 1], [0.5, 1], [2, 0.5]]
        assert legend_labels(axes) == ["small", "large"]
        assert axes.get_xticks().tolist() == [0.5, 1.0, 2.0]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("temperature t", "share of facts unbroken beyond t")


def test_the_interval_of_survival_steps_with_it():
    with figure() as (_, axes):
        plot.by_temperature(axes, {"small": CURVES["small"]}, SURVIVAL, "Facts that hold")
        (band,) = axes.collections
        corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
        assert corners == {(0, 1), (0.5, 1), (0.5, 0.5), (0.5, 0.875), (1, 0.5), (1, 0.875), (1, 0.125)}


@pytest.mark.parametrize(
    ("estimate", "drawn"),
    [
        (Estimate(0.5, 0.5, 0.5), (0.5, 0.5)),
        (Estimate(1.0, 0.75, 1.0), (0.75, 1.0)),
        (Estimate(0.3, 0.30000000000000004, 0.4), (0.3, 0.4)),
        (Estimate(0.3, 0.2, 0.29999999999999993), (0.2, 0.3)),
    ],
)
def test_a_bound_at_the_value_or_beyond_it_by_rounding_is_drawn_at_the_value(estimate, drawn):
    with figure() as (canvas, axes):
        plot.by_temperature(axes, {"small": {0.5: estimate}}, ACCURACY, "Accuracy")
        canvas.canvas.draw()
        ((_, value, low, high),) = drawn_intervals(containers(axes)["small"])
        assert value == estimate.value
        assert (low, high) == pytest.approx(drawn, abs=1e-12)
        assert low <= value <= high


@pytest.mark.parametrize(("draw", "about"), KINDS)
def test_undefined_points_leave_a_gap(draw, about, tmp_path):
    curve = {0.5: Estimate(0.75, 0.5, 1.0), 1.0: Estimate(NAN), 2.0: Estimate(0.25)}
    with figure() as (canvas, axes):
        draw(axes, {"small": curve, "none": {0.5: Estimate(NAN)}}, about, "Gaps")
        canvas.savefig(tmp_path / "gaps.png")
        small, none = (line.get_ydata() for line in value_lines(axes))
        np.testing.assert_array_equal(small[-3:], [0.75, NAN, 0.25])
        np.testing.assert_array_equal(none[-1:], [NAN])


def value_lines(axes):
    """The line of the values of each run."""
    return [bars.lines[0] for bars in containers(axes).values()] or axes.get_lines()


def test_the_ticks_stand_at_the_temperatures_only_where_these_are_few():
    few = {round(0.1 * step, 1): Estimate(0.5, 0.4, 0.6) for step in range(1, 13)}
    with figure() as (_, axes):
        plot.by_temperature(axes, {"small": few}, ACCURACY, "Few")
        assert axes.get_xticks().tolist() == list(few)
    with figure() as (_, axes):
        plot.by_temperature(axes, {"small": few | {1.3: Estimate(0.5, 0.4, 0.6)}}, ACCURACY, "Many")
        assert len(axes.get_xticks()) < 13


@pytest.mark.parametrize(("draw", "about"), KINDS)
def test_the_legend_of_thirty_curves_lies_beside_the_axes(draw, about, tmp_path):
    with figure() as (canvas, axes):
        draw(axes, many(30), about, "Thirty")
        canvas.savefig(tmp_path / "thirty.png")
        assert len(value_lines(axes)) == 30
        assert legend_labels(axes) == [f"run {place}" for place in range(30)]
        assert legend(axes).get_window_extent().x0 >= axes.get_window_extent().x1


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (3, "trials={}, temperatures=[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]"),
        (5, "trials={}, temperatures=[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]"),
        (8, "SmolLM2-135M, seed={}"),
        (30, "run {}"),
    ],
)
def test_neither_many_curves_nor_long_names_crowd_out_the_drawing(count, name, tmp_path):
    curves = {name.format(place): curve for place, curve in enumerate(many(count).values())}
    with figure() as (canvas, axes):
        plot.by_temperature(axes, curves, ACCURACY, "Accuracy")
        canvas.savefig(tmp_path / "crowded.png")
        whole, names, inside = canvas.bbox, legend(axes).get_window_extent(), axes.get_window_extent()
        assert (names.x0 >= 0, names.y0 >= 0, names.x1 <= whole.x1, names.y1 <= whole.y1) == (True,) * 4
        assert (inside.width > 0.3 * whole.width, inside.height > 0.5 * whole.height) == (True, True)


@pytest.mark.parametrize(("draw", "about"), KINDS)
def test_no_two_of_28_curves_look_alike(draw, about):
    with figure() as (_, axes):
        draw(axes, many(28), about, "Many")
        lines = value_lines(axes)
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 28


@pytest.mark.parametrize("name", ["_mine", "costs $x_$", "a<b>&'c'"])
def test_every_name_has_its_place_in_the_legend(name, tmp_path):
    with figure() as (canvas, axes):
        plot.by_temperature(axes, {name: CURVES["small"], "large": CURVES["large"]}, SURVIVAL, "Facts that hold")
        canvas.savefig(tmp_path / "named.svg")
        assert len(legend_labels(axes)) == 2


def difference(value, low, high):
    return Difference(10, 0.5, 0.5 - value, value, low, high)


def test_differences_are_drawn_from_the_top_with_their_intervals_beside_zero():
    found = {"a − b": difference(0.25, 0.125, 0.5), "a − $c$": difference(-0.5, -0.75, 0.25)}
    with figure() as (_, axes):
        assert plot.differences(axes, found, "first minus second: mean FRS", "Pairs") is axes
        (bars,) = axes.containers
        line, _, (columns,) = bars.lines
        assert np.transpose(line.get_data()).tolist() == [[0.25, 0], [-0.5, 1]]
        assert [segment.tolist() for segment in columns.get_segments()] == [
            [[0.125, 0], [0.5, 0]],
            [[-0.75, 1], [0.25, 1]],
        ]
        zero = axes.get_lines()[0]
        assert (zero.get_xdata(), axes.get_ylim()) == ([0, 0], (1.5, -0.5))
        assert [label.get_text() for label in axes.get_yticklabels()] == list(found)
        assert (axes.get_xlabel(), axes.get_title()) == ("first minus second: mean FRS", "Pairs")


def test_forty_differences_of_long_names_fit_into_their_figure(tmp_path):
    name = "trials={}, temperatures=[0.2, 0.4, 0.6, 0.8, 1.0, 1.2] − trials=40, temperatures=[0.2, 0.4, 0.6, 0.8, 1.0]"
    found = {name.format(place): difference(0.25, 0.125, 0.5) for place in range(40)}
    with figure() as (canvas, axes):
        plot.differences(axes, found, "first minus second", "Pairs")
        canvas.savefig(tmp_path / "differences.png")
        boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
        assert all(above.y0 >= below.y1 for above, below in pairwise(boxes))
        assert min(box.x0 for box in boxes) >= 0
        assert axes.get_window_extent().width > 0.3 * canvas.bbox.width


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
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("temperature t", "cost in $ of $x (cents)")


def test_numbers_of_which_one_is_zero_stand_on_a_plain_axis():
    about = MetricSpec("mine.budget{}", "accuracy, budget {}", limits=SHARE)
    with figure() as (canvas, axes):
        plot.by_number(axes, {"small": {64.0: Estimate(0.5, 0.25, 0.75), 0.0: Estimate(0.25)}}, about, "Mine")
        canvas.canvas.draw()
        assert axes.get_xscale() == "linear"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "64"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("budget", "accuracy, budget …")


def test_a_figure_is_drawn_for_each_data_set_beside_those_of_other_runs():
    found = {"small": {"facts": Estimate(0.5, -4, 0.75), "physics": Estimate(0.25)}, "large": {"physics": Estimate(0)}}
    kappa = spec_of("agreement.kappa", OF_AGREEMENT)
    for about, ends, chance in (
        (kappa, (-1.02, 1.02), True),
        (MetricSpec("mine", "mine", limits=SHARE), (0, 1.02), False),
    ):
        with figure() as (_, axes):
            assert plot.by_dataset(axes, found, about, "By data set") is axes
            np.testing.assert_allclose(
                drawn_intervals(containers(axes)["small"]), [[-0.15, 0.5, -4, 0.75], [0.85, 0.25, NAN, NAN]]
            )
            assert [label.get_text() for label in axes.get_xticklabels()] == ["facts", "physics"]
            assert (axes.get_title(), axes.get_ylim()) == ("By data set", ends)
            assert legend_labels(axes) == ["small", "large"]
            assert ([0, 0] in [list(line.get_ydata()) for line in axes.get_lines()]) == chance


def test_the_types_of_each_run_are_drawn_beside_those_of_the_others():
    shares = {
        "small": {"HUM": Estimate(0.25, 0.125, 0.5), "NUM": Estimate(0.75, 0.5, 0.875)},
        "large": {"NUM": Estimate(0.5, 0.25, 0.625), "": Estimate(NAN)},
    }
    with figure() as (_, axes):
        assert plot.most_robust_by_type(axes, shares, "Types") is axes
        bars = containers(axes)
        assert list(bars) == legend_labels(axes) == ["small", "large"]
        np.testing.assert_allclose(
            drawn_intervals(bars["small"]), [[-0.15, 0.25, 0.125, 0.5], [0.85, 0.75, 0.5, 0.875]]
        )
        np.testing.assert_allclose(drawn_intervals(bars["large"])[0], [1.15, 0.5, 0.25, 0.625])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["Human", "Numerical", "no type"]
        assert (axes.get_title(), axes.get_ylim()) == ("Types", (0, 1.02))
