"""Accuracy by the place at which the right choice stands."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from robust_eval.plot.colours import BLUE, GREY
from robust_eval.plot.style import legend_below


def accuracy_by_place(axes: Axes, accuracy: ArrayLike, low: ArrayLike, high: ArrayLike, overall: float) -> Axes:
    """Draw how often questions are answered right whose right choice stands at the first place, the second, and so on.

    Parameters
    ----------
    axes
        Where to draw.
    accuracy, low, high
        (places,) in [0, 1]: the accuracy at each place and its 95 % interval; NaN at a place where no right choice
        stood, and for a bound that is not known.
    overall
        The accuracy at all places together, which is a line: without position bias every point is near it.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> drawn = accuracy_by_place(axes, [0.8, 0.4], [0.7, 0.3], [0.9, 0.5], 0.6)
    >>> [text.get_text() for text in drawn.get_legend().get_texts()]
    ['all places together: 0.600']
    >>> plt.close(figure)
    """
    value, below, above = (np.asarray(each, dtype=float) for each in (accuracy, low, high))
    places = np.arange(1, len(value) + 1)
    whiskers = np.nan_to_num(np.maximum([value - below, above - value], 0))
    axes.axhline(overall, color=GREY, linestyle="--", linewidth=1, label=f"all places together: {overall:.3f}")
    axes.errorbar(places, value, yerr=whiskers, fmt="o", color=BLUE, capsize=3)
    axes.set(xlabel="place of the right choice", ylabel="accuracy, 95 % interval", ylim=(0, 1))
    axes.set_xlim(0.5, len(value) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Accuracy by the place of the right choice")
    legend_below(axes)
    return axes
