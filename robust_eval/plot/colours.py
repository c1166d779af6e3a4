"""Colours of all figures, safe for colour-blind readers. This module does not import matplotlib."""

BLACK, GREY = "#000000", "#6e6e6e"
BLUE, RED = "#0072B2", "#D55E00"
"""From Okabe & Ito, Color Universal Design (2008)."""
QUALITATIVE = (BLUE, RED, "#009E73", "#CC79A7", "#B37A00", "#3D93CC", BLACK)
"""Colours of neighbouring items, from the same palette; orange and sky blue are darker, to be seen on white."""
SEQUENTIAL = "viridis"
INKS = ("#010101", "#fefefe")
"""Colours of text on a coloured cell, on any page."""
