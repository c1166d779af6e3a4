"""Factual Robustness Score over entropy and breaking temperature (Fastowski et al., Fig. 8 and 9)."""

import numpy as np
from matplotlib.axes import Axes

from robust_eval.plot.colours import SEQUENTIAL
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.style import panels
from robust_eval.runs.figure_data import FigureData
from robust_eval.stats.frs import factual_robustness_score

WEIGHTS = (1.0, 2.0, 5.0, 10.0, 50.0)
"""Weights d of the paper."""
HOTTEST = 2.0
"""Last temperature of the paper's grid."""


def surface(axes: Axes, d: float, formula: str = "frs") -> None:
    """Draw the score, or f (Eq. 3), over entropy and breaking temperature for one d, seen from above."""
    entropy, breaking = np.meshgrid(np.linspace(0, 1, 61) ** 2, np.linspace(0, HOTTEST, 31))  # steep where H is small
    score = factual_robustness_score(entropy, breaking, d)
    values, levels = score, np.linspace(0, 1, 11)
    if formula == "f":  # the score is (f + 1) / (f + 2)
        values, levels = (2 * score - 1) / (1 - score), np.linspace(-1, 3, 17)
    axes.contourf(entropy, breaking, values, levels=levels, cmap=SEQUENTIAL)
    axes.set_title(f"d = {d:g}")


def _draw_surfaces(axes: Axes, formula: str, label: str) -> None:
    fig, grid = panels(axes, len(WEIGHTS), columns=3, width=2, height=1.9)
    for panel, d in zip(grid, WEIGHTS, strict=True):
        surface(panel, d, formula)
        panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    fig.colorbar(grid[0].collections[0], ax=fig.axes, label=label)
    fig.supxlabel("initial entropy H (0 to 1)", fontsize=10)
    fig.supylabel("breaking temperature", fontsize=10)


@run_figure(
    "The score by entropy and breaking temperature",
    "Facts on a line between two colours have the same score; the larger d, the sooner entropy outweighs the breaking "
    "temperature.",
    "Fastowski et al., Fig. 9",
    None,
)
def frs_surfaces(axes: Axes, run: FigureData) -> None:
    """The Factual Robustness Score over initial entropy and breaking temperature for five weights d, seen from
    above.
    """
    _draw_surfaces(axes, "frs", "FRS")


@run_figure(
    "The score before it is mapped to [0, 1]",
    "f is (1 − H)^d (t_b + 1) − H / (t_b + 1): between −1 and 3 on the paper's grid; the score is (f + 1) / (f + 2).",
    "Fastowski et al., Fig. 8",
    None,
)
def f_surfaces(axes: Axes, run: FigureData) -> None:
    """f(H, d, t_b) over initial entropy and breaking temperature for five weights d, seen from above."""
    _draw_surfaces(axes, "f", "f (H, d, t)")
