"""Every fact under temperature, rewording and repetition, in one figure."""

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from robust_eval.plot.colours import GREY, SEQUENTIAL
from robust_eval.plot.style import MANY, legend_below, root

_SPREAD = 0.012
"""Of points with the same entropy, to either side, as a share of the largest."""


def frs_by_entropy_and_rewording(axes: Axes, frs: ArrayLike, entropy: ArrayLike, right_share: ArrayLike) -> Axes:
    """Draw where each question stands under all three kinds of pressure.

    Parameters
    ----------
    axes
        Where to draw.
    frs, entropy, right_share
        (n,) of each question: its Factual Robustness Score, the entropy of its repeated answers (nats), and the share
        of its wordings that is answered right, which colours it; those that are right in every wording (worst case 1)
        have a marker of their own. A question is left out, and counted in the title, where one is NaN.

    Because many facts have the same few entropies, they are spread a little to either side.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> frs_by_entropy_and_rewording(axes, [0.9, 0.4], [0.0, 1.2], [1.0, 0.5]).get_title()
    'Every fact under three kinds of pressure (n = 2)'
    >>> plt.close(figure)
    """
    values = np.column_stack([np.asarray(each, dtype=float) for each in (entropy, frs, right_share)])
    known = ~np.isnan(values).any(axis=1)
    x, y, share = values[known].T
    x = x + np.random.default_rng(0).uniform(-_SPREAD, _SPREAD, len(x)) * x.max(initial=0)
    norm = Normalize(0, 1)
    many = len(x) > MANY
    for held, marker, size, edge, label in (
        (share < 1, "o", 30, GREY, "wrong in one wording or more"),
        (share == 1, "D", 44, "black", "right in every wording"),
    ):
        points = axes.scatter(
            x[held],
            y[held],
            s=size / 16 if many else size,
            alpha=0.5 if many else 1,
            c=share[held],
            cmap=colormaps[SEQUENTIAL],
            norm=norm,
            marker=marker,
            edgecolors=edge,
            linewidths=0.3 if many else 0.7,
            rasterized=many,
            clip_on=False,  # clipped, each point takes half as much again in an SVG file
            label=f"{label} ({np.count_nonzero(held)})",
        )
    bar = root(axes).colorbar(points, ax=axes, format=PercentFormatter(1, 0))
    bar.set_label("wordings answered right")
    shown = f"{known.sum()}" if known.all() else f"{known.sum()} of {known.size}"
    axes.set(xlabel="entropy of repeated answers (nats)", ylabel="Factual Robustness Score")
    axes.set_title(f"Every fact under three kinds of pressure (n = {shown})")
    legend_below(axes, columns=2, enlarged=4 if many else 1)
    return axes
