"""Figures of the raters of a question: accuracy, agreement, number of answers.

Cho & Watson print tables of these (Table 4 and 5); the figures show what is in them.
"""

from typing import Any

import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from robust_eval.metric.metric_spec import nearest_to_one
from robust_eval.plot.colours import BLUE, GREY, INKS, QUALITATIVE, RED, SEQUENTIAL, ink
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.style import root, values_and_whiskers
from robust_eval.runs.figure_data import FigureData
from robust_eval.runtime.text import number

BINS = 10
"""Number of bins of certainty from 0 to 1; both ends belong to a bin."""


@run_figure(
    "Accuracy of the raters, from worst to best case",
    "The distance between the ends is the effect of the wording, order or form; a vote above the original question "
    "shows that asking in several ways improves accuracy.",
    "Cho & Watson, Table 4",
    lambda run: "agreement" in run.tables,
)
def accuracy_range(axes: Axes, run: FigureData) -> None:
    """Share of questions answered right by at least one rater, by the majority vote, as originally asked, by the raters
    on average, and by every rater, with 95 % intervals.
    """
    names = ("at least one rater", "vote", "original question", "mean of the raters", "every rater")
    metrics = ("best", "plurality", "accuracy", "difficulty", "worst")
    curves = (run.curves[f"agreement.{metric}"] for metric in metrics)
    value, errors = values_and_whiskers(curve[nearest_to_one(curve)] for curve in curves)
    y = np.arange(len(names))[::-1]
    axes.hlines(y, 0, value, color=GREY, linewidth=0.8)
    axes.errorbar(value, y, xerr=errors, fmt="o", color=BLUE, capsize=3)
    axes.set_yticks(y, names)
    axes.set(xlabel="accuracy, 95 % interval", xlim=(0, 1), ylim=(-0.6, len(names) - 0.4))
    axes.set_title("Accuracy of the raters, from worst to best case")


@run_figure(
    "Certainty of each question's raters",
    "1 means that all raters agree, 0 that their answers spread evenly; if wrong votes (hatched) are on the left, "
    "disagreement predicts errors without an answer key.",
    "Cho & Watson, H_η of Table 4, by question",
    lambda run: "agreement" in run.tables,
)
def certainty_of_questions(axes: Axes, run: FigureData) -> None:
    """Questions by the normalised certainty H_η of their raters, and whether their majority vote is right."""
    table = run.nearest_to_one("agreement")
    value, right = table["certainty"].to_numpy(), table["plurality"].to_numpy()
    is_defined = ~np.isnan(value)
    groups = (
        ("vote right", right == 1, BLUE, ""),
        ("vote wrong", right == 0, RED, "///"),
        ("unknown", np.isnan(right), QUALITATIVE[4], "..."),
    )
    edges = np.linspace(0, 1, BINS + 1)
    bottom = np.zeros(BINS)
    for name, chosen, colour, hatch in groups:
        bins = np.minimum((np.round(value[is_defined & chosen], 9) * BINS).astype(int), BINS - 1)
        counts = np.bincount(np.maximum(bins, 0), minlength=BINS)
        if len(bins):
            style: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": INKS[1], "linewidth": 0}
            label = f"{name} ({len(bins)})"
            axes.bar(edges[:-1] + 0.05 / BINS, counts, 0.9 / BINS, bottom, align="edge", label=label, **style)
        bottom += counts
    axes.set(xlabel="normalised certainty of the raters", ylabel="questions", xlim=(0, 1))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False, axis="x")
    axes.set_title("Certainty of each question's raters")
    if bottom.any():
        axes.legend()


@run_figure(
    "Agreement between raters",
    "A row darker than the others is a rater, such as one rewrite, that disagrees with the rest; 0 is the original "
    "question.",
    "Cho & Watson, the pairs behind κ of Table 4",
    lambda run: "agreement_matrix" in run.tables,
)
def agreement_matrix(axes: Axes, run: FigureData) -> None:
    """The share of questions to which each pair of raters gave equivalent answers."""
    table = run.nearest_to_one("agreement_matrix")
    raters = pc.max(table["first"]).as_py() + 1
    matrix = table["share"].to_numpy().reshape(raters, raters)
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


@run_figure(
    "Different answers to a question",
    "1 means that all raters agree; the hatched bar counts the questions to which no two raters gave the same answer.",
    "Cho & Watson, the counts behind M2 of Table 4",
    lambda run: "agreement" in run.tables,
)
def labels_per_question(axes: Axes, run: FigureData) -> None:
    """Questions by the number of different answers that their raters gave."""
    table = run.nearest_to_one("agreement")
    labels, raters = table["labels"].to_numpy(), pc.max(table["raters"]).as_py()
    counts = np.bincount(labels.astype(int), minlength=raters + 1)
    bars = axes.bar(range(len(counts)), counts, color=BLUE, width=0.8, edgecolor=INKS[1], linewidth=0)
    bars[raters].set(facecolor=RED, hatch="///")
    axes.set(xlabel=f"different answers of {raters} raters", ylabel="questions")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False, axis="x")
    if len(counts) <= 22:
        axes.set_xticks(range(len(counts)))
    axes.set_title("Different answers to a question")
