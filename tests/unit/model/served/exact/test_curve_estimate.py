import numpy as np
import pytest

from robust_eval.model.served.exact.topk_tree import BOUNDS, DRAWS, CurveEstimate

GRID = [0.5, 1.0, 1.5, 2.0]


def points(close: int = 1) -> CurveEstimate:
    """A curve of which nothing is known but at the first ``close`` temperatures, where all answers are right."""
    apart = np.array([0.0] * close + [1.0] * (len(GRID) - close))
    return CurveEstimate(GRID, np.where(apart, 0.0, 1.0), np.ones(len(GRID)), np.ones(len(GRID)), apart)


@pytest.mark.parametrize(
    ("drawn", "near"),
    [
        ([0.5, 0.6, 0.3], [1.5, 2.0]),  # the neighbours of 1.0 are 1 and 0.6
        ([0.9, 0.9, 0.8], []),
        ([0.0, 0.0, 0.0], [1.0]),  # between what is certain and nothing
        ([1.0, 0.0, 0.0], [1.0, 1.5]),
        ([0.9, 0.45, 0.0], [1.5, 2.0]),
    ],
)
def test_a_temperature_is_near_one_half_where_its_neighbours_are(drawn: list[float], near: list[float]):
    curve = points()
    for t, mean in zip(GRID[1:], drawn, strict=True):
        curve.draw(t, mean, 0.1)
    assert curve.points_near_threshold(GRID) == near


def test_what_was_read_off_bounds_is_never_near_one_half():
    curve = points(close=2)
    curve.draw(1.5, 0.0, 0.1)
    curve.draw(2.0, 0.0, 0.1)
    assert curve.how == [BOUNDS, BOUNDS, DRAWS, DRAWS]
    assert curve.points_near_threshold(GRID) == [1.5]


def test_a_single_temperature_has_no_neighbours_to_go_by():
    curve = CurveEstimate([1.5], np.zeros(1), np.ones(1), np.ones(1), np.ones(1))
    curve.draw(1.5, 0.5, 0.1)
    assert curve.points_near_threshold([1.5]) == []


def test_means_stay_without_bias_where_more_is_drawn():
    truth, random, found = np.array([1.0, 0.7, 0.5, 0.3]), np.random.default_rng(0), []
    for _ in range(4000):
        curve, first = points(), random.binomial(4, truth)
        for t, right in zip(GRID[1:], first[1:], strict=True):
            curve.draw(t, right / 4, 0.1)
        near = np.isin(GRID, curve.points_near_threshold(GRID))
        found.append(np.where(near, (first + random.binomial(8, truth)) / 12, first / 4))
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - truth) <= 4 * error)
    assert np.std(found, axis=0)[1] < np.sqrt(0.7 * 0.3 / 4)  # and more is drawn now and then
