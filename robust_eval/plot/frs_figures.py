"""Figures of the Factual Robustness Score (Fastowski et al., Fig. 1 to 13), and a survival curve."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from robust_eval.metric.frs_specs import FRS
from robust_eval.metric.frs_tables import cut_size, share_estimates
from robust_eval.plot.colours import BLUE, GREY, INKS, QUALITATIVE, RED, SEQUENTIAL
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.style import (
    MANY,
    OUTLINE,
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
from robust_eval.runtime.text import number
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import Floats, units_and_error

BIN = 0.1
"""Width of a bin of certainty."""
MAX_ROWS = 300
"""Maximum number of facts in a heat map."""
MAP = "map"
"""Id of the area of the heat map in its SVG file, in which facts are rows of equal height."""
_JITTER = 0.012
"""Horizontal jitter of points with the same entropy, as a share of the largest entropy."""


class Facts(NamedTuple):
    """Facts of one measurement for FRS figures: (n,) entropy and breaking temperature, scores by d, and the grid."""

    entropy: Floats
    breaking: Floats
    scores: Mapping[float, Floats]
    temperatures: Sequence[float]


def facts_of(run: FigureData) -> Facts:
    """Return a run's facts for FRS figures, with sampled temperatures or, without any, those of its survival curve."""
    table = run.tables["frs"]
    entropy, breaking = (table[name].to_numpy() for name in ("entropy", "breaking_temperature"))
    return Facts(entropy, breaking, run.scores(), sorted(run.curves.get("accuracy") or run.curves["frs.survival"]))


@run_figure(
    "Every fact under three perturbations",
    "Facts in the upper left withstand temperature and repetition; a diamond marks a fact answered correctly in every "
    "wording, and in the upper left, a fact that is robust by all three methods.",
    "not in the papers, which have no questions in common",
    lambda run: "profile" in run.tables and "frs" in run.tables["profile"].column_names,
)
def frs_by_entropy_and_rewording(axes: Axes, run: FigureData) -> None:
    """Each fact by the entropy of its repeated answers and its Factual Robustness Score, coloured by the share of its
    wordings that is answered right.
    """
    table = run.tables["profile"]
    values = np.column_stack([table[name].to_numpy() for name in ("entropy", "frs", "right_share")])
    is_defined = ~np.isnan(values).any(axis=1)
    x, y, share = values[is_defined].T
    x = x + np.random.default_rng(0).uniform(-_JITTER, _JITTER, len(x)) * x.max(initial=0)
    many = len(x) > MANY
    for is_held, marker, size, edge, label in (
        (share < 1, "o", 30, GREY, "wrong in one wording or more"),
        (share == 1, "D", 44, "black", "right in every wording"),
    ):
        style: dict[str, Any] = {"marker": marker, "edgecolors": edge, "s": size / 16 if many else size}
        style |= {"alpha": 0.5 if many else 1, "linewidths": 0.3 if many else 0.7, "rasterized": many}
        style |= {"c": share[is_held], "cmap": SEQUENTIAL, "vmin": 0, "vmax": 1}
        # clipped, each point takes half as much again in an SVG file
        points = axes.scatter(
            x[is_held], y[is_held], clip_on=False, label=f"{label} ({np.count_nonzero(is_held)})", **style
        )
    bar = root(axes).colorbar(points, ax=axes, format=PercentFormatter(1, 0))
    bar.set_label("wordings answered correctly")
    sample_size = f"{is_defined.sum()}" if is_defined.all() else f"{is_defined.sum()} of {is_defined.size}"
    axes.set(xlabel="entropy of repeated answers (nats)", ylabel="Factual Robustness Score")
    axes.set_title(f"Every fact under three perturbations (n\u00a0=\u00a0{sample_size})")
    axes.legend()


