"""How all figures look: sizes, fonts, and colours that colour-blind readers can tell apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, RED, GREY = "#0072B2", "#D55E00", "#6e6e6e"
"""From Okabe & Ito, Color Universal Design (2008)."""
QUALITATIVE = (BLUE, RED, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Of things beside one another, from the same palette."""
SEQUENTIAL = "viridis"

_SETTINGS: dict[Any, Any] = {
    "figure.figsize": (6.4, 4.2),
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "robust_eval",  # equal figures give equal files
}


@contextmanager
def figure() -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes in the common style."""
    with rc_context(_SETTINGS):
        drawn = Figure(layout="constrained")
        yield drawn, drawn.subplots()
