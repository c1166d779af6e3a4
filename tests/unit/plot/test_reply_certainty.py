import matplotlib.pyplot as plt
import pytest

from robust_eval.plot import reply_certainty as plot


def bars(axes):
    """Label to (left end of the bin, bottom, height) of each bar."""
    return {
        group.get_label(): [
            pytest.approx((round(bar.get_x() - 0.005, 9), bar.get_y(), bar.get_height()), abs=1e-9) for bar in group
        ]
        for group in axes.containers
    }


def test_right_and_wrong_replies_stand_on_one_another_as_shares_of_all():
    drawn, axes = plt.subplots()
    assert plot.certainty_bins(axes, [0.1, 0.9], [1, 5], [3, 1]) is axes
    assert bars(axes) == {"right": [(0.1, 0, 0.1), (0.9, 0, 0.5)], "wrong": [(0.1, 0.1, 0.3), (0.9, 0.5, 0.1)]}
    assert {bar.get_hatch() for bar in axes.containers[1]} == {"///"}  # for those who see no colours
    assert axes.get_xlim() == (0, 1)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("certainty (mean token probability)", "share of replies")
    plt.close(drawn)


def test_every_temperature_has_its_panel_in_order():
    drawn = plt.figure()
    found = plot.certainty_by_temperature(drawn, [1, 0.5, 1], [0.3, 0.9, 0.9], [0, 4, 1], [2, 0, 1])
    assert found is drawn
    assert [axes.get_title() for axes in drawn.axes] == ["t = 0.5", "t = 1"]
    assert bars(drawn.axes[0]) == {"right": [(0.9, 0, 1)], "wrong": [(0.9, 1, 0)]}
    assert bars(drawn.axes[1]) == {"right": [(0.3, 0, 0), (0.9, 0, 0.25)], "wrong": [(0.3, 0, 0.5), (0.9, 0.25, 0.25)]}
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["right", "wrong"]
    assert drawn.get_supxlabel() == "certainty (mean token probability of the reply)"
    plt.close(drawn)


def test_the_words_around_the_panels_do_not_lie_on_one_another():
    drawn = plt.figure()
    grid = [t / 5 for t in range(1, 11)]
    plot.certainty_by_temperature(drawn, grid, [0.9] * 10, [1] * 10, [1] * 10)
    drawn.canvas.draw()
    (legend,) = drawn.legends
    words = [legend.get_window_extent(), *(text.get_window_extent() for text in drawn.texts)]
    words += [axes.title.get_window_extent() for axes in drawn.axes[:10]]
    assert not any(one.overlaps(other) for place, one in enumerate(words) for other in words[:place])
    plt.close(drawn)


@pytest.mark.parametrize("draw", [plot.certainty_bins, plot.certainty_by_temperature])
def test_no_replies_are_refused(draw):
    drawn, axes = plt.subplots()
    first = (axes,) if draw is plot.certainty_bins else (drawn, [])
    with pytest.raises(ValueError, match="there are no replies"):
        draw(*first, [], [], [])
    plt.close(drawn)