class FactAccuracy(NamedTuple):
    """Accuracy of the facts of a run, the most robust first: (n,) their indices ``rows`` in the run, (n, T)
    ``accuracy`` at the (T,) ``temperatures``, (n,) ``breaking`` temperatures, and the run's ``total`` number of facts.
    """

    rows: NDArray[np.intp]
    accuracy: Floats
    breaking: Floats
    temperatures: Floats
    total: int


def most_robust_first(accuracy: Floats, breaking: Floats, temperatures: ArrayLike) -> FactAccuracy:
    """Return the facts with a breaking temperature, the highest first and then by (n, T) accuracy; of more than
    :data:`MAX_ROWS` those at even distances.
    """
    order = np.lexsort((-np.nansum(accuracy, axis=1), -breaking))[: np.count_nonzero(~np.isnan(breaking))]
    total = len(order)
    if total > MAX_ROWS:
        order = order[np.linspace(0, total - 1, MAX_ROWS).round().astype(int)]
    return FactAccuracy(order, accuracy[order], breaking[order], np.asarray(temperatures, dtype=float), total)


def fact_accuracy(run: FigureData) -> FactAccuracy:
    """Return the accuracy of the facts of a run, in rows of its table ``frs``; NaN without a reply."""
    table, scored = run.tables["frs_accuracy"], run.tables["frs"]
    temperatures = np.unique(table["temperature"].to_numpy())
    rows = {question: row for row, question in enumerate(scored["question_id"].to_pylist())}
    accuracy = np.full((len(rows), len(temperatures)), np.nan)
    at = np.searchsorted(temperatures, table["temperature"].to_numpy())
    correct, replies = (table[name].to_numpy() for name in ("correct", "replies"))
    row = np.array([rows.get(question, -1) for question in table["question_id"].to_pylist()])
    is_scored = (row >= 0) & (replies > 0)
    accuracy[row[is_scored], at[is_scored]] = correct[is_scored] / replies[is_scored]
    return most_robust_first(accuracy, scored["breaking_temperature"].to_numpy(), temperatures)


@run_figure(
    "Accuracy of every fact",
    "Each row is a fact. Robust facts, at the top, stay right (light) at high temperatures; fragile ones, at the "
    f"bottom, soon turn wrong (dark). The line is the breaking temperature. If there are more than {MAX_ROWS} "
    f"facts, only {MAX_ROWS} evenly spaced ones are drawn.",
    "not in the paper",
    lambda run: {"frs", "frs_accuracy"} <= set(run.tables) and run.tables["frs"].num_rows > 0,
)
def accuracy_by_fact(axes: Axes, run: FigureData) -> None:
    """The share of right replies of every fact at each temperature, sorted by breaking temperature."""
    facts = fact_accuracy(run)
    root(axes).set_size_inches(5.3, 5.1)  # fits a phone at its smallest font
    root(axes).colorbar(draw_accuracies(axes, facts), ax=axes, label="share of right replies")
    axes.legend()
    axes.patch.set_gid(MAP)
    drawn = "" if len(facts.rows) == facts.total else f"; {len(facts.rows)} drawn"
    axes.set_title(f"Accuracy of every fact (n = {facts.total:,}{drawn})")


def draw_accuracies(axes: Axes, facts: FactAccuracy) -> QuadMesh:
    """Draw the accuracy of facts (rows, from the top) at temperatures (columns), and their breaking temperatures."""
    middle = (facts.temperatures[1:] + facts.temperatures[:-1]) / 2
    step = middle[0] - facts.temperatures[0] if len(middle) else 0.5
    edges = np.array([facts.temperatures[0] - step, *middle, facts.temperatures[-1] + step])
    heights = np.linspace(0, facts.total, len(facts.rows) + 1)
    cells = axes.pcolormesh(edges, heights, facts.accuracy, cmap=SEQUENTIAL, vmin=0, vmax=1, rasterized=True)
    cell = np.searchsorted(facts.temperatures, facts.breaking)  # of unbroken facts beyond the last
    boundary = np.repeat(edges[cell], 2), np.repeat(heights, 2)[1:-1]
    axes.plot(*boundary, color=RED, linewidth=2.5, label="breaking temperature (left edge; far right: unbroken)")
    axes.set(xlabel="temperature t", ylabel="facts, most robust at the top", ylim=(facts.total, 0))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.grid(visible=False)
    temperature_ticks(axes, facts.temperatures)
    return cells


