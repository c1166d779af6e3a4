import math

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from robust_eval.metric.agreement_metric import SPECS as OF_AGREEMENT
from robust_eval.metric.frs_specs import ACCURACY, FRS, SURVIVAL
from robust_eval.metric.metric_spec import MetricSpec, spec_of
from robust_eval.plot import run_comparison as plot
from robust_eval.plot.frs_figures import FactAccuracy
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


def test_accuracy_is_drawn_at_its_temperatures_with_its_intervals():
    with figure() as (_, axes):
        plot.by_temperature(axes, CURVES, ACCURACY, "On facts")
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
        plot.by_number(axes, scores, FRS, "Scores")
        bars = containers(axes)
        small, large = drawn_intervals(bars["small"]), drawn_intervals(bars["large"])
        np.testing.assert_allclose(small[:, 1:], [[0.625, 0.5, 0.75], [0.5, 0.25, 0.75]])
        np.testing.assert_allclose(large[:, 1:], [[0.75, 0.5, 0.875], [0.25, 0.125, 0.375]])
        np.testing.assert_allclose(small[:, 0], [1, 5], rtol=0.03)
        np.testing.assert_allclose(large[:, 0], [1, 10], rtol=0.03)
        assert small[0, 0] < 1 < large[0, 0]


def test_survival_starts_at_one_and_steps_where_a_break_was_seen():
    with figure() as (_, axes):
        plot.by_temperature(axes, CURVES, SURVIVAL, "Facts that hold")
        small, large = axes.get_lines()
        assert np.transpose(small.get_data()).tolist() == [[0, 1], [0.5, 0.75], [1, 0.25]]
        assert np.transpose(large.get_data()).tolist() == [[0, 1], [0.5, 1], [2, 0.5]]


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


def difference(value, low, high):
    return Difference(10, 0.5, 0.5 - value, value, low, high)


def test_differences_are_drawn_from_the_top_with_their_intervals_beside_zero():
    found = {"a − b": difference(0.25, 0.125, 0.5), "a − $c$": difference(-0.5, -0.75, 0.25)}
    with figure() as (_, axes):
        plot.differences(axes, found, "first minus second: mean FRS", "Pairs")
        (bars,) = axes.containers
        line, _, (columns,) = bars.lines
        assert np.transpose(line.get_data()).tolist() == [[0.25, 0], [-0.5, 1]]
        assert [segment.tolist() for segment in columns.get_segments()] == [
            [[0.125, 0], [0.5, 0]],
            [[-0.75, 1], [0.25, 1]],
        ]


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


def test_a_figure_is_drawn_for_each_data_set_beside_those_of_other_runs():
    found = {"small": {"facts": Estimate(0.5, -4, 0.75), "physics": Estimate(0.25)}, "large": {"physics": Estimate(0)}}
    kappa = spec_of("agreement.kappa", OF_AGREEMENT)
    for about, chance in (
        (kappa, True),
        (MetricSpec("mine", "mine", limits=SHARE), False),
    ):
        with figure() as (_, axes):
            plot.by_dataset(axes, found, about, "By data set")
            np.testing.assert_allclose(
                drawn_intervals(containers(axes)["small"]), [[-0.15, 0.5, -4, 0.75], [0.85, 0.25, NAN, NAN]]
            )
            assert ([0, 0] in [list(line.get_ydata()) for line in axes.get_lines()]) == chance


def test_the_types_of_each_run_are_drawn_beside_those_of_the_others():
    shares = {
        "small": {"HUM": Estimate(0.25, 0.125, 0.5), "NUM": Estimate(0.75, 0.5, 0.875)},
        "large": {"NUM": Estimate(0.5, 0.25, 0.625), "": Estimate(NAN)},
    }
    with figure() as (_, axes):
        plot.most_robust_by_type(axes, shares, "Types")
        bars = containers(axes)
        assert list(bars) == legend_labels(axes) == ["small", "large"]
        np.testing.assert_allclose(
            drawn_intervals(bars["small"]), [[-0.15, 0.25, 0.125, 0.5], [0.85, 0.75, 0.5, 0.875]]
        )
        np.testing.assert_allclose(drawn_intervals(bars["large"])[0], [1.15, 0.5, 0.25, 0.625])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["Human", "Numerical", "no type"]
        assert (axes.get_title(), axes.get_ylim()) == ("Types", (0, 1.02))


def test_long_labels_of_panels_do_not_reach_into_each_other():
    labels = [f"sampler=temperature_sweep, seed={seed}, selection=exact_match, trials=10" for seed in range(2)]
    facts = FactAccuracy(np.array([0, 1]), np.ones((2, 2)), np.array([math.inf, 1.0]), np.array([0.5, 1.0]), 2)
    with figure() as (canvas, axes):
        plot.accuracy_by_fact(axes, dict.fromkeys(labels, facts), "Accuracy of every fact")
        canvas.draw_without_rendering()
        left, right = (panel.title.get_window_extent() for panel in canvas.axes if panel.get_title())
        assert left.x1 < right.x0
