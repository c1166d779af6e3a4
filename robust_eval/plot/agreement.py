"""Figures of the raters of a question: how right they are, how far they agree, how many answers they give.

Cho & Watson print tables of these (Table 4 and 5); the figures show what is in them.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from robust_eval.metric.estimate import Estimate
from robust_eval.plot.colours import BLUE, GREY, INKS, QUALITATIVE, RED, SEQUENTIAL
from robust_eval.plot.style import ink, legend_below, root
from robust_eval.runtime.text import number

BINS = 10
"""Of the certainty from 0 to 1; both ends belong to a bin."""


def accuracy_range(axes: Axes, figures: Mapping[str, Estimate]) -> Axes:
    """Draw from the share that every rater has right to that which some rater has, each with its 95 % interval (Cho &
    Watson, Table 4).

    Parameters
    ----------
    axes
        Where to draw.
    figures
        What each accuracy is called, the uppermost first, and its value in [0, 1].

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> drawn = accuracy_range(axes, {"best": Estimate(0.75), "worst": Estimate(0.25)})
    >>> [label.get_text() for label in drawn.get_yticklabels()]
    ['best', 'worst']
    >>> plt.close(figure)
    """
    names = list(figures)
    places = np.arange(len(names))[::-1]
    value, low, high = np.array([figures[name] for name in names]).T
    axes.hlines(places, 0, value, color=GREY, linewidth=0.8)
    axes.errorbar(value, places, xerr=np.maximum([value - low, high - value], 0), fmt="o", color=BLUE, capsize=3)
    axes.set_yticks(places, names)
    axes.set(xlabel="accuracy, 95 % interval", xlim=(0, 1), ylim=(-0.6, len(names) - 0.4))
    axes.set_title("From right with every rater to right with any")
    return axes


def agreement_matrix(axes: Axes, shares: ArrayLike) -> Axes:
    """Draw the share of questions to which each two raters gave the same label; rater 0 is the original question.

    Parameters
    ----------
    axes
        Where to draw.
    shares
        (r, r) in [0, 1]; NaN where no question was labelled by both.
    """
    matrix = np.asarray(shares, dtype=float)
    image = axes.imshow(matrix, cmap=SEQUENTIAL, vmin=0, vmax=1)
    if len(matrix) <= 12:
        for (row, column), share in np.ndenumerate(matrix):
            if not np.isnan(share):
                colour = ink(image.to_rgba(share)[:3])
                axes.text(column, row, number(share, ".2f"), ha="center", va="center", color=colour, fontsize=9)
        axes.set_xticks(range(len(matrix)))
        axes.set_yticks(range(len(matrix)))
    axes.grid(False)
    root(axes).colorbar(image, ax=axes, label="share of questions with the same label")
    axes.set(xlabel="rater", ylabel="rater")
    axes.set_title("Agreement between raters (0: the original question)")
    return axes


def labels_per_question(axes: Axes, labels: ArrayLike, raters: int) -> Axes:
    """Draw how many different answers a question got; those whose raters all disagree are hatched.

    Parameters
    ----------
    axes
        Where to draw.
    labels
        (n,) different labels among the answers to each question; 0 where none of them has one.
    raters
        How many answers a question has at most.
    """
    counts = np.bincount(np.asarray(labels, dtype=int), minlength=raters + 1)
    bars = axes.bar(range(len(counts)), counts, color=BLUE, width=0.8, edgecolor=INKS[1], linewidth=0)
    bars[raters].set(facecolor=RED, hatch="///")
    axes.set(xlabel=f"different answers of {raters} raters", ylabel="questions")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False, axis="x")
    if len(counts) <= 22:
        axes.set_xticks(range(len(counts)))
    axes.set_title("Answers that a question got")
    return axes


def certainty_of_questions(axes: Axes, certainty: ArrayLike, vote_right: ArrayLike) -> Axes:
    """Draw how many questions have which normalised certainty H_η, and whether the vote of their raters is right.

    Parameters
    ----------
    axes
        Where to draw.
    certainty
        (n,) of each question, in [0, 1]; a question without one (NaN) is left out.
    vote_right
        (n,) 1 where the answer that most raters gave is right, 0 where it is wrong, NaN where nobody knows.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> drawn = certainty_of_questions(axes, [1.0, 1.0, 0.3], [1.0, 0.0, 0.0])
    >>> [text.get_text() for text in drawn.get_legend().get_texts()]
    ['vote right (1)', 'vote wrong (2)']
    >>> plt.close(figure)
    """
    value, right = np.asarray(certainty, dtype=float), np.asarray(vote_right, dtype=float)
    if np.any((value < -1e-9) | (value > 1 + 1e-9)):
        raise ValueError("certainties must lie between 0 and 1")
    known = ~np.isnan(value)
    kinds = (
        ("vote right", right == 1, BLUE, ""),
        ("vote wrong", right == 0, RED, "///"),
        ("unknown", np.isnan(right), QUALITATIVE[4], "..."),
    )
    edges = np.linspace(0, 1, BINS + 1)
    bottom = np.zeros(BINS)
    for name, chosen, colour, hatch in kinds:
        bins = np.minimum((np.round(value[known & chosen], 9) * BINS).astype(int), BINS - 1)
        counts = np.bincount(np.maximum(bins, 0), minlength=BINS)
        if len(bins):
            axes.bar(
                edges[:-1] + 0.05 / BINS,
                counts,
                0.9 / BINS,
                bottom,
                align="edge",
                color=colour,
                hatch=hatch,
                edgecolor=INKS[1],
                linewidth=0,
                label=f"{name} ({len(bins)})",
            )
        bottom += counts
    axes.set(xlabel="normalised certainty of the raters $H_\\eta$", ylabel="questions", xlim=(0, 1))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False, axis="x")
    axes.set_title("Certainty of each question's raters")
    if bottom.any():
        legend_below(axes)
    return axes
