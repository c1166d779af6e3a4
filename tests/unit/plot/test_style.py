import re

import matplotlib.pyplot as plt
import pytest

from robust_eval.plot.style import GREY, INKS, figure, ink, panels


def contrast(one, other):
    """Of WCAG 2, between two greys in [0, 1]."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (one, other)]
    return (max(linear) + 0.05) / (min(linear) + 0.05)


@pytest.mark.parametrize("grey", [0.0, 0.2, 0.4, 0.45, 0.5, 0.8, 1.0])
def test_the_ink_is_the_one_with_more_contrast(grey):
    black, white = contrast(grey, 0), contrast(grey, 1)
    assert ink((grey, grey, grey)) == (INKS[0] if black > white else INKS[1])
    assert max(black, white) > 4.5


def test_the_inks_are_no_colours_that_a_page_exchanges():
    assert not {"#000000", "#ffffff", GREY} & set(INKS)


def test_panels_stand_in_rows_share_their_scales_and_have_ticks_below_every_column():
    drawn = plt.figure()
    first, *others = panels(drawn, 5, columns=3, width=2, height=1.5)
    assert drawn.get_size_inches().tolist() == pytest.approx([7.1, 3.6])
    assert len(drawn.axes) == 6
    assert [axes.get_visible() for axes in drawn.axes] == [True] * 5 + [False]
    assert all(first.get_shared_x_axes().joined(first, axes) for axes in others)
    below = [axes.xaxis.get_tick_params()["labelbottom"] for axes in (first, *others)]
    assert below == [False, False, True, True, True]
    plt.close(drawn)


def test_the_common_style_leaves_no_trace():
    before = dict(plt.rcParams)
    with figure() as (drawn, axes):
        assert drawn.axes == [axes]
        assert plt.rcParams["svg.fonttype"] == "none"
    assert dict(plt.rcParams) == before
    assert re.fullmatch("#[0-9a-f]{6}", GREY)
