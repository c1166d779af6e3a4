"""Figures of answer certainty under repetition (Reganova & Steinbach, Fig. 1 and 3 to 5)."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from robust_eval.plot.colours import GREY, INKS, QUALITATIVE, RED, ink
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.style import legend_outside, panels, root
from robust_eval.question import PHYSICS_CATEGORIES
from robust_eval.runs.figure_data import FigureData
from robust_eval.stats.entropy import FAMILIES, entropy_of
from robust_eval.stats.interval import Floats

BINS = 10
"""Number of bins of entropy, from 0 to the largest possible, and of error rate, from 0 to 1; both ends belong to a bin.
"""

_DECIMALS = 9  # many error rates are tenths, where bins begin: rounded, 1 − 0.9 lies where 0.1 does
_CELLS = ListedColormap(colormaps["Blues"](np.linspace(0.3, 0.85, 256)))  # one question is not white, many not black
_HATCHES = ("", "///", "...", "xxx")


def entropy_histogram(axes: Axes, entropies: Mapping[str, ArrayLike], max_entropy: float) -> None:
    """Draw the histogram of the entropy of each question in nats, by model, on common bins (Fig. 1).

    The figure grows by a line of the legend for each model, which counts the questions with an entropy, at most
    ``max_entropy``, such as ln K for K choices.
    """
    defined = [values[~np.isnan(values)] for values in map(_rounded, entropies.values())]
    axes.hist(
        defined,
        bins=_edges(max_entropy).tolist(),
        rwidth=0.85,
        color=[QUALITATIVE[place % len(QUALITATIVE)] for place in range(len(defined))],
        hatch=[_HATCHES[place // len(QUALITATIVE) % len(_HATCHES)] for place in range(len(defined))],
        edgecolor=INKS[1],
        linewidth=0,
    )
    axes.set(xlabel="entropy of the answers H (nats)", ylabel="questions", xlim=(0, max_entropy))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False, axis="x")
    axes.set_title("Entropy of the answers to each question")
    fig = root(axes)
    names = [textwrap.shorten(label, 48, placeholder=" …") for label in entropies]
    width, height = fig.get_size_inches()
    fig.set_size_inches(width, height + 0.2 * len(names))
    if fig.get_layout_engine() is None:
        fig.set_layout_engine("constrained")
    bars = [bars.patches[0] for bars in axes.containers if isinstance(bars, BarContainer)]
    words = [f"{name} (n = {len(values)})" for name, values in zip(names, defined, strict=True)]
    legend_outside(fig, bars, words)


def _repeated(run: FigureData) -> bool:
    """Return True if any question could have had two different answers, so that figures of certainty make sense."""
    return "certainty" in run.tables and pc.max(run.nearest_to_one("certainty")["most"]).as_py() > 0


def _repeated_and_judged(run: FigureData) -> bool:
    return _repeated(run) and not np.isnan(run.nearest_to_one("certainty")["error_rate"].to_numpy()).all()


@run_figure(
    "Entropy of the answers",
    "0 means the same answer every time; the right end is an even spread over all possible answers.",
    "Reganova & Steinbach, Fig. 1",
    _repeated,
)
def answer_entropy(axes: Axes, run: FigureData) -> None:
    """Questions by the entropy of the repeated answers to them, in ten bins."""
    table = run.nearest_to_one("certainty")
    entropy_histogram(axes, {"all questions": table["entropy"].to_numpy()}, pc.max(table["most"]).as_py())


@run_figure(
    "Error rate against entropy",
    "The lower left corner is certain and right, the upper left certain and wrong, which repetition cannot reveal; the "
    "thick curve is the lowest possible entropy for an error rate.",
    "Reganova & Steinbach, Fig. 2, 4 and 5",
    _repeated_and_judged,
)
def error_rate_by_entropy(axes: Axes, run: FigureData) -> None:
    """Questions by the entropy of their repeated answers and by how many of these are wrong, with the curves that
    theory allows for two to five different answers.
    """
    table = run.nearest_to_one("certainty")
    entropy, error_rate = (table[name].to_numpy() for name in ("entropy", "error_rate"))
    max_entropy = pc.max(table["most"]).as_py()
    counts, is_defined = _table(entropy, error_rate, max_entropy)
    sample_size = f"{is_defined.sum()}" if is_defined.all() else f"{is_defined.sum()} of {is_defined.size}"
    cells = _cells(axes, counts, max_entropy, counts.max())
    _colour_bar(root(axes), cells, axes)
    _write_counts(axes, counts, cells, max_entropy)
    _draw_curves(axes, max_entropy)
    axes.set(xlabel="entropy of the answers H (nats)", ylabel="error rate")
    axes.set_title(f"Error rate against entropy (n = {sample_size})", parse_math=False)


@run_figure(
    "Error rate against entropy, by category",
    "In categories with questions in the upper left, the model errs without a sign of uncertainty.",
    "Reganova & Steinbach, Fig. 3",
    lambda run: _repeated_and_judged(run) and len(pc.unique(run.tables["certainty"]["category"])) > 1,
)
def error_rate_by_category(axes: Axes, run: FigureData) -> None:
    """Error rate against entropy for each category of questions, on one scale of colours."""
    table = run.nearest_to_one("certainty")
    entropy, error_rate = (table[name].to_numpy() for name in ("entropy", "error_rate"))
    max_entropy, categories = pc.max(table["most"]).as_py(), table["category"].to_pylist()
    by_category(axes, entropy, error_rate, categories, max_entropy)


def by_category(
    axes: Axes,
    entropy: ArrayLike,
    error_rate: ArrayLike,
    categories: Sequence[str],
    max_entropy: float,
    names: Mapping[str, str] = PHYSICS_CATEGORIES,
) -> None:
    """Draw the error rate and the entropy (n,) of questions, by their ``categories`` (n,), on one scale (Fig. 3).

    Categories with ``names`` come first, under these; others follow as they occur. Panels count the questions that they
    show.
    """
    entropies, errors, category = np.asarray(entropy), np.asarray(error_rate), np.asarray(categories)
    present = [name for name in names if name in categories]
    present += [name for name in dict.fromkeys(categories) if name not in names]
    tables = {name: _table(entropies[category == name], errors[category == name], max_entropy) for name in present}
    columns = min(6, max(3, math.ceil(math.sqrt(len(present)))))
    fig, grid = panels(axes, len(present), columns, width=2.1, height=2.1)
    grid[0].xaxis.set_major_locator(MaxNLocator(4))
    largest = max(table.max() for table, _ in tables.values())
    for panel, (name, (table, is_defined)) in zip(grid, tables.items(), strict=True):
        cells = _cells(panel, table, max_entropy, largest)
        title = f"{names.get(name, name)} (n\u00a0=\u00a0{is_defined.sum()})"
        panel.set_title(textwrap.fill(title, 18, max_lines=4, placeholder=" …"), fontsize=10, parse_math=False)
    _colour_bar(fig, cells, fig.axes, 20 * math.ceil(len(grid) / columns))
    fig.supxlabel("entropy of the answers H (nats)", fontsize=10)
    fig.supylabel("error rate", fontsize=10)


def _rounded(values: ArrayLike) -> Floats:
    return np.round(np.asarray(values, dtype=float), _DECIMALS)


def _edges(maximum: float) -> Floats:
    return _rounded(np.linspace(0, maximum, BINS + 1))


def _table(entropy: ArrayLike, error_rate: ArrayLike, max_entropy: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the numbers of questions by entropy (rows) and error rate (columns); a mask of those with both."""
    entropies, errors = _rounded(entropy), _rounded(error_rate)
    is_defined = ~np.isnan(entropies) & ~np.isnan(errors)
    table, _, _ = np.histogram2d(entropies[is_defined], errors[is_defined], [_edges(max_entropy), _edges(1)])
    return table, is_defined


