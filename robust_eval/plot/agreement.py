"""Figures of the raters of a question: how right they are, how far they agree, how many answers they give."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from robust_eval.metric.score import Estimate
from robust_eval.plot.style import BLUE, GREY, RED, SEQUENTIAL


def accuracy_range(axes: Axes, figures: Mapping[str, Estimate]) -> Axes:
    """From the worst rater's accuracy to the best's, each with its 95 % interval (Cho & Watson, Table 4)."""
    names = list(figures)
    places = np.arange(len(names))[::-1]
    value, low, high = np.array([figures[name] for name in names]).T
    axes.hlines(places, 0, value, color=GREY, linewidth=0.8)
    axes.errorbar(value, places, xerr=np.maximum([value - low, high - value], 0), fmt="o", color=BLUE, capsize=3)
    axes.set_yticks(places, names)
    axes.set(xlabel="accuracy", xlim=(0, 1), ylim=(-0.6, len(names) - 0.4))
    axes.set_title("From the worst rater to the best")
    return axes


def agreement_matrix(axes: Axes, shares: ArrayLike) -> Axes:
    """The share of questions to which each two raters gave the same label; rater 0 is the original question."""
    matrix = np.asarray(shares, dtype=float)
    image = axes.imshow(matrix, cmap=SEQUENTIAL, vmin=0, vmax=1)
    if len(matrix) <= 12:
        for (row, column), share in np.ndenumerate(matrix):
            colour = "white" if share < 0.6 else "black"
            axes.text(column, row, f"{share:.2f}", ha="center", va="center", color=colour, fontsize=9)
        axes.set_xticks(range(len(matrix)))
        axes.set_yticks(range(len(matrix)))
    axes.grid(False)
    axes.figure.colorbar(image, ax=axes, label="share of questions with the same label")
    axes.set(xlabel="rater", ylabel="rater")
    axes.set_title("Agreement between raters (0: the original question)", fontsize=11)
    return axes


def labels_per_question(axes: Axes, labels: ArrayLike, raters: int) -> Axes:
    """How many different answers a question got."""
    counts = np.bincount(np.asarray(labels, dtype=int), minlength=raters + 1)
    colours = [RED if number == raters else BLUE for number in range(len(counts))]
    axes.bar(range(len(counts)), counts, color=colours, width=0.8)
    axes.set(xlabel=f"different answers of {raters} raters", ylabel="questions")
    axes.set_xticks(range(len(counts)))
    axes.set_title("Answers that a question got")
    return axes
