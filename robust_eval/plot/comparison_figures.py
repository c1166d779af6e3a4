"""Figures that compare measurements, in one pair of axes or in panels (Fastowski et al., Fig. 1 to 5 and 10 to 13)."""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, cycle
from typing import Any, NamedTuple, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from robust_eval.metric.metric_spec import STEPS, MetricSpec
from robust_eval.plot.colours import BLUE, GREY, QUALITATIVE, RED
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.frs_figures import (
    FactAccuracy,
    Facts,
    break_levels,
    draw_accuracies,
    draw_entropies,
    draw_plane,
)
from robust_eval.plot.style import (
    band,
    draw_survival,
    legend_outside,
    panels,
    root,
    temperature_ticks,
    values_and_whiskers,
)
from robust_eval.question import QUESTION_TYPES
from robust_eval.runs.figure_data import FigureData
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats, Limits

Curves = Mapping[str, Mapping[float, Estimate]]
"""Label of each measurement, and its estimates by temperature or by d."""
COLUMNS = 2
"""Number of panels in a row."""
T = TypeVar("T")


def by_number(axes: Axes, curves: Curves, spec: MetricSpec, title: str) -> None:
    """Draw a compared metric for each number in its name, with 95 % intervals (the weights of FRS: Fig. 10 to 12)."""
    numbers = sorted({*chain(*curves.values())})
    if spec.comparison is not None and spec.comparison.kind == STEPS:
        _steps(axes, curves)
    else:
        _lines(axes, curves, dodge=numbers[0] > 0)
        axes.set_xscale("log" if numbers[0] > 0 else "linear")
    axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
    axes.minorticks_off()
    _label_axes(axes, spec, title)


def by_temperature(axes: Axes, curves: Curves, spec: MetricSpec, title: str) -> None:
    """Draw a compared metric at each temperature, with 95 % intervals (accuracy: Fig. 1)."""
    (_steps if spec.comparison is not None and spec.comparison.kind == STEPS else _lines)(axes, curves)
    temperature_ticks(axes, chain(*curves.values()))
    _label_axes(axes, spec, title)


@run_figure(
    "Other metrics",
    "Parallel lines show metrics that move together; values of different metrics cannot be compared.",
    "your own metrics",
    lambda run: bool(run.curves_of_others()),
)
def figures_by_temperature(axes: Axes, run: FigureData) -> None:
    """Custom headline metrics at each temperature, with 95 % intervals."""
    curves = run.curves_of_others()
    _lines(axes, curves)
    axes.set(xlabel="temperature t", ylabel="value")
    temperature_ticks(axes, chain(*curves.values()))


def by_dataset(axes: Axes, by_label: Mapping[str, Mapping[str, Estimate]], spec: MetricSpec, title: str) -> None:
    """Draw one metric of each measurement on each data set, with 95 % intervals."""
    datasets = _draw_groups(axes, by_label)
    if spec.limits[0] < 0:
        axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(datasets)), datasets)
    _limit_values(axes, spec.limits)
    axes.set_title(title, parse_math=False)
    _legend(axes)


def most_robust_by_type(axes: Axes, shares: Mapping[str, Mapping[str, Estimate]], title: str) -> None:
    """Draw the share of each question type among the most robust facts, out of the most and the least robust, of each
    measurement, with 95 % intervals (Fig. 5).
    """
    types = _draw_groups(axes, shares)
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
    axes.set_xticks(
        range(len(types)), [QUESTION_TYPES.get(name, name or "no type") for name in types], parse_math=False
    )
    axes.set(ylabel="share among the most robust", ylim=(0, 1.02))
    axes.set_title(title, parse_math=False)
    _legend(axes)


def intervals(
    axes: Axes, estimates: Mapping[str, Estimate], label: str, title: str, are_differences: bool = False
) -> None:
    """Draw estimates with their 95 % intervals from top to bottom, each under the name of its measurement; if they are
    differences, with a line at 0.
    """
    if are_differences:
        axes.axvline(0, color=GREY, linewidth=1)
    value, errors = values_and_whiskers(estimates.values())
    axes.errorbar(value, np.arange(len(estimates)), xerr=errors, fmt="o", color=BLUE, markersize=5, capsize=2)
    _label_rows(axes, list(estimates), label, title)


class Judgement(NamedTuple):
    """Difference of a candidate from its baseline, its non-inferiority margin, and the verdict on it."""

    difference: Estimate
    margin: float
    verdict: str


_VERDICTS = {"PASS": (BLUE, "o"), "FAIL": (RED, "X")}
"""Colour and marker of a verdict; any other is grey and a diamond."""


