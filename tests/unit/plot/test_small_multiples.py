from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest

from robust_eval.plot import run_comparison as plot
from robust_eval.plot.frs_figures import Facts, certainty_bins, firmest_first

GRID = [0.5, 1.0, 1.5]
FACTS = {
    "small": Facts(np.array([0.1, 0.4, 0.8]), np.array([np.inf, 1.0, 0.5]), {1.0: np.array([1, 0.6, 0.3])}, GRID),
    "large": Facts(np.array([0.2, 0.5]), np.array([1.5, 0.5]), {1.0: np.array([0.7, 0.4])}, GRID),
}


@pytest.fixture
def drawn():
    made = plt.figure()
    yield made
    plt.close(made)


def titles(drawn):
    return [axes.get_title() for axes in drawn.axes if axes.get_title()]


def test_each_measurement_has_a_panel_with_all_temperatures_and_a_place_for_unbroken_facts(drawn):
    plot.entropy_by_breaking_temperature(drawn.subplots(), FACTS, "title")
    assert titles(drawn) == ["small", "large"]


def test_facts_of_all_have_one_scale_of_colours(drawn):
    plot.frs_by_entropy_and_breaking(drawn.subplots(), FACTS, 1.0, "title")
    scores = [panel.collections[0].get_array().tolist() for panel in drawn.axes[:2]]
    assert scores == [[1, 0.6, 0.3], [0.7, 0.4]]
    assert len(drawn.axes) == 3  # the last is the bar


def test_replies_are_shares_of_those_of_their_own_run(drawn):
    bins = {"a": ([0.8], [1], [1]), "b": ([0.9], [1], [3])}
    plot.draw_panels(drawn.subplots(), bins, lambda panel, each: certainty_bins(panel, *each), "title")
    heights = [[round(float(bar.get_height()), 2) for bar in panel.patches] for panel in drawn.axes[:2]]
    assert heights == [[0.5, 0.5], [0.25, 0.75]]


def test_maps_of_facts_have_one_scale_rows_of_one_height_and_one_legend(drawn):
    maps = {
        name: firmest_first(np.full((n, 3), 0.5), np.full(n, 1.0), GRID) for name, n in (("small", 40), ("large", 60))
    }
    plot.accuracy_by_fact(drawn.subplots(), maps, "title")
    assert titles(drawn) == ["small", "large"]
    first, second, _ = drawn.axes  # the last is the bar
    assert first.get_ylim() == second.get_ylim() == (60, 0)
    assert {panel.collections[0].get_clim() for panel in (first, second)} == {(0, 1)}
    (legend,) = drawn.legends
    (words,) = (text.get_text() for text in legend.get_texts())
    assert words == "left edge of the breaking temperature (far right: unbroken)"


@pytest.mark.parametrize(("number", "rows", "columns"), [(2, 1, 2), (3, 2, 2), (4, 2, 2)])
def test_maps_of_facts_stand_in_a_rectangle(drawn, number, rows, columns):
    one = firmest_first(np.ones((2, 3)), np.ones(2), GRID)
    plot.accuracy_by_fact(drawn.subplots(), {f"model {place}": one for place in range(number)}, "title")
    assert drawn.axes[0].get_gridspec().get_geometry() == (rows, columns)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_no_label_of_a_temperature_lies_on_another(drawn, number):
    grid = np.arange(0.2, 2.01, 0.2)
    one = firmest_first(np.ones((2, 10)), np.ones(2), grid)
    plot.accuracy_by_fact(drawn.subplots(), {f"model {place}": one for place in range(number)}, "title")
    drawn.canvas.draw()
    labels = [label for label in drawn.axes[number - 1].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert labels[-1].get_text() == "2"
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
