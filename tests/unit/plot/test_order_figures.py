import math

import matplotlib.pyplot as plt
import pytest

from robust_eval.plot import order_figures as plot

NAN = math.nan


@pytest.fixture
def axes():
    drawn, axes = plt.subplots()
    yield axes
    plt.close(drawn)


def test_each_place_has_its_accuracy_with_its_interval_beside_that_of_all(axes):
    assert plot.accuracy_by_place(axes, [0.75, 0.5, NAN], [0.5, 0.5, NAN], [1.0, NAN, NAN], 0.625) is axes
    points = axes.containers[0].lines[0]
    assert points.get_xydata()[:2].tolist() == [[1, 0.75], [2, 0.5]]
    first, second, _ = axes.containers[0].lines[2][0].get_segments()
    assert first[:, 1].tolist() == [0.5, 1.0]
    assert second[:, 1].tolist() == [0.5, 0.5]  # without an interval
    assert [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"] == [0.625]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["all places together: 0.625"]
    assert (axes.get_ylim(), axes.get_xlim()) == ((0, 1), (0.5, 3.5))
    assert axes.get_title() == "Accuracy by the place of the right choice"
