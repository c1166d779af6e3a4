import numpy as np
import pytest
from scipy.stats import gaussian_kde

from robust_eval.plot import frs_figures as plot
from robust_eval.plot.style import figure
from robust_eval.stats.estimate import Estimate

GRID = [0.2, 0.4, 0.6]


def test_accuracy_is_drawn_with_its_interval():
    curve = {0.6: Estimate(0.2, 0.1, 0.3), 0.2: Estimate(0.9, 0.8, 1.0), 0.4: Estimate(0.5, 0.4, 0.6)}
    with figure() as (_, axes):
        assert plot.accuracy_by_temperature(axes, curve) is axes
        assert len(axes.get_lines()) == 1  # no threshold: a fact breaks below one, and not the mean of facts
        line = axes.get_lines()[0]
        assert line.get_xdata().tolist() == GRID
        assert line.get_ydata().tolist() == [0.9, 0.5, 0.2]
        low, high = (
            axes.collections[0].get_paths()[0].vertices[:, 1].min(),
            axes.collections[0].get_paths()[0].vertices[:, 1].max(),
        )
        assert (low, high) == (0.1, 1.0)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("temperature t", "accuracy (share of right replies)")


def test_the_mean_entropy_stands_at_each_breaking_temperature():
    entropy, breaking = [0.1, 0.3, 0.5, 0.9, np.nan], [0.2, 0.2, 0.6, np.inf, 0.4]
    with figure() as (_, axes):
        plot.entropy_by_breaking_temperature(axes, entropy, breaking, GRID, -0.4)
        means = axes.containers[0].lines[0]
        assert means.get_xdata().tolist() == pytest.approx([0.2, 0.6, 0.9])  # the unbroken stand beyond the grid
        assert means.get_ydata().tolist() == pytest.approx([0.2, 0.5, 0.9])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0.2", "0.4", "0.6", "none"]
        assert "r = −0.40 over broken facts" in axes.get_title()


def test_there_is_no_place_for_unbroken_facts_where_there_are_none():
    with figure() as (_, axes):
        plot.entropy_by_breaking_temperature(axes, [0.1], [0.2], GRID, np.nan)
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0.2", "0.4", "0.6"]
        assert "r undefined" in axes.get_title()


def test_every_fact_with_a_score_is_drawn_in_its_colour():
    with figure() as (_, axes):
        plot.frs_by_entropy_and_breaking(axes, [0.1, 0.2, 0.3], [0.2, np.inf, np.nan], [0.7, 1.0, np.nan], GRID, 1)
        (points,) = axes.collections
        assert points.get_array().tolist() == [0.7, 1.0]
        assert points.get_offsets()[:, 0].tolist() == [0.1, 0.2]


def test_a_density_covers_the_broken_share():
    scores = np.concatenate([np.random.default_rng(0).normal(0.5, 0.05, 300), np.ones(100)])
    with figure() as (_, axes):
        plot.frs_density(axes, {1.0: scores, 2.0: scores - 0.1 * (scores < 1)}, np.where(scores < 1, 1.0, np.inf))
        first, second = axes.get_lines()
        assert np.trapezoid(first.get_ydata(), first.get_xdata()) == pytest.approx(0.75, abs=0.01)
        assert second.get_xdata()[second.get_ydata().argmax()] == pytest.approx(0.4, abs=0.03)
        assert "(25 % of facts are unbroken and not shown)" in axes.get_title()


def test_too_few_facts_for_a_density_are_said():
    with figure() as (_, axes):
        plot.frs_density(axes, {1.0: [0.5, 1.0]}, [0.4, np.inf])
        assert [text.get_text() for text in axes.texts][-1] == "too few broken facts for a density"


def test_the_share_of_each_type_is_drawn_with_its_interval():
    shares = {
        "": Estimate(0.5, 0.25, 0.75),
        "HUM": Estimate(1.0, 0.5, 1.0),
        "LOC": Estimate(np.nan),
        "a$b": Estimate(0),
    }
    with figure() as (drawn, axes):
        assert plot.most_robust_by_type(axes, shares, {"": 4, "HUM": 2, "LOC": 1, "a$b": 1}, 3) is axes
        drawn.canvas.draw()
        assert [bar.get_height() for bar in axes.patches] == [0.5, 1.0, 0.0]
        ends = [segment[:, 1].tolist() for segment in axes.containers[1].lines[2][0].get_segments()]
        assert ends == [[0.25, 0.75], [0.5, 1.0], [0.0, 0.0]]
        assert [label.get_text() for label in axes.get_xticklabels()] == [
            "no type\nn = 4",
            "Human\nn = 2",
            "a$b\nn = 1",
        ]
        assert axes.get_title() == "Question types among the 3 most and the 3 least robust facts"


def test_facts_that_hold_start_at_one_and_step_where_a_break_was_seen():
    with figure() as (_, axes):
        assert plot.survival(axes, {1.0: Estimate(0.25, 0.125, 0.5), 0.5: Estimate(0.75, 0.5, 0.875)}) is axes
        line = axes.get_lines()[0]
        assert line.get_drawstyle() == "steps-post"
        assert line.get_xydata().tolist() == [[0, 1], [0.5, 0.75], [1, 0.25]]
        (band,) = axes.collections
        assert {(0.5, 0.5), (0.5, 0.875), (1, 0.125)} <= {tuple(corner) for corner in band.get_paths()[0].vertices}
        assert axes.get_xticks().tolist() == [0.5, 1.0]
        assert [text.get_text() for text in axes.texts] == ["half of the facts"]


def test_the_mean_score_of_each_d_stands_beside_the_share_of_unbroken_facts():
    scores = {5.0: Estimate(0.5, 0.25, 0.75), 1.0: Estimate(0.625, 0.5, 0.75)}
    with figure() as (drawn, axes):
        assert plot.frs_by_d(axes, scores, 0.25) is axes
        drawn.canvas.draw()
        line, _, (columns,) = axes.containers[0].lines
        assert line.get_xydata().tolist() == [[1, 0.625], [5, 0.5]]
        assert [segment[:, 1].tolist() for segment in columns.get_segments()] == [[0.5, 0.75], [0.25, 0.75]]
        share = axes.get_lines()[-1]
        assert list(share.get_ydata()) == [0.25, 0.25]
        assert [text.get_text() for text in axes.texts] == ["25 % of the facts are unbroken"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "5"]


def test_the_density_of_many_facts_is_that_of_all_of_them():
    scores = np.random.default_rng(0).beta(5, 4, 5000)
    with figure() as (_, axes):
        plot.frs_density(axes, {1.0: scores}, np.ones(5000))
        (line,) = axes.get_lines()
        np.testing.assert_allclose(line.get_ydata(), gaussian_kde(scores)(line.get_xdata()), atol=0.002)


@pytest.mark.parametrize(("number", "drawn_as_picture"), [(2000, False), (2001, True)])
def test_a_cloud_of_many_facts_is_one_picture(number, drawn_as_picture):
    values = np.full(number, 0.4)
    with figure() as (_, axes):
        plot.frs_by_entropy_and_breaking(axes, values, values, values, GRID, 1)
        assert bool(axes.collections[0].get_rasterized()) is drawn_as_picture
    with figure() as (_, axes):
        plot.entropy_by_breaking_temperature(axes, values, values, GRID, np.nan)
        assert bool(axes.get_lines()[0].get_rasterized()) is drawn_as_picture