def margins(axes: Axes, judgements: Mapping[str, Judgement], label: str) -> None:
    """Draw a candidate's differences with their intervals, one below the other, each with its verdict and the zone
    beyond its margin: a metric passes if its interval is outside.
    """
    value, errors = values_and_whiskers(each.difference for each in judgements.values())
    worst = min(np.nanmin(value - errors[0]), *(-each.margin for each in judgements.values()))
    best = max(np.nanmax(value + errors[1]), 0.0)
    room = 0.06 * (best - worst)
    edge = worst - 2 * room
    axes.axvline(0, color=GREY, linewidth=1)
    for row, each in enumerate(judgements.values()):
        colour, marker = _VERDICTS.get(each.verdict, (GREY, "D"))
        zone = band(GREY, 0.1) | {"label": "worse by more than the margin" if row == 0 else ""}
        axes.fill_betweenx([row - 0.2, row + 0.3], edge, -each.margin, **zone)
        bars = [[distance] for distance in errors[:, row]]
        axes.errorbar(value[row], row, xerr=bars, fmt=marker, color=colour, markersize=7, capsize=3, linewidth=2)
    axes.set_xlim(edge, best + room)
    _label_rows(axes, [f"{name}: {each.verdict}" for name, each in judgements.items()], label, "")
    legend_outside(root(axes), *axes.get_legend_handles_labels())


def _label_rows(axes: Axes, names: Sequence[str], label: str, title: str) -> None:
    """Write a measurement's name above each row, for rows as wide as the figure, and fit the height of the figure."""
    words = ["\n".join(textwrap.wrap(name, 56, max_lines=2, placeholder=" …")) for name in names]
    height = 0.17 * (max(word.count("\n") for word in words) + 1) + 0.25
    for row, word in enumerate(words):
        y = row - 0.13 / height
        axes.text(0.01, y, word, fontsize=9, va="bottom", parse_math=False, transform=axes.get_yaxis_transform())
    axes.set(yticks=[], ylim=(len(words) - 0.5, 0.15 / height - 1))
    axes.tick_params(axis="x", labelsize=9)
    axes.set_xlabel(label, fontsize=10, parse_math=False)
    axes.set_title("\n".join(textwrap.wrap(title, 48)), fontsize=11, parse_math=False)
    root(axes).set_size_inches(4.8, height * len(words) + 1.2)


def _draw_groups(axes: Axes, by_label: Mapping[str, Mapping[str, Estimate]]) -> list[str]:
    """Draw each measurement's estimates of several groups side by side, with intervals; return the groups in order."""
    groups = list(dict.fromkeys(group for estimates in by_label.values() for group in estimates))
    for index, ((label, estimates), (colour, marker, _)) in enumerate(zip(by_label.items(), _styles(), strict=False)):
        value, errors = values_and_whiskers(estimates.values())
        x = np.array([groups.index(group) for group in estimates]) + 0.6 * (index + 0.5) / len(by_label) - 0.3
        axes.errorbar(x, value, errors, fmt=marker, color=colour, markersize=5, capsize=2, label=_plain(label))
    return groups


def _steps(axes: Axes, curves: Curves) -> None:
    """Draw Kaplan-Meier curves P(t_b > t): the share of facts unbroken beyond each temperature, with 95 % intervals.

    All unbroken facts are censored at the last temperature, so the estimate is that share. A break lies between two
    temperatures of the grid; a step is at the later one.
    """
    for (label, curve), (colour, _, dash) in zip(curves.items(), _styles(), strict=False):
        estimates = [curve[t] for t in sorted(curve)]
        draw_survival(axes, sorted(curve), estimates, colour, _plain(label), opacity=0.12, linestyle=dash)
    _legend(axes)


def _label_axes(axes: Axes, spec: MetricSpec, title: str) -> None:
    """Set title and labels of a comparison figure's axes, and limit the axis of the values to their range."""
    axes.set_xlabel(spec.horizontal, parse_math=False)
    axes.set_ylabel(textwrap.fill(spec.vertical, 50), parse_math=False)
    _limit_values(axes, spec.limits)
    axes.set_title(title, parse_math=False)


def _limit_values(axes: Axes, limits: Limits) -> None:
    """Limit a comparison figure's vertical axis to the range of the values, with room for points at its ends; without a
    lower limit it reaches no farther down than up.
    """
    lowest, highest = limits
    bottom, top = axes.get_ylim()
    room = 0.02 * (highest - max(lowest, 0.0)) if math.isfinite(highest) else 0.0
    if math.isfinite(lowest):
        bottom = lowest - room if lowest < 0 else lowest
    elif math.isfinite(highest) and highest > 0:
        bottom = max(-highest - room, bottom)
    axes.set_ylim(bottom, highest + room if math.isfinite(highest) else top)


def _lines(axes: Axes, curves: Curves, dodge: bool = False) -> None:
    """Draw a line with intervals for each measurement; ``dodge`` separates them on a logarithmic axis of few values."""
    for index, ((label, curve), (colour, marker, dash)) in enumerate(zip(curves.items(), _styles(), strict=False)):
        points = sorted(curve)
        value, errors = values_and_whiskers(curve[x] for x in points)
        shift = 1.25 ** ((index - (len(curves) - 1) / 2) / max(len(curves), 8)) if dodge else 1.0
        style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": dash, "label": _plain(label)}
        axes.errorbar(np.array(points) * shift, value, errors, markersize=5, capsize=2, elinewidth=1, **style)
    _legend(axes)


