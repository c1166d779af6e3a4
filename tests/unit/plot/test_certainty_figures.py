import math

import numpy as np
import pytest
from findings_by_hand import findings_of

from robust_eval.plot import certainty_figures as plot
from robust_eval.plot.style import figure
from robust_eval.stats.entropy import entropy_of

MOST = math.log(5)


def cells(axes):
    """Questions in each cell that is coloured: (column, row) to their number."""
    (mesh,) = axes.collections
    table = mesh.get_array()
    return {(column, row): count for (row, column), count in np.ndenumerate(table.filled(0)) if count}


def error_against_entropy(axes, entropy, error, most):
    certainty = {"entropy": entropy, "error_rate": error, "most": [most] * len(entropy)}
    plot.error_rate_by_entropy(
        axes, findings_of(certainty={name: list(map(float, each)) for name, each in certainty.items()})
    )


def drawn_counts(axes, *values):
    error_against_entropy(axes, *values, MOST)
    return cells(axes)


@pytest.mark.parametrize("right", range(21))
def test_rounding_does_not_decide_in_which_bin_an_error_rate_lies(right):
    rates = [1 - right / 20, (20 - right) / 20, sum([1 / 20] * (20 - right))]
    with figure() as (_, axes):
        assert drawn_counts(axes, [0.5] * 3, rates) == {(3, min(9, (20 - right) // 2)): 3}


@pytest.mark.parametrize(
    ("most", "number"), [(math.log(2), 1), (math.log(3), 6), (math.log(4), 11), (MOST, 34), (math.log(20), 34)]
)
def test_the_curves_are_those_that_the_choices_allow(most, number):
    with figure() as (_, axes):
        error_against_entropy(axes, [0.0], [0.0], most)
        lines = axes.get_lines()
        assert len(lines) == number
        np.testing.assert_array_equal(lines[0].get_xdata(), entropy_of(lines[0].get_ydata()))