@run_figure(
    "Accuracy against temperature",
    "The earlier and more steeply the curve falls, the less robust is the model's knowledge.",
    "Fastowski et al., Fig. 1",
    lambda run: "frs_accuracy" in run.tables,
)
def accuracy_by_temperature(axes: Axes, run: FigureData) -> None:
    """The share of right replies to the kept questions at each temperature, with its 95 % interval."""
    accuracy = run.curves["accuracy"]
    temperatures = np.array(sorted(accuracy))
    value, low, high = np.array([accuracy[t] for t in temperatures]).T
    axes.fill_between(temperatures, low, high, **band(BLUE), label="95 % interval")
    axes.plot(temperatures, value, color=BLUE, marker="o", label="mean over kept questions")
    axes.set(xlabel="temperature t", ylabel="accuracy (share of right replies)", ylim=(0, 1.02))
    temperature_ticks(axes, temperatures)
    axes.set_title("Accuracy against temperature")
    axes.legend()


@run_figure(
    "Unbroken facts",
    "The curve crosses one half where half of the facts are broken; those left at the last temperature are unbroken.",
    "survival curve (Kaplan & Meier), not in the papers",
    lambda run: bool(run.curves.get("frs.survival")),
)
def survival(axes: Axes, run: FigureData) -> None:
    """The share of facts that are still unbroken at each temperature, with its 95 % interval."""
    holding = run.curves["frs.survival"]
    temperatures = sorted(holding)
    estimates = [holding[t] for t in temperatures]
    draw_survival(axes, temperatures, estimates, BLUE, "unbroken facts", interval="95 % interval")
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
    _note_line(axes, 0.5, "half of the facts")
    axes.set(xlabel="temperature t", ylabel="share of facts unbroken beyond t", ylim=(0, 1.02), xlim=(0, None))
    temperature_ticks(axes, temperatures)
    axes.set_title("Unbroken facts")
    axes.legend()


@run_figure(
    "Certainty of right and wrong replies",
    "Certainty is informative if wrong replies (hatched) are on the left and right ones on the right; wrong replies on "
    "the right are confident errors.",
    "Fastowski et al., Fig. 2, 6 and 7",
    lambda run: "frs_certainty" in run.tables and run.tables["frs_certainty"].num_rows > 0,
)
def reply_certainty_by_temperature(axes: Axes, run: FigureData) -> None:
    """For each temperature, right and wrong replies by the mean probability of their tokens, in ten bins."""
    table = run.tables["frs_certainty"]
    t, *columns = (table[name].to_numpy() for name in ("temperature", "certainty_from", "right", "wrong"))
    levels = np.unique(t)
    fig, grid = panels(axes, len(levels), columns=4, width=1.7, height=1.6)
    for panel, level in zip(grid, levels, strict=True):
        certainty_bins(panel, *(values[t == level] for values in columns))
        panel.set(xlabel="", ylabel="", xticks=[0, 0.5, 1])
        panel.set_title(f"t = {level:g}", fontsize=10)
    grid[0].set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    fig.supxlabel("certainty (mean token probability of the reply)", fontsize=10)
    fig.supylabel("share of replies", fontsize=10)
    fig.suptitle("Certainty of right and wrong replies", fontsize=11)
    legend_outside(fig, *grid[0].get_legend_handles_labels())


