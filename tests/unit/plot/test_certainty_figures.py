import math

import numpy as np
import pytest
from findings_by_hand import findings_of

from robust_eval.plot import certainty_figures as plot
from robust_eval.plot.style import figure
from robust_eval.stats.entropy import entropy_of

NAN = math.nan
MOST = math.log(5)
ENTROPY = [0.0, 0.0, 0.0, MOST, math.log(2), NAN, 0.5]
ERROR = [0.0, 0.0, 1.0, 0.8, 0.5, 1.0, NAN]
"""Five questions with both, in four cells."""


def texts(axes):
    return {tuple(np.round(text.get_position(), 9).tolist()): text.get_text() for text in axes.texts}


def centre(column, row, most=MOST):
    return (round((column + 0.5) * most / 10, 9), (row + 0.5) / 10)


def cells(axes):
    """Questions in each cell that is coloured: (column, row) to their number."""
    (mesh,) = axes.collections
    table = mesh.get_array()
    return {(column, row): count for (row, column), count in np.ndenumerate(table.filled(0)) if count}


def heights(axes):
    return [[bar.get_height() for bar in bars] for bars in axes.containers]


def error_against_entropy(axes, entropy, error, most):
    certainty = {"entropy": entropy, "error_rate": error, "most": [most] * len(entropy)}
    plot.error_rate_by_entropy(
        axes, findings_of(certainty={name: list(map(float, each)) for name, each in certainty.items()})
    )


def drawn_counts(axes, *values):
    error_against_entropy(axes, *values, MOST)
    return cells(axes)


def test_entropies_of_models_stand_side_by_side_on_common_bins():
    with figure() as (_, axes):
        entropies = {"small": [0.0, 0.1, MOST / 2, MOST, NAN], "large": [MOST]}
        plot.entropy_histogram(axes, entropies, MOST)
        assert heights(axes) == [[2, 0, 0, 0, 0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
        for bars in zip(*axes.containers, strict=True):
            middle = np.mean([bar.get_x() + bar.get_width() / 2 for bar in bars])
            assert (middle / MOST * 10) % 1 == pytest.approx(0.5, abs=1e-6)
            assert bars[0].get_x() + bars[0].get_width() <= bars[1].get_x() + 1e-9


def test_each_question_is_counted_in_its_cell():
    with figure() as (_, axes):
        error_against_entropy(axes, ENTROPY, ERROR, MOST)
        assert cells(axes) == {(0, 0): 2, (0, 9): 1, (9, 8): 1, (4, 5): 1}
        assert texts(axes) == {centre(0, 0): "2", centre(0, 9): "1", centre(9, 8): "1", centre(4, 5): "1"}


def test_the_outer_bins_hold_nothing_at_all_and_everything():
    with figure() as (_, axes):
        assert drawn_counts(axes, [0, 0, MOST, MOST], [0, 1, 0, 1]) == {(0, 0): 1, (0, 9): 1, (9, 0): 1, (9, 9): 1}


@pytest.mark.parametrize("right", range(21))
def test_rounding_does_not_decide_in_which_bin_an_error_rate_lies(right):
    rates = [1 - right / 20, (20 - right) / 20, sum([1 / 20] * (20 - right))]
    with figure() as (_, axes):
        assert drawn_counts(axes, [0.5] * 3, rates) == {(3, min(9, (20 - right) // 2)): 3}


def test_rounding_puts_no_value_outside():
    with figure() as (_, axes):
        assert drawn_counts(axes, [MOST + 4e-16, -1e-17], [1 + 2e-16, -2e-16]) == {(9, 9): 1, (0, 0): 1}


@pytest.mark.parametrize(("entropy", "error"), [([2.0], [0.5]), ([-0.1], [0.5]), ([0.5], [1.1]), ([0.5], [-0.1])])
def test_values_outside_their_range_are_refused(entropy, error):
    with figure() as (_, axes), pytest.raises(ValueError, match="values must be between 0 and"):
        error_against_entropy(axes, entropy, error, MOST)


def test_an_entropy_beyond_the_greatest_is_refused_in_the_histogram():
    with figure() as (_, axes), pytest.raises(ValueError, match=r"between 0 and 0\.69.*: 0\.1 to 0\.7"):
        plot.entropy_histogram(axes, {"small": [0.1, 0.7, NAN]}, math.log(2))


@pytest.mark.parametrize("most", [0.0, -1.0, NAN])
def test_the_greatest_entropy_is_above_zero(most):
    with figure() as (_, axes), pytest.raises(ValueError, match="most"):
        error_against_entropy(axes, [0.0], [0.0], most)


@pytest.mark.parametrize(
    ("most", "number"), [(math.log(2), 1), (math.log(3), 6), (math.log(4), 11), (MOST, 34), (math.log(20), 34)]
)
def test_the_curves_are_those_that_the_choices_allow(most, number):
    with figure() as (_, axes):
        error_against_entropy(axes, [0.0], [0.0], most)
        lines = axes.get_lines()
        assert len(lines) == number
        np.testing.assert_array_equal(lines[0].get_xdata(), entropy_of(lines[0].get_ydata()))


def test_every_category_has_its_panel_in_the_order_of_the_paper():
    categories = ["M", "D", "optics", "C", "S", "F", "M"]
    with figure() as (canvas, axes):
        plot.by_category(axes, ENTROPY, ERROR, categories, MOST)
        panels = [panel for panel in canvas.axes if panel.get_title()]
        titles = ["definitions", "facts", "concepts", "one step", "several steps", "optics"]
        assert [panel.get_title().partition("(")[0].strip() for panel in panels] == titles
        assert [cells(panel) for panel in panels] == [
            {(0, 0): 1},
            {},
            {(9, 8): 1},
            {(4, 5): 1},
            {(0, 0): 1},
            {(0, 9): 1},
        ]
