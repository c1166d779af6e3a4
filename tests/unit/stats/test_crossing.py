import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import CURVES
from robust_eval.metric.frs_tables import crossings
from robust_eval.stats.crossing import crossing_temperature
from robust_eval.stats.interval import NORMAL_95

PROPERTY = settings(max_examples=100, deadline=None, database=None, derandomize=True)
GRID = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0]


def logistic(root, steepness, temperatures):
    return 1 / (1 + np.exp(steepness * (np.asarray(temperatures) - root)))


def curves(*questions):
    """A table of curves: question id, temperatures, accuracies, standard errors."""
    return pa.concat_tables(
        pa.table(
            {
                "question_id": [name] * len(temperatures),
                "rewrite": [0] * len(temperatures),
                "temperature": temperatures,
                "accuracy": accuracy,
                "standard_error": error,
                "lower": [0.0] * len(temperatures),
                "upper": [1.0] * len(temperatures),
                "how": [None] * len(temperatures),
            },
            schema=CURVES,
        )
        for name, temperatures, accuracy, error in questions
    )


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("steepness", [1.0, 3.0, 6.0])
def test_the_crossing_of_a_smooth_curve_is_its_root(steepness, threshold):
    # A monotone cubic piece is off by less than the spacing h cubed times the largest third derivative, s³ / 8; divided
    # by the slope s·p·(1 − p) that is an error of the root
    roots = np.arange(0.3, 3.9, 0.13)
    expected = roots + math.log((1 - threshold) / threshold) / steepness
    inside = (expected > 0.4) & (expected < 2.0)
    accuracy = [logistic(root, steepness, GRID) for root in roots[inside]]
    found = crossing_temperature(accuracy, GRID, threshold)
    tolerance = 0.2**3 * steepness**2 / 8 / (threshold * (1 - threshold)) + 1e-6
    assert found == pytest.approx(expected[inside], abs=tolerance)
    assert np.isfinite(found).all()
    assert len(found) > 3


def test_the_root_comes_closer_where_the_grid_is_finer():
    errors = []
    for points in (5, 17, 65, 257):
        grid = np.linspace(0, 2, points)
        errors.append(abs(crossing_temperature([logistic(1.07, 4, grid)], grid)[0] - 1.07))
    assert errors[1] < errors[0] / 4
    assert errors[2] < errors[1] / 4
    assert errors[3] < 1e-5


def test_a_straight_line_is_followed_exactly():
    grid = [0.0, 0.3, 1.0, 2.0]
    line = [1 - t / 2 for t in grid]
    for threshold in (0.1, 0.4, 0.77):
        found = crossing_temperature([line], grid, threshold)
        assert found == pytest.approx([2 * (1 - threshold)], abs=1e-9)


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        ([0.4, 0.9, 0.9], 0.5),  # begins below
        ([0.0, 0.0, 0.0], 0.5),
        ([1.0, 0.9, 0.8], math.inf),  # never crosses
        ([1.0, 0.5, 0.5], math.inf),  # equal holds
        ([0.5, 0.5, 0.5], math.inf),
        ([1.0, 0.5, 0.2], 1.0),  # falls from there on
        ([0.5, 0.2, 0.0], 0.5),
        ([0.5, 0.9, 0.9], math.inf),
    ],
)
def test_the_ends_of_curves(accuracy, expected):
    assert crossing_temperature([accuracy], [0.5, 1.0, 2.0]).tolist() == [expected]


def test_the_first_of_several_crossings_counts():
    found = crossing_temperature([[1.0, 0.2, 0.9, 0.1]], [0.0, 1.0, 2.0, 3.0])
    assert 0 < found[0] < 1


@PROPERTY
@given(st.lists(st.integers(0, 100), min_size=2, max_size=10), st.integers(1, 99))
def test_the_crossing_lies_between_the_temperatures_that_hold_and_break(counts, threshold):
    accuracy, grid = np.array(counts) / 100, np.arange(len(counts)) + 1.0
    (found,) = crossing_temperature([accuracy], grid, threshold / 100)
    below = [index for index, count in enumerate(counts) if count < threshold]
    if not below:
        assert found == math.inf
    elif below[0] == 0:
        assert found == 1
    else:
        assert grid[below[0] - 1] <= found <= grid[below[0]]


def test_every_curve_is_judged_alone():
    rows = [logistic(root, 3, GRID) for root in (0.5, 1.0, 1.5)]
    together = crossing_temperature(rows, GRID)
    assert together.tolist() == [crossing_temperature([row], GRID)[0] for row in rows]
    assert crossing_temperature(np.empty((0, 2)), [1.0, 2.0]).tolist() == []


