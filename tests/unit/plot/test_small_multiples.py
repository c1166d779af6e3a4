import matplotlib.pyplot as plt
import numpy as np
import pytest

from robust_eval.plot import run_comparison as plot
from robust_eval.plot.frs_figures import Facts, certainty_bins

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
    plot.entropy_by_breaking_temperature(drawn, FACTS, "title")
    assert titles(drawn) == ["small", "large"]


def test_facts_of_all_have_one_scale_of_colours(drawn):
    plot.frs_by_entropy_and_breaking(drawn, FACTS, 1.0, "title")
    scores = [panel.collections[0].get_array().tolist() for panel in drawn.axes[:2]]
    assert scores == [[1, 0.6, 0.3], [0.7, 0.4]]
    assert len(drawn.axes) == 3  # the last is the bar


def test_replies_are_shares_of_those_of_their_own_run(drawn):
    bins = {"a": ([0.8], [1], [1]), "b": ([0.9], [1], [3])}
    plot.draw_panels(drawn, bins, lambda panel, each: certainty_bins(panel, *each), "title")
    heights = [[round(float(bar.get_height()), 2) for bar in panel.patches] for panel in drawn.axes[:2]]
    assert heights == [[0.5, 0.5], [0.25, 0.75]]
