"""How sure a model was of its replies, and whether they were right (Fastowski et al., Fig. 2, 6 and 7)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from robust_eval.plot.colours import BLUE, INKS, RED
from robust_eval.plot.style import legend_beside, panels

BIN = 0.1
"""Width of a bin of certainty."""


def certainty_bins(axes: Axes, certainty_from: ArrayLike, right: ArrayLike, wrong: ArrayLike) -> Axes:
    """Right and wrong replies by the model's certainty, at one temperature: a panel of Fig. 2.

    Parameters
    ----------
    axes
        Where to draw.
    certainty_from
        (b,) where each bin begins, of 0, 0.1, …, 0.9: the mean probability of a reply's tokens at the temperature at
        which it was drawn. Bins without a reply may be left out.
    right, wrong
        (b,) replies in each bin, or probabilities of them. They are drawn as shares of all.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> bars = certainty_bins(axes, [0.8, 0.9], [1, 6], [1, 2]).patches
    >>> [round(float(bar.get_height()), 2) for bar in bars]
    [0.1, 0.6, 0.1, 0.2]
    >>> plt.close(figure)
    """
    start, hits, misses = (np.asarray(values, dtype=float) for values in (certainty_from, right, wrong))
    replies = hits.sum() + misses.sum()
    if replies == 0:
        raise ValueError("there are no replies")
    at, width = start + 0.05 * BIN, 0.9 * BIN
    axes.bar(at, hits / replies, width, align="edge", color=BLUE, linewidth=0, label="right")
    errors = axes.bar(at, misses / replies, width, hits / replies, align="edge", color=RED, linewidth=0, label="wrong")
    for bar in errors:
        bar.set(hatch="///", edgecolor=INKS[1])
    axes.set(xlabel="certainty (mean token probability)", ylabel="share of replies", xlim=(0, 1))
    axes.grid(visible=False, axis="x")
    return axes


def certainty_by_temperature(
    drawn: Figure, temperature: ArrayLike, certainty_from: ArrayLike, right: ArrayLike, wrong: ArrayLike
) -> Figure:
    """Right and wrong replies by the model's certainty, a panel for each temperature (Fig. 2, 6 and 7).

    Parameters
    ----------
    drawn
        Its axes are replaced, its size is changed.
    temperature
        (r,) of each row; the other columns are as :func:`certainty_bins` has them, and all are those of the table of
        :func:`robust_eval.metric.frs_tables.certainty_bins`.
    certainty_from, right, wrong
        (r,) where a bin begins, and its replies.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure = certainty_by_temperature(plt.figure(), [0.5, 1, 1], [0.9, 0.3, 0.9], [4, 0, 1], [0, 2, 1])
    >>> [panel.get_title() for panel in figure.axes]
    ['t = 0.5', 't = 1']
    >>> plt.close(figure)
    """
    t = np.asarray(temperature, dtype=float)
    columns = [np.asarray(values, dtype=float) for values in (certainty_from, right, wrong)]
    levels = np.unique(t)
    if not len(levels):
        raise ValueError("there are no replies")
    grid = panels(drawn, len(levels), columns=4, width=1.7, height=1.6)
    for panel, level in zip(grid, levels, strict=True):
        certainty_bins(panel, *(values[t == level] for values in columns))
        panel.set(xlabel="", ylabel="", xticks=[0, 0.5, 1])
        panel.set_title(f"t = {level:g}", fontsize=10)
    grid[0].set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    drawn.supxlabel("certainty (mean token probability of the reply)", fontsize=11)
    drawn.supylabel("share of replies", fontsize=11)
    drawn.suptitle("Certainty of right and wrong replies", fontsize=12)
    legend_beside(drawn, *grid[0].get_legend_handles_labels())
    return drawn
