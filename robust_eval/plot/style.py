"""Common style of all figures: sizes, fonts, and the use of colours on a page (:mod:`robust_eval.plot.colours`).

Functions of this package draw into axes of any style; :func:`figure` gives them the common one. What a page may rely on
that shows the SVG files of :func:`robust_eval.plot.figure_files.save` as part of itself, on white or on dark:

- nothing is drawn behind figure and axes: the page shines through (PNG files are white);
- text, ticks and outlines are ``BLACK``, also where no colour is given: the page may put its own text colour in
  place of exactly that;
- text that stands in a coloured cell has one of ``INKS``, which look black and white and are to stay as they are;
- what stands back (a threshold, a note, the grid) is ``GREY``, which a page may exchange as well: it is readable on
  white, and no single grey is on both;
- everything else has a colour that can be seen on both (a contrast of at least 3), or an outline that has: marks with
  :data:`OUTLINE`, bands with that of :func:`band`. No legend has a box.

No two things that must be told apart differ in their hue alone: dashes, markers, hatches or lightness tell them apart
in greyscale.
"""

import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

from robust_eval.plot.colours import GREY
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats

OUTLINE: dict[str, Any] = {"edgecolors": GREY, "linewidths": 0.6}
"""Outline of marks on a scale of colours: its ends are as pale or as dark as a page may be."""
WIDTH = 4.8
"""Width of a figure in inches: on a phone its smallest font, of 9 points, can be read without scrolling."""
TICK_LABEL = 0.33
"""Width in inches that the label of a temperature takes, with the gap to the next."""
MANY = 2000
"""Number of points beyond which a cloud is one picture within an SVG file: each as a shape takes a hundred bytes."""

_SETTINGS: dict[Any, Any] = {
    "figure.figsize": (WIDTH, 3.5),
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "font.size": 10,
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # every text of an SVG file names them all
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GREY,
    "grid.alpha": 0.2,
    "grid.linewidth": 0.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "robust_eval",  # equal figures give equal files
}


PAPER_FONT, COLUMN, TWO_COLUMNS = 8, 3.3, 6.9
"""Largest font of a figure in a paper, in points; widths of one and of two columns, in inches."""
_PAPER_SETTINGS: dict[Any, Any] = {
    "savefig.dpi": 300,
    "font.size": PAPER_FONT,
    "lines.linewidth": 1.2,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # fonts are embedded
}


@contextmanager
def figure(paper: bool = False) -> Iterator[tuple[Figure, Axes]]:
    """Open a figure with one pair of axes in the common style, or in that of a ``paper``."""
    with rc_context(_SETTINGS | (_PAPER_SETTINGS if paper else {})), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # it is a box in PNG files
        fig = Figure(layout="constrained")
        yield fig, fig.subplots()


def fit_column(fig: Figure) -> None:
    """Make a figure as wide as one column of a paper, or as two if it has four or more panels side by side, with no
    font larger than that of the style.
    """
    width, height = fig.get_size_inches()
    panels_side_by_side = len({axes.get_position().x0 for axes in fig.axes if axes.get_subplotspec()}) > 3
    fitted = TWO_COLUMNS if panels_side_by_side else COLUMN
    fig.set_size_inches(fitted, height * min(1.0, 1.2 * fitted / width))
    wrap_words(fig)
    for text in fig.findobj(Text):
        assert isinstance(text, Text)
        text.set_fontsize(min(text.get_fontsize(), PAPER_FONT))


def wrap_words(fig: Figure) -> None:
    """Wrap titles and labels that are too long for a figure, and place the legends of its axes below, in as many
    columns as fit.
    """
    width, height = fig.get_size_inches()
    titled = [axes.title for axes in fig.axes if axes.get_title()]
    for title in titled if len(titled) == 1 else []:
        title.set_text("\n".join(textwrap.fill(line, int(9 * width)) for line in title.get_text().splitlines()))
    for axes in fig.axes:
        for label, length in ((axes.xaxis.label, width), (axes.yaxis.label, height)):
            label.set_text(textwrap.fill(label.get_text(), int(10 * length)))
        if legend := axes.get_legend():
            legend.remove()
            legend_outside(fig, *axes.get_legend_handles_labels())


def band(colour: str, opacity: float = 0.2) -> dict[str, Any]:
    """Return the style of fill and outline of an interval: a transparent area with a visible edge."""
    return {"facecolor": (colour, opacity), "edgecolor": colour, "linewidth": 0.7}


def temperature_ticks(axes: Axes, temperatures: Iterable[float]) -> None:
    """Set axis ticks at the sampled temperatures, if few, with labels at as many as fit, the last included."""
    levels = sorted({*temperatures})
    if len(levels) <= 12:
        width = axes.get_window_extent().width / root(axes).dpi
        every = math.ceil(len(levels) * TICK_LABEL / width)
        axes.set_xticks(levels, ["" if (len(levels) - k) % every else f"{t:g}" for k, t in enumerate(levels, 1)])


def draw_survival(
    axes: Axes, levels: Sequence[float], estimates: Sequence[Estimate], colour: str, label: str, **style: Any
) -> None:
    """Draw a survival curve, in steps that begin at 1, with its 95 % interval; ``style`` is that of the line, and
    ``opacity`` and ``interval`` the opacity and the label of the interval.
    """
    at = np.array([0.0, *levels])
    value, low, high = np.array([(1.0, 1.0, 1.0), *estimates]).T
    area = band(colour, style.pop("opacity", 0.2))
    axes.fill_between(at, low, high, step="post", **area, label=style.pop("interval", ""))
    axes.step(at, value, where="post", color=colour, label=label, **style)


def values_and_whiskers(estimates: Iterable[Estimate]) -> tuple[Floats, Floats]:
    """Return (n,) values of error bars, and (2, n) the distances of their bounds, at least 0: rounding may put a bound
    beyond the value.
    """
    value, low, high = np.array(list(estimates), dtype=float).reshape(-1, 3).T
    return value, np.maximum([value - low, high - value], 0)


def panels(axes: Axes, number: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Replace the only axes of a figure by panels with shared scales, with ticks below the last of each column; return
    the figure and the panels.

    ``width`` and ``height`` are those of a panel, in inches, or less if the figure would be wider than others.
    """
    columns = min(number, columns)
    rows = math.ceil(number / columns)
    narrowed = min(1.0, (WIDTH - 1) / (width * columns))
    fig = root(axes)
    fig.clear()
    fig.set_layout_engine("constrained", wspace=0.06)
    fig.set_size_inches(width * narrowed * columns + 1, height * max(narrowed, 0.8) * rows + 0.6)
    grid = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for panel in grid[number:]:
        panel.set_visible(False)
    for panel in grid[max(0, number - columns) : number]:
        panel.tick_params(labelbottom=True)
    return fig, grid[:number]


def root(axes: Axes) -> Figure:
    """Return the figure that axes belong to."""
    fig = axes.get_figure(root=True)
    assert fig is not None
    return fig


def legend_outside(fig: Figure, handles: Sequence[Any], words: Sequence[str]) -> Legend:
    """Return a legend below the axes and the common label of a whole figure, with literal text, in as many columns as
    fit.
    """
    width, _ = fig.get_size_inches()
    columns = max(1, int(width / (0.6 + 0.075 * max(map(len, words), default=1))))
    legend = fig.legend(handles, words, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    if label := fig.get_supxlabel():  # empty lines keep the place of the legend free
        fig.supxlabel(label + "\n " * (math.ceil(len(words) / columns) + 1), fontsize=10)
    return legend
