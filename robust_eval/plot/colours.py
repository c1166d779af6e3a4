"""The colours of all figures, which colour-blind readers can tell apart. They are known without matplotlib."""

BLACK, GREY = "#000000", "#6e6e6e"
BLUE, RED = "#0072B2", "#D55E00"
"""From Okabe & Ito, Color Universal Design (2008)."""
QUALITATIVE = (BLUE, RED, "#009E73", "#CC79A7", "#B37A00", "#3D93CC", BLACK)
"""Of things beside one another, from the same palette, its orange and sky blue made darker, to be seen on white."""
SEQUENTIAL = "viridis"
INKS = ("#010101", "#fefefe")
"""Of text on a coloured cell, whatever is around it."""