def certainty_bins(axes: Axes, certainty_from: ArrayLike, right: ArrayLike, wrong: ArrayLike) -> None:
    """Draw the shares of right and wrong replies (b,) by certainty, at one temperature: a panel of Fig. 2.

    ``certainty_from`` (b,) are the lower edges of the bins, of 0, 0.1, …, 0.9: the mean probability of a reply's tokens
    at its temperature. Bins without a reply may be missing; replies may be counts or probabilities.
    """
    start, hits, misses = (np.asarray(values, dtype=float) for values in (certainty_from, right, wrong))
    replies = hits.sum() + misses.sum()
    at, width = start + 0.05 * BIN, 0.9 * BIN
    axes.bar(at, hits / replies, width, align="edge", color=BLUE, linewidth=0, label="right")
    errors = axes.bar(at, misses / replies, width, hits / replies, align="edge", color=RED, linewidth=0, label="wrong")
    for bar in errors:
        bar.set(hatch="///", edgecolor=INKS[1])
    axes.set(xlabel="certainty (mean token probability)", ylabel="share of replies", xlim=(0, 1))
    axes.grid(visible=False, axis="x")


def _has_scores(run: FigureData) -> bool:
    """Return True if a run has FRS to draw; not if known facts lack an initial entropy (no log-probabilities)."""
    if "frs" not in run.tables:
        return False
    facts = facts_of(run)
    return not np.isnan(facts.entropy).all() or bool(np.isnan(facts.breaking).all())


@run_figure(
    "Initial entropy against breaking temperature",
    "Means that fall to the right show that uncertain facts break first; r leaves out the unbroken facts, which "
    "weakens it.",
    "Fastowski et al., Fig. 3",
    _has_scores,
)
def entropy_by_breaking_temperature(axes: Axes, run: FigureData) -> None:
    """Each fact by the temperature at which it breaks and the entropy of its greedy answer, with the mean of each
    temperature.
    """
    pearson = run.values["frs.entropy_vs_breaking.pearson_broken"].value
    draw_entropies(axes, facts_of(run))
    r = number(pearson, ".2f").replace("-", "−")
    correlation = f"r = {r} over broken facts" if np.isfinite(pearson) else "r undefined"
    axes.set_title(f"Initial entropy against breaking temperature\n({correlation})")
    axes.legend()


def draw_entropies(axes: Axes, facts: Facts) -> None:
    """Draw the entropy of the facts that break at each temperature: the mean with its standard error, and every fact.

    Unbroken facts are on the right. A fact with a NaN is left out.
    """
    h, t = facts.entropy, facts.breaking
    levels, labels, step = break_levels(t, facts.temperatures)
    x = np.where(np.isinf(t), levels[-1], t)
    jitter = np.random.default_rng(0).uniform(-0.18, 0.18, len(x)) * step
    many = len(h) > MANY
    # a colour lighter than the means, and without transparency: half as long in an SVG file
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgewidth": 0, "color": QUALITATIVE[5]}
    axes.plot(x + jitter, h, markersize=1.4 if many else 3.5, rasterized=many, label="one fact", **style)
    by_level = {level: values for level in levels if len(values := h[(x == level) & ~np.isnan(h)])}
    means = [values.mean() for values in by_level.values()]
    errors = [units_and_error(values)[1] for values in by_level.values()]
    label = "mean ± standard error"
    axes.errorbar(list(by_level), means, errors, fmt="D", color=RED, markersize=5, capsize=3, label=label)
    axes.set_xticks(levels, labels)
    axes.set(xlabel="breaking temperature", ylabel="initial entropy H (0 to 1)", ylim=(-0.02, 1.02))


@run_figure(
    "Robustness of every fact",
    "Robust facts are in the upper left. Facts in one row break at the same temperature and differ in entropy. Points "
    "are jittered within their row.",
    "Fastowski et al., Fig. 4",
    _has_scores,
)
def frs_by_entropy_and_breaking(axes: Axes, run: FigureData) -> None:
    """Each fact by its initial entropy and its breaking temperature, coloured by its score for the smallest d."""
    facts = facts_of(run)
    d = min(facts.scores)
    points = draw_plane(axes, facts, d)
    root(axes).colorbar(points, ax=axes, label=f"FRS (d = {d:g})")
    axes.set_title("Robustness of every fact")


