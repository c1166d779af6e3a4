"""Figures of a classifier."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from robust_eval.plot.colours import SEQUENTIAL
from robust_eval.plot.style import ink, root


def confusion_matrix(axes: Axes, counts: ArrayLike, names: Sequence[str], title: str) -> Axes:
    """Draw how often each true class (row) was given each class (column): counts, coloured by the share of their row.

    Parameters
    ----------
    axes, title
        Where to draw, and under which title.
    counts
        (K, K) whole numbers.
    names
        (K,) of the classes.
    """
    matrix = np.asarray(counts, dtype=int)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap=SEQUENTIAL, vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(matrix):
        colour = ink(image.to_rgba(shares[row, column])[:3])
        axes.text(column, row, f"{count}", ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.grid(False)
    root(axes).colorbar(image, ax=axes, label="share of the true class")
    axes.set(xlabel="predicted", ylabel="true")
    axes.set_title(title, parse_math=False)
    return axes
