import pytest
from matplotlib.colors import to_rgb

from robust_eval.plot.colours import BLACK, GREY, INKS, QUALITATIVE, ink


def luminance(colour):
    """Of WCAG 2, of what matplotlib takes for a colour."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Of WCAG 2, between two colours."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("grey", [0.0, 0.2, 0.4, 0.45, 0.5, 0.8, 1.0])
def test_the_ink_is_the_one_with_more_contrast(grey):
    black, white = (contrast((grey,) * 3, other) for other in ("black", "white"))
    assert ink((grey, grey, grey)) == (INKS[0] if black > white else INKS[1])
    assert max(black, white) > 4.5


@pytest.mark.parametrize("colour", [*QUALITATIVE, GREY])
def test_every_colour_can_be_seen_on_a_light_page_and_on_a_dark_one(colour):
    assert contrast(colour, "white") >= 3
    assert colour == BLACK or contrast(colour, "#16181d") >= 3  # a page exchanges black


def test_the_inks_are_no_colours_that_a_page_exchanges():
    assert not {"#000000", "#ffffff", GREY} & set(INKS)