@pytest.mark.parametrize(
    ("accuracy", "temperatures", "message"),
    [
        ([1.0, 0.0], [1.0, 2.0], "accuracy must be (questions, 2 temperatures), two or more, not (2,)"),
        ([[1.0, 0.0, 0.0]], [1.0, 2.0], "accuracy must be (questions, 2 temperatures), two or more, not (1, 3)"),
        ([[1.0]], [1.0], "accuracy must be (questions, 1 temperatures), two or more, not (1, 1)"),
        ([[1.0, 0.0]], [1.0, 1.0], "temperatures must be strictly increasing"),
        ([[1.0, 0.0]], [2.0, 1.0], "temperatures must be strictly increasing"),
        ([[1.0, math.nan]], [1.0, 2.0], "accuracy must not be NaN"),
    ],
)
def test_arguments_that_make_no_sense_are_named(accuracy, temperatures, message):
    with pytest.raises(ValueError) as problem:  # noqa: PT011 (the whole message is compared)
        crossing_temperature(accuracy, temperatures)
    assert str(problem.value) == message


# crossings


def test_a_table_of_curves_gives_values_with_intervals():
    line = [1.0, 0.75, 0.5, 0.25, 0.0]
    grid = [0.0, 1.0, 2.0, 3.0, 4.0]
    error = 0.05 / NORMAL_95
    table = curves(
        ("sure", grid, line, [0.0] * 5),
        ("unsure", grid, [0.9, 0.7, 0.5, 0.3, 0.1], [error] * 5),
        ("holds", grid, [1.0, 0.9, 0.8, 0.7, 0.6], [0.0, 0.0, 0.0, 0.0, 0.2 / NORMAL_95]),
        ("one point", [1.0], [0.2], [0.0]),
    )
    found = crossings(["unsure", "holds", "sure", "nothing", "one point"], table, 0.5)
    # unsure: the curve ± 0.05 falls by 0.2 a step, so that it crosses 0.25 earlier or later
    nan = math.nan
    assert found["value"] == pytest.approx([2.0, math.inf, 2.0, nan, nan], abs=1e-9, nan_ok=True)
    assert found["low"][[0, 2]] == pytest.approx([1.75, 2.0], abs=1e-9)
    assert found["high"] == pytest.approx([2.25, math.inf, 2.0, nan, nan], abs=1e-9, nan_ok=True)
    assert 3 < found["low"][1] < 4


def test_the_rows_of_a_table_may_come_in_any_order():
    table = curves(("a", GRID, logistic(1.1, 3, GRID), [0.02] * 16), ("b", GRID, logistic(0.7, 5, GRID), [0.01] * 16))
    shuffled = table.take(np.random.default_rng(0).permutation(32))
    ordered, other = crossings(["a", "b"], table, 0.5), crossings(["a", "b"], shuffled, 0.5)
    assert {name: values.tolist() for name, values in ordered.items()} == {
        name: values.tolist() for name, values in other.items()
    }


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(-5, 105), st.integers(0, 20)), min_size=2, max_size=8),
    st.sampled_from([0.3, 0.5, 0.9]),
)
def test_an_interval_contains_its_value(points, threshold):
    accuracy, error = (np.array(column) / 100 for column in zip(*points, strict=True))
    found = crossings(["a"], curves(("a", np.arange(len(points)) + 0.5, accuracy, error)), threshold)
    assert found["low"][0] <= found["value"][0] + 1e-9
    assert found["value"][0] <= found["high"][0] + 1e-9


def test_accuracies_beyond_0_and_1_count_as_these():
    beyond = curves(("a", [1.0, 2.0, 3.0], [1.2, 1.1, -0.1], [0.0] * 3))
    limited = crossing_temperature([[1.0, 1.0, 0.0]], [1.0, 2.0, 3.0])
    assert crossings(["a"], beyond, 0.5)["value"].tolist() == limited.tolist()


def test_a_question_without_a_right_answer_has_no_crossing():
    rows = [("q", 0, t, float("nan"), 0.0, 0.0, 1.0) for t in (0.5, 1.0)]
    curves = pa.Table.from_pylist([dict(zip(CURVES.names, row, strict=False)) for row in rows], schema=CURVES)
    assert all(np.isnan(values).all() for values in crossings(["q"], curves, 0.5).values())