def draw_plane(axes: Axes, facts: Facts, d: float) -> PathCollection:
    """Draw every fact in the plane of entropy and breaking temperature, coloured by its score for d; the points.

    A fact without a score (NaN) is left out.
    """
    h, t, score = facts.entropy, facts.breaking, facts.scores[d]
    levels, labels, step = break_levels(t, facts.temperatures)
    is_scored = ~np.isnan(score)
    y = np.where(np.isinf(t), levels[-1], t) + np.random.default_rng(0).uniform(-0.25, 0.25, len(t)) * step
    many = np.count_nonzero(is_scored) > MANY
    style = OUTLINE | {"s": 3 if many else 22, "rasterized": many} | ({"linewidths": 0.3} if many else {})
    style |= {"c": score[is_scored], "cmap": SEQUENTIAL, "vmin": 0, "vmax": 1}
    # clipped, each point takes half as much again in an SVG file
    points = axes.scatter(h[is_scored], y[is_scored], clip_on=False, **style)
    axes.set_yticks(levels, labels)
    axes.set(xlabel="initial entropy H (0 to 1)", ylabel="breaking temperature", xlim=(-0.02, 1.02))
    return points


@run_figure(
    "Question types among the most and the least robust facts",
    "A type above the dashed line is more frequent among the most robust facts than among the least robust.",
    "Fastowski et al., Fig. 5",
    lambda run: (
        "frs_types" in run.tables
        and any(run.tables["frs_types"]["type"].to_pylist())
        and cut_size(run.tables["frs_types"]) > 0
    ),
)
def question_types(axes: Axes, run: FigureData) -> None:
    """For each question type, the share of its facts at the two extremes that are among the most robust, with 95 %
    intervals.
    """
    table = run.tables["frs_types"]
    questions = dict(zip(table["type"].to_pylist(), table["questions"].to_pylist(), strict=True))
    shares, n = share_estimates(table), cut_size(table)
    finite = {name: share for name, share in shares.items() if np.isfinite(share.value)}
    value, errors = values_and_whiskers(finite.values())
    x = range(len(finite))
    axes.bar(x, value, 0.6, color=BLUE)
    axes.errorbar(x, value, np.nan_to_num(errors), fmt="none", ecolor="black", elinewidth=1.2, capsize=4)
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
    labels = [f"{QUESTION_TYPES.get(name, name or 'no type')}\nn = {questions[name]}" for name in finite]
    axes.set_xticks(x, labels, parse_math=False)
    axes.grid(visible=False, axis="x")
    axes.set(ylabel="share among the most robust, 95 % interval", ylim=(0, 1.02))
    axes.set_title(f"Question types among the {n} most and the {n} least robust facts")


@run_figure(
    "Mean score for each d",
    "A larger d makes initial entropy cost more; by default, unbroken facts score 1 for every d, so read the mean "
    "with their share.",
    "Fastowski et al., Fig. 10 to 12",
    lambda run: len(run.by_parameter(FRS)) > 1 and _has_scores(run),
)
def frs_by_d(axes: Axes, run: FigureData) -> None:
    """The mean Factual Robustness Score for each weight d of the entropy, with its 95 % interval."""
    scores, unbroken_share = run.by_parameter(FRS), run.values["frs.unbroken_share"].value
    weights = sorted(scores)
    value, errors = values_and_whiskers(scores[d] for d in weights)
    axes.errorbar(weights, value, errors, color=BLUE, marker="o", capsize=3, elinewidth=1)
    axes.axhline(unbroken_share, color=GREY, linestyle="--", linewidth=1)
    _note_line(axes, unbroken_share, f"{_percent(unbroken_share)} of the facts are unbroken")
    axes.set_xscale("log")
    axes.set_xticks(weights, [f"{d:g}" for d in weights])
    axes.minorticks_off()
    axes.set(xlabel="weight d of the entropy", ylabel="mean FRS, 95 % interval", ylim=(0, 1.02))
    axes.set_title("Mean score for each d")