def _styles() -> Iterator[tuple[str, str, str]]:
    """Yield colour, marker and dash of each measurement; the first 28 combinations differ."""
    marks = zip("osD^", ("-", "--", "-.", ":"), strict=True)
    return cycle((colour, marker, dash) for marker, dash in marks for colour in QUALITATIVE)


def _plain(label: str) -> str:
    """Return a label so that matplotlib shows it: one with a leading underscore would be hidden."""
    return f" {label}" if label.startswith("_") else label


def _legend(axes: Axes) -> None:
    """Add a legend of the measurements below the axes, and make the figure taller for it."""
    handles, labels = axes.get_legend_handles_labels()
    words = ["\n".join(textwrap.wrap(label, 56, max_lines=3, placeholder=" …")) for label in labels]
    fig = root(axes)
    width, height = fig.get_size_inches()
    legend = legend_outside(fig, handles, words)
    rows = math.ceil(sum(word.count("\n") + 1 for word in words) / legend._ncols)  # type: ignore[attr-defined]
    fig.set_size_inches(width, height + 0.17 * rows)


def entropy_by_breaking_temperature(axes: Axes, measured: Mapping[str, Facts], title: str) -> None:
    """Draw the initial entropy of the facts that break at each temperature of one grid, a panel for each measurement
    (Fig. 3).
    """
    _, grid = draw_panels(axes, measured, draw_entropies, title)
    levels, labels = _levels(measured)
    grid[0].set_xticks(levels, labels)
    for panel in grid:
        panel.tick_params(axis="x", labelrotation=90)


def frs_by_entropy_and_breaking(axes: Axes, measured: Mapping[str, Facts], d: float, title: str) -> None:
    """Draw every fact in the plane of entropy and breaking temperature, coloured by its score for d, a panel for each
    measurement (Fig. 4).
    """
    points: list[PathCollection] = []
    fig, grid = draw_panels(axes, measured, lambda panel, facts: points.append(draw_plane(panel, facts, d)), title)
    levels, labels = _levels(measured)
    grid[0].set_yticks(levels, labels)
    fig.colorbar(points[0], ax=fig.axes, label=f"FRS (d = {d:g})")


def accuracy_by_fact(axes: Axes, measured: Mapping[str, FactAccuracy], title: str) -> None:
    """Draw the accuracy of every fact on one scale, a panel for each measurement; rows are equally high in all."""
    width = 2.6
    fig, grid = panels(axes, len(measured), COLUMNS, width=width, height=3.4)
    for panel, (label, facts) in zip(grid, measured.items(), strict=True):
        cells = draw_accuracies(panel, facts)
        panel.set_title(_panel_label(label, width), fontsize=10, parse_math=False)
        panel.tick_params(axis="x", labelsize=9)
        panel.label_outer()
    grid[0].set_ylim(max(facts.total for facts in measured.values()), 0)
    fig.colorbar(cells, ax=fig.axes, label="share of right replies")
    fig.suptitle(textwrap.fill(title, int(9 * width * COLUMNS)), fontsize=12, parse_math=False)
    legend_outside(fig, *grid[0].get_legend_handles_labels())


def draw_panels(
    axes: Axes, measured: Mapping[str, T], draw: Callable[[Axes, T], object], title: str
) -> tuple[Figure, list[Axes]]:
    """Draw a panel for each measurement, with common labels and one legend; return the figure and the panels."""
    width = 1.9
    fig, grid = panels(axes, len(measured), COLUMNS, width=width, height=2.1)
    legend: dict[str, object] = {}
    for panel, (label, each) in zip(grid, measured.items(), strict=True):
        draw(panel, each)
        handles, words = panel.get_legend_handles_labels()
        legend |= dict(zip(words, handles, strict=True))
        across, up = panel.get_xlabel(), panel.get_ylabel()
        panel.set(xlabel="", ylabel="")
        panel.set_title(_panel_label(label, width), fontsize=10, parse_math=False)
        if (panel_legend := panel.get_legend()) is not None:
            panel_legend.remove()
    fig.supxlabel(across, fontsize=10)
    fig.supylabel(up, fontsize=10)
    fig.suptitle(textwrap.fill(title, int(10 * width * min(COLUMNS, len(measured)))), fontsize=11, parse_math=False)
    if legend:
        legend_outside(fig, list(legend.values()), list(legend))
    return fig, grid


def _panel_label(label: str, width: float) -> str:
    """Return the label of a compared measurement in lines for a panel ``width`` inches wide."""
    return textwrap.fill(label, int(8.5 * width), max_lines=4, placeholder=" …")


def _levels(measured: Mapping[str, Facts]) -> tuple[Floats, list[str]]:
    """Return positions and labels on the axis of t_b that the panels of all measurements share."""
    facts = list(measured.values())
    levels, labels, _ = break_levels(np.concatenate([each.breaking for each in facts]), facts[0].temperatures)
    return levels, labels
