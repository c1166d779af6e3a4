"""Figures of several measurements, a panel for each (Fastowski et al., Fig. 2, 3, 4 and 13)."""

import textwrap
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from robust_eval.plot.frs_figures import Facts, break_levels, certainty_bins, draw_densities, draw_entropies, draw_plane
from robust_eval.plot.style import legend_outside, panels
from robust_eval.stats.interval import Floats

COLUMNS = 3
"""Panels in a row."""
T = TypeVar("T")


def entropy_by_breaking_temperature(fig: Figure, measured: Mapping[str, Facts], title: str) -> Figure:
    """Draw the initial entropy of the facts that break at each temperature, a panel for each measurement (Fig. 3).

    Parameters
    ----------
    fig
        Its axes are replaced, its size is changed.
    measured
        What each is called, and its facts; all on the same grid.
    title
        Of the figure.
    """
    grid = _draw_panels(fig, measured, draw_entropies, title)
    levels, labels = _levels(measured)
    grid[0].set_xticks(levels, labels)
    for panel in grid:
        panel.tick_params(axis="x", labelrotation=90)
    return fig


def frs_by_entropy_and_breaking(fig: Figure, measured: Mapping[str, Facts], d: float, title: str) -> Figure:
    """Draw every fact in the plane of entropy and breaking temperature, coloured by its score, a panel for each
    measurement (Fig. 4); ``measured`` is as :func:`entropy_by_breaking_temperature` has it, and all have a score for d.
    """

    def draw(panel: Axes, facts: Facts) -> None:
        points.append(draw_plane(panel, facts, d))

    points: list[PathCollection] = []
    grid = _draw_panels(fig, measured, draw, title)
    levels, labels = _levels(measured)
    grid[0].set_yticks(levels, labels)
    fig.colorbar(points[0], ax=fig.axes, label=f"FRS (d = {d:g})")
    return fig


def frs_density(fig: Figure, measured: Mapping[str, Facts], title: str) -> Figure:
    """Draw the distribution of the score of the broken facts for each d, a panel for each measurement (Fig. 13)."""
    _draw_panels(fig, measured, lambda panel, facts: draw_densities(panel, facts.scores, facts.breaking), title)
    return fig


Bins = tuple[ArrayLike, ArrayLike, ArrayLike]
"""(b,) lower edges of the bins of certainty, and the right and the wrong replies in each."""


def reply_certainty(fig: Figure, measured: Mapping[str, Bins], title: str) -> Figure:
    """Draw right and wrong replies by the model's certainty, a panel for each measurement (Fig. 2).

    ``measured`` has what :func:`robust_eval.plot.frs_figures.certainty_bins` takes.
    """
    _draw_panels(fig, measured, lambda panel, bins: certainty_bins(panel, *bins), title)
    return fig


def _draw_panels(fig: Figure, measured: Mapping[str, T], draw: Callable[[Axes, T], object], title: str) -> list[Axes]:
    """Draw a panel for each measurement, with common labels of the axes and one legend."""
    width = 2.6 if len(measured) >= COLUMNS else 3.4
    grid = panels(fig, len(measured), COLUMNS, width=width, height=2.3)
    legend: dict[str, object] = {}
    for panel, (label, each) in zip(grid, measured.items(), strict=True):
        draw(panel, each)
        handles, words = panel.get_legend_handles_labels()
        legend |= dict(zip(words, handles, strict=True))
        across, up = panel.get_xlabel(), panel.get_ylabel()
        panel.set(xlabel="", ylabel="")
        panel.set_title(
            textwrap.fill(label, int(10 * width), max_lines=3, placeholder=" …"), fontsize=10, parse_math=False
        )
        if (panel_legend := panel.get_legend()) is not None:
            panel_legend.remove()
    fig.supxlabel(across, fontsize=11)
    fig.supylabel(up, fontsize=11)
    fig.suptitle(textwrap.fill(title, int(9 * width * min(COLUMNS, len(measured)))), fontsize=12, parse_math=False)
    if legend:
        legend_outside(fig, list(legend.values()), list(legend))
    return grid


def _levels(measured: Mapping[str, Facts]) -> tuple[Floats, list[str]]:
    """Return the positions of facts on the axis of t_b, and the labels, for all panels."""
    facts = list(measured.values())
    levels, labels, _ = break_levels(np.concatenate([each.breaking for each in facts]), facts[0].temperatures)
    return levels, labels
