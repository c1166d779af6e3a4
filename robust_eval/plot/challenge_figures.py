"""What turns of doubt leave of right answers, and what they make of wrong ones."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from robust_eval.plot.colours import BLUE, RED
from robust_eval.plot.style import band, legend_below
from robust_eval.stats.estimate import Estimate


def facts_under_doubt(axes: Axes, holding: Sequence[Estimate], mended: Sequence[Estimate]) -> Axes:
    """Draw the Kaplan-Meier curve of the breaking turn, with 95 % intervals, and the accuracy on facts that were wrong
    at first.

    Parameters
    ----------
    axes
        Where to draw.
    holding
        After turn 1, 2, …: the share of the facts that were right at first and have not broken, in [0, 1]. Those that
        never break are censored at the last turn, so the estimate is that share. NaN where no fact was right.
    mended
        After the same turns, the share of right answers to questions that were answered wrong at first; NaN where none
        was.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> drawn = facts_under_doubt(axes, [Estimate(0.75), Estimate(0.5)], [Estimate(0.25), Estimate(0.25)])
    >>> [line.get_ydata().tolist() for line in drawn.lines]
    [[1.0, 0.75, 0.5], [0.0, 0.25, 0.25]]
    >>> plt.close(figure)
    """
    at = np.arange(len(holding) + 1)
    value, low, high = np.array([(1.0, 1.0, 1.0), *holding]).T
    if not np.isnan(value).any():
        axes.fill_between(at, low, high, step="post", **band(BLUE))
        axes.step(at, value, where="post", color=BLUE, label="right at first: facts that hold")
    value, low, high = np.array([(0.0, 0.0, 0.0), *mended]).T
    if not np.isnan(value).any():
        axes.fill_between(at, low, high, **band(RED))
        axes.plot(at, value, color=RED, marker="o", linestyle="--", label="wrong at first: right answers")
    axes.set(xlabel="turn of doubt", ylabel="share, 95 % interval", ylim=(-0.02, 1.02), xlim=(0, len(holding) + 0.1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Facts under doubt")
    legend_below(axes)
    return axes
