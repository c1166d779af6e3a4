import matplotlib.pyplot as plt
import numpy as np
import pytest
from findings_by_hand import findings_of
from scipy.stats import gaussian_kde

from robust_eval.plot import frs_figures as plot
from robust_eval.plot.style import figure


def densities(scores, breaking):
    return findings_of(frs={"breaking_temperature": breaking, **{f"frs_d{d:g}": each for d, each in scores.items()}})


def test_a_density_covers_the_broken_share():
    scores = np.concatenate([np.random.default_rng(0).normal(0.5, 0.05, 300), np.ones(100)])
    with figure() as (_, axes):
        both = {1.0: scores, 2.0: scores - 0.1 * (scores < 1)}
        plot.frs_density(axes, densities(both, np.where(scores < 1, 1.0, np.inf)))
        first, second = axes.get_lines()
        assert np.trapezoid(first.get_ydata(), first.get_xdata()) == pytest.approx(0.75, abs=0.01)
        assert second.get_xdata()[second.get_ydata().argmax()] == pytest.approx(0.4, abs=0.03)


def test_the_density_of_many_facts_is_that_of_all_of_them():
    scores = np.random.default_rng(0).beta(5, 4, 5000)
    with figure() as (_, axes):
        plot.frs_density(axes, densities({1.0: scores}, np.ones(5000)))
        (line,) = axes.get_lines()
        np.testing.assert_allclose(line.get_ydata(), gaussian_kde(scores)(line.get_xdata()), atol=0.002)


@pytest.mark.parametrize(("n", "title"), [(300, "n = 300"), (1200, "n = 1,200; 300 drawn")])
def test_the_title_of_the_map_has_the_number_of_facts(n, title):
    facts = [f"q{place}" for place in range(n)]
    run = findings_of(
        frs={"question_id": facts, "breaking_temperature": [0.2] * n},
        frs_accuracy={"question_id": facts, "temperature": [0.2] * n, "correct": [1] * n, "replies": [2] * n},
    )
    with figure() as (_, axes):
        plot.accuracy_by_fact(axes, run)
        assert axes.get_title() == f"Accuracy of every fact ({title})"


def test_of_many_facts_those_at_even_distances_are_drawn_and_all_are_counted():
    n = 10 * plot.MAX_ROWS
    breaking = np.random.default_rng(0).permutation(n).astype(float)
    drawn = plot.most_robust_first(np.ones((n + 1, 1)), np.append(breaking, np.nan), [0.2])
    assert drawn.total == n
    assert len(drawn.accuracy) == len(drawn.rows) == plot.MAX_ROWS
    assert drawn.breaking.tolist() == breaking[drawn.rows].tolist()
    assert drawn.breaking[[0, -1]].tolist() == [n - 1, 0]
    assert set(np.diff(drawn.breaking)) == {-10, -11}  # 2,999 steps in 299
    with figure() as (_, axes):
        cells = plot.draw_accuracies(axes, drawn)
        assert axes.get_ylim() == (n, 0)
        assert cells.get_array().shape == (plot.MAX_ROWS, 1)


def level_at(axes, entropy, breaking):
    """The band that lies over a point: the lower and the upper of its levels."""
    (bands,) = axes.collections
    pixel = axes.transData.transform((entropy, breaking))
    paths = [path.transformed(bands.get_transform()) for path in bands.get_paths()]
    (found,) = [place for place, path in enumerate(paths) if path.contains_point(pixel)]
    return bands.levels[found], bands.levels[found + 1]


@pytest.mark.parametrize("d", [1, 5, 50])
@pytest.mark.parametrize(("entropy", "breaking"), [(0.03, 1.9), (0.3, 0.7), (0.77, 1.33), (0.97, 0.05)])
def test_the_colour_is_that_of_the_formula(d, entropy, breaking):
    f = (1 - entropy) ** d * (breaking + 1) - entropy / (breaking + 1)
    drawn, (left, right) = plt.subplots(1, 2)
    plot.draw_surface(left, d, "f")
    plot.draw_surface(right, d)
    for axes, value in ((left, f), (right, (f + 1) / (f + 2))):
        low, high = level_at(axes, entropy, breaking)
        assert low - 0.01 <= value <= high + 0.01
    plt.close(drawn)
