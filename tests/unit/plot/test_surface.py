import matplotlib.pyplot as plt
import numpy as np
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
    assert plot.surface(left, d, "f") is left
    plot.surface(right, d)
    for axes, value in ((left, f), (right, (f + 1) / (f + 2))):
        low, high = at(axes, entropy, breaking)
        assert low - 0.01 <= value <= high + 0.01
    plt.close(drawn)


def test_levels_cover_all_that_the_paper_s_grid_gives():
    drawn, (left, right) = plt.subplots(1, 2)
    plot.surface(left, 1, "f")
    plot.surface(right, 1, "frs")
    (f,), (frs,) = left.collections, right.collections
    np.testing.assert_allclose(f.levels[[0, -1]], [-1, 3])
    np.testing.assert_allclose(frs.levels[[0, -1]], [0, 1])
    assert (left.get_xlim(), left.get_ylim()) == ((0, 1), (0, 2))
    assert (left.get_xlabel(), left.get_ylabel()) == ("initial entropy H (0 to 1)", "breaking temperature $t_b$")
    plt.close(drawn)


def test_every_d_has_its_panel_on_one_scale_of_colours():
    drawn = plt.figure()
    assert plot.surfaces(drawn) is drawn
    shown = [axes for axes in drawn.axes if axes.get_title()]
    assert [axes.get_title() for axes in shown] == ["d = 1", "d = 2", "d = 5", "d = 10", "d = 50"]
    assert {axes.collections[0].get_clim() for axes in shown} == {shown[0].collections[0].get_clim()}
    assert drawn.axes[-1].get_ylabel() == "FRS"
    plt.close(drawn)
