import matplotlib.pyplot as plt
import pytest

from robust_eval.plot import surface as plot


def at(axes, entropy, breaking):
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
    plot.surface(left, d, "f")
    plot.surface(right, d)
    for axes, value in ((left, f), (right, (f + 1) / (f + 2))):
        low, high = at(axes, entropy, breaking)
        assert low - 0.01 <= value <= high + 0.01
    plt.close(drawn)
