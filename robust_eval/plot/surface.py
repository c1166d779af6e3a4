"""Factual Robustness Score over entropy and breaking temperature (Fastowski et al., Fig. 8 and 9)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robust_eval.plot.colours import SEQUENTIAL
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.style import panels
from robust_eval.runs.findings import Findings
from robust_eval.stats.frs import factual_robustness_score

WEIGHTS = (1.0, 2.0, 5.0, 10.0, 50.0)
"""Weights d of the paper."""
HOTTEST = 2.0
"""Last temperature of the paper's grid."""

_LEVELS = {"frs": np.linspace(0, 1, 11), "f": np.linspace(-1, 3, 17)}
_NAMES = {"frs": "FRS", "f": "f (H, d, $t_b$)"}


def surface(axes: Axes, d: float, formula: str = "frs") -> Axes:
    """Draw the score, or f, over entropy and breaking temperature for one d: a panel of Fig. 8 or 9, seen from above.

    Parameters
    ----------
    axes
        Where to draw.
    d
        The weight of the entropy, above 0.
    formula
        ``frs`` (Eq. 4 and 6) is between 0 and 0.8 on the paper's grid, ``f`` (Eq. 3), of which it is (f + 1) / (f + 2),
        between −1 and 3.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> surface(axes, d=2).get_title()
    'd = 2'
    >>> plt.close(figure)
    """
    entropy, breaking = np.meshgrid(np.linspace(0, 1, 61) ** 2, np.linspace(0, HOTTEST, 31))  # steep where H is small
    score = factual_robustness_score(entropy, breaking, d)
    values = {"frs": score, "f": (2 * score - 1) / (1 - score)}[formula]
    axes.contourf(entropy, breaking, values, levels=_LEVELS[formula], cmap=SEQUENTIAL)
    axes.set(xlabel="initial entropy H (0 to 1)", ylabel="breaking temperature $t_b$")
    axes.set_title(f"d = {d:g}")
    return axes


def surfaces(fig: Figure, formula: str = "frs", weights: Sequence[float] = WEIGHTS) -> Figure:
    """Draw the score, or f, over entropy and breaking temperature for each d (Fig. 9 and 8).

    Parameters
    ----------
    fig
        Its axes are replaced, its size is changed.
    formula
        As :func:`surface` has it.
    weights
        The d of the panels.
    """
    grid = panels(fig, len(weights), columns=3, width=2, height=1.9)
    for panel, d in zip(grid, weights, strict=True):
        surface(panel, d, formula).set(xlabel="", ylabel="")
        panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    fig.colorbar(grid[0].collections[0], ax=fig.axes, label=_NAMES[formula])
    fig.supxlabel("initial entropy H (0 to 1)", fontsize=11)
    fig.supylabel("breaking temperature $t_b$", fontsize=11)
    return fig


@run_figure(
    "What the score makes of entropy and breaking temperature",
    "Along a line between two colours facts score alike; the larger d, the sooner entropy outweighs the breaking "
    "temperature.",
    "Fastowski et al., Fig. 9",
    None,
)
def frs_surfaces(fig: Figure, run: Findings) -> None:
    """The Factual Robustness Score over initial entropy and breaking temperature for five weights d, seen from
    above.
    """
    surfaces(fig, "frs")


@run_figure(
    "The score before it is mapped to [0, 1]",
    "f is (1 − H)^d (t_b + 1) − H / (t_b + 1): between −1 and 3 on the paper's grid; the score is (f + 1) / (f + 2).",
    "Fastowski et al., Fig. 8",
    None,
)
def f_surfaces(fig: Figure, run: Findings) -> None:
    """f(H, d, t_b) over initial entropy and breaking temperature for five weights d, seen from above."""
    surfaces(fig, "f")
