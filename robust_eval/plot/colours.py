"""Colours of all figures, safe for colour-blind readers. Importing this module does not import matplotlib."""

from typing import Any

BLACK, GREY = "#000000", "#6e6e6e"
BLUE, RED = "#0072B2", "#D55E00"
"""From Okabe & Ito, Color Universal Design (2008)."""
QUALITATIVE = (BLUE, RED, "#009E73", "#CC79A7", "#B37A00", "#3D93CC", BLACK)
"""Colours of neighbouring items, from the same palette; orange and sky blue are darker, to be seen on white."""
SEQUENTIAL = "viridis"
INKS = ("#010101", "#fefefe")
"""Colours of text on a coloured cell, on any page."""


def ink(background: Any) -> str:
    """Return the text colour for a background: the one of ``INKS`` with the higher contrast (WCAG 2).

    >>> ink("white"), ink("#440154")
    ('#010101', '#fefefe')
    """
    from matplotlib.colors import to_rgb

    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(background)]
    luminance = sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return INKS[0] if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else INKS[1]