@run_figure(
    "Distribution of the score",
    "One narrow peak shows facts of similar robustness, two peaks a robust and a fragile group; the area is the share "
    "of broken facts.",
    "Fastowski et al., Fig. 13",
    _has_scores,
)
def frs_density(axes: Axes, run: FigureData) -> None:
    """The density of the Factual Robustness Score over the broken facts, for each d."""
    draw_densities(axes, run.scores(), run.tables["frs"]["breaking_temperature"].to_numpy())


def draw_densities(axes: Axes, scores: Mapping[float, ArrayLike], breaking: ArrayLike) -> None:
    """Draw the density of the score of the broken facts for each d.

    The share of unbroken facts, which score alike by convention, is in the title: a smooth density cannot show a point
    mass.
    """
    from scipy.stats import gaussian_kde  # it takes half a second, which most commands need not spend

    t = np.asarray(breaking, dtype=float)
    x = np.linspace(0, 1, 401)
    dashes = cycle(["-", "--", "-.", ":"])
    for (d, values), colour, dash in zip(scores.items(), cycle(QUALITATIVE), dashes, strict=False):
        score = np.asarray(values, dtype=float)
        is_scored = ~np.isnan(score)
        broken = score[is_scored & np.isfinite(t)]
        if len(broken) > 2 and np.ptp(broken) > 1e-6:
            density = gaussian_kde(broken)(x) * len(broken) / is_scored.sum()
            axes.plot(x, density, color=colour, linestyle=dash, linewidth=1.8, label=f"d = {d:g}")
    axes.set(xlabel="FRS", ylabel="density of broken facts", xlim=(0, 1), ylim=(0, None))
    title = "Distribution of the Factual Robustness Score"
    if np.isinf(t).any():
        share = np.isinf(t).sum() / max(1, (~np.isnan(t)).sum())
        title += f"\n({_percent(share)} of facts are unbroken and not shown)"
    axes.set_title(title)
    if axes.get_lines():
        axes.legend()
    else:
        axes.text(0.5, 0.5, "too few broken facts for a density", transform=axes.transAxes, ha="center", color=GREY)


def _percent(share: float) -> str:
    return number(share, ".0%")


def break_levels(breaking: Floats, temperatures: ArrayLike) -> tuple[Floats, list[str], float]:
    """Return the positions of facts on the axis of t_b, the labels, and the step; unbroken facts, if any, lie beyond
    the grid.
    """
    levels = np.asarray(temperatures, dtype=float)
    step = float(np.diff(levels).min()) if len(levels) > 1 else 1.0
    labels = [f"{level:.1f}" if level == round(level, 1) else f"{level:g}" for level in levels]
    if np.isinf(breaking).any():
        return np.append(levels, levels[-1] + 1.5 * step), [*labels, "none"], step
    return levels, labels, step


def _note_line(axes: Axes, height: float, words: str) -> None:
    """Write the meaning of a horizontal line at its right end."""
    axes.text(0.99, height + 0.015, words, transform=axes.get_yaxis_transform(), ha="right", color=GREY, fontsize=9)


WEIGHTS = (1.0, 2.0, 5.0, 10.0, 50.0)
"""Weights d of the paper."""
HOTTEST = 2.0
"""Last temperature of the paper's grid."""


def draw_surface(axes: Axes, d: float, formula: str = "frs") -> None:
    """Draw an FRS surface: the score, or f (Eq. 3), over entropy and breaking temperature for one d, from above."""
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
        draw_surface(panel, d, formula)
        panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    fig.colorbar(grid[0].collections[0], ax=fig.axes, label=label)
    fig.supxlabel("initial entropy H (0 to 1)", fontsize=10)
    fig.supylabel("breaking temperature", fontsize=10)


@run_figure(
    "The score by entropy and breaking temperature",
    "Facts on a line between two colours have the same score; with a larger d, entropy outweighs the breaking "
    "temperature sooner.",
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
