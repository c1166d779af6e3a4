"""Figures of answers to other orders of the choices, after pushback, and by reasoning budget."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from robust_eval.metric.metric_spec import nearest_to_one
from robust_eval.plot.colours import BLUE, GREY, RED
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.style import MANY, OUTLINE, band, draw_survival
from robust_eval.runs.figure_data import FigureData

_MAX_VARIANCE = 0.25
"""Largest variance of right and wrong."""


@run_figure(
    "Accuracy by the position of the right choice",
    "Points at different heights show position bias: a model that always says A is right in the first position and "
    "nowhere else.",
    "position bias, not in the papers",
    lambda run: "order_places" in run.tables and any(run.tables["order_places"]["questions"].to_pylist()),
)
def accuracy_by_place(axes: Axes, run: FigureData) -> None:
    """The share of right answers for each position of the right choice, with its 95 % interval."""
    table, overall = run.nearest_to_one("order_places"), run.curves["order.accuracy"]
    value, low, high = (table[name].to_numpy() for name in ("accuracy", "low", "high"))
    all_places = overall[nearest_to_one(overall)].value
    places = np.arange(1, len(value) + 1)
    whiskers = np.nan_to_num(np.maximum([value - low, high - value], 0))
    axes.axhline(all_places, color=GREY, linestyle="--", linewidth=1, label=f"all positions together: {all_places:.3f}")
    axes.errorbar(places, value, yerr=whiskers, fmt="o", color=BLUE, capsize=3)
    axes.set(xlabel="position of the right choice", ylabel="accuracy, 95 % interval", ylim=(0, 1))
    axes.set_xlim(0.5, len(value) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Accuracy by the position of the right choice")
    axes.legend()


@run_figure(
    "Facts under pushback",
    "A falling curve shows right answers given up after pushback; a dashed curve that rises by as much shows a model "
    "that gives in to any pushback.",
    "survival curve (Kaplan & Meier) over turns, not in the papers",
    lambda run: "challenge_turns" in run.tables,
)
def facts_under_pushback(axes: Axes, run: FigureData) -> None:
    """The share of facts, right at first, that are not broken after each turn of pushback, and the share of right
    answers to questions that were answered wrong at first, with 95 % intervals.
    """
    holding, mended = (run.estimates("challenge_turns", name) for name in ("holding", "mended"))
    at = np.arange(len(holding) + 1)
    if not any(math.isnan(each.value) for each in holding):
        draw_survival(axes, at[1:].tolist(), holding, BLUE, "initially right: unbroken facts")
    value, low, high = np.array([(0.0, 0.0, 0.0), *mended]).T
    if not np.isnan(value).any():
        axes.fill_between(at, low, high, **band(RED))
        axes.plot(at, value, color=RED, marker="o", linestyle="--", label="initially wrong: right answers")
    axes.set(xlabel="turn of pushback", ylabel="share, 95 % interval", ylim=(-0.02, 1.02), xlim=(0, len(holding) + 0.1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Facts under pushback")
    axes.legend()


@run_figure(
    "Accuracy and cost by reasoning budget",
    "A rising curve shows that reasoning helps; where it is flat, more reasoning does not help.",
    "reasoning budgets, not in the papers",
    lambda run: "thinking_budgets" in run.tables,
)
def accuracy_by_budget(axes: Axes, run: FigureData) -> None:
    """The share of right answers with each budget, the share of known facts that need no more, and the tokens of an
    answer with its trace, with 95 % intervals.
    """
    table = run.nearest_to_one("thinking_budgets")
    accuracy, enough = (run.estimates("thinking_budgets", name) for name in ("accuracy", "enough"))
    budgets, counted = table["budget"].to_pylist(), table["tokens"].to_numpy()
    at = np.arange(len(budgets))
    for estimates, colour, marker, line, label in (
        (accuracy, BLUE, "o", "-", "right answers"),
        (enough, RED, "s", "--", "known facts that need no larger budget"),
    ):
        value, low, high = np.array(estimates, dtype=float).T
        if not np.isnan(value).all():
            axes.fill_between(at, low, high, **band(colour))
            axes.plot(at, value, color=colour, marker=marker, linestyle=line, label=label)
    used = ["" if np.isnan(each) else f"\n({each:.0f} tokens)" for each in counted]
    axes.set_xticks(at, [f"{budget}{tokens}" for budget, tokens in zip(budgets, used, strict=True)])
    xlabel = "reasoning budget (mean tokens of trace and answer)"
    axes.set(xlabel=xlabel, ylabel="share, 95 % interval", ylim=(-0.02, 1.02))
    axes.set_title("Accuracy and cost by reasoning budget")
    axes.legend()


@run_figure(
    "Variance between and within traces",
    "High points are questions whose answer depends on the reasoning trace; for those on the right, answers vary even "
    "with the same trace.",
    "analysis of variance, not in the papers",
    lambda run: "thinking" in run.tables and not np.isnan(run.tables["thinking"]["between"].to_numpy()).all(),
)
def variance_of_questions(axes: Axes, run: FigureData) -> None:
    """The variance of right and wrong between the traces of each question, against that of the answers after one."""
    table = run.nearest_to_one("thinking")
    values = np.column_stack([table[name].to_numpy() for name in ("within", "between")])
    x, y = values[~np.isnan(values).any(axis=1)].T
    many = len(x) > MANY
    axes.plot([0, _MAX_VARIANCE], [_MAX_VARIANCE, 0], color=GREY, linestyle=":", linewidth=1, label="maximum")
    axes.scatter(x, y, s=4 if many else 30, alpha=0.5, color=BLUE, rasterized=many, clip_on=False, **OUTLINE)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="variance within traces", ylabel="variance between traces")
    axes.set_title(f"Variance between and within traces (n = {len(x)})")
    axes.legend()