def _cells(axes: Axes, table: Floats, max_entropy: float, largest: float) -> QuadMesh:
    """Draw the table of certainty in colours up to ``largest``, and return its cells; empty ones have no colour."""
    cells = axes.pcolormesh(
        _edges(max_entropy),
        _edges(1),
        np.ma.masked_equal(table.T, 0),
        norm=LogNorm(1, max(10, largest)),
        cmap=_CELLS,
        clip_on=False,
        edgecolors=np.where(table.T.ravel() > 0, GREY, "none").tolist(),
        linewidth=0.6,
    )
    axes.set(xlim=(0, max_entropy), ylim=(0, 1))
    axes.grid(visible=False)
    return cells


def _colour_bar(fig: Figure, cells: QuadMesh, axes: Axes | Sequence[Axes], aspect: float = 20) -> None:
    _, greatest = cells.get_clim()
    assert greatest is not None
    ticks = [tick for power in range(9) for tick in (10**power, 2 * 10**power, 5 * 10**power) if tick <= greatest]
    bar = fig.colorbar(cells, ax=axes, label="questions", ticks=ticks, format="%d", aspect=aspect)
    bar.minorticks_off()


def _write_counts(axes: Axes, table: Floats, cells: QuadMesh, max_entropy: float) -> None:
    """Write the numbers of questions on the colours of their cells, above the curves."""
    backgrounds = cells.to_rgba(np.maximum(table, 1))
    for (column, row), count in np.ndenumerate(table):
        if count:
            background = backgrounds[column, row]
            number = axes.text(
                (column + 0.5) * max_entropy / BINS, (row + 0.5) / BINS, f"{count:.0f}", fontsize=9, zorder=3
            )
            number.set(color=ink(background[:3]), ha="center", va="center")
            number.set_bbox({"facecolor": background, "edgecolor": "none", "pad": 0.6})


def _draw_curves(axes: Axes, max_entropy: float) -> None:
    """Draw the entropy curves that ``max_entropy`` allows: of two answers above the cells, of more answers below."""
    error_rate = np.linspace(0, 1, 101)
    allowed = [answers for answers in FAMILIES if math.log(answers) < max_entropy + 1e-9]
    for answers in allowed:
        for fixed in FAMILIES[answers]:
            (line,) = axes.plot(entropy_of(error_rate, *fixed), error_rate, color=GREY, linewidth=0.5, zorder=0.5)
        if answers == 2:
            line.set(color=RED, linewidth=2, zorder=2.5, label="2 answers")
        elif answers == allowed[-1]:
            line.set_label("3 answers" if answers == 3 else f"3 to {answers} answers")
    axes.legend()
