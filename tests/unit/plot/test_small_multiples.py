from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest

from robust_eval.plot import comparison_figures as plot
from robust_eval.plot.frs_figures import most_robust_first

GRID = [0.5, 1.0, 1.5]


@pytest.fixture
def drawn():
    made = plt.figure()
    yield made
    plt.close(made)


def titles(drawn):
    return [axes.get_title() for axes in drawn.axes if axes.get_title()]


def test_maps_of_facts_have_one_scale_rows_of_one_height_and_one_legend(drawn):
    maps = {
        name: most_robust_first(np.full((n, 3), 0.5), np.full(n, 1.0), GRID)
        for name, n in (("small", 40), ("large", 60))
    }
    plot.accuracy_by_fact(drawn.subplots(), maps, "title")
    assert titles(drawn) == ["small", "large"]
    first, second, _ = drawn.axes  # the last is the bar
    assert first.get_ylim() == second.get_ylim() == (60, 0)
    assert {panel.collections[0].get_clim() for panel in (first, second)} == {(0, 1)}
    (legend,) = drawn.legends
    (words,) = (text.get_text() for text in legend.get_texts())
    assert words == "breaking temperature (left edge; far right: unbroken)"


@pytest.mark.parametrize(("number", "rows", "columns"), [(2, 1, 2), (3, 2, 2), (4, 2, 2)])
def test_maps_of_facts_stand_in_a_rectangle(drawn, number, rows, columns):
    one = most_robust_first(np.ones((2, 3)), np.ones(2), GRID)
    plot.accuracy_by_fact(drawn.subplots(), {f"model {place}": one for place in range(number)}, "title")
    assert drawn.axes[0].get_gridspec().get_geometry() == (rows, columns)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_no_label_of_a_temperature_lies_on_another(drawn, number):
    grid = np.arange(0.2, 2.01, 0.2)
    one = most_robust_first(np.ones((2, 10)), np.ones(2), grid)
    plot.accuracy_by_fact(drawn.subplots(), {f"model {place}": one for place in range(number)}, "title")
    drawn.canvas.draw()
    labels = [label for label in drawn.axes[number - 1].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert labels[-1].get_text() == "2"
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
