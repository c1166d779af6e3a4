"""Figures of the Factual Robustness Score (Fastowski et al., Fig. 1, 3, 4, 5 and 10 to 13; a survival curve beyond)."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from numpy.typing import ArrayLike, NDArray

from robust_eval.metric.estimate import Estimate
from robust_eval.plot.colours import BLUE, GREY, QUALITATIVE, RED, SEQUENTIAL
from robust_eval.plot.style import MANY, OUTLINE, band, legend_below, root
from robust_eval.question import QUESTION_TYPES
from robust_eval.runtime.text import number


def accuracy_by_temperature(axes: Axes, accuracy: Mapping[float, Estimate]) -> Axes:
    """Draw the share of right replies at each temperature, with 95 % intervals (Fig. 1).

    Parameters
    ----------
    axes
        Where to draw.
    accuracy
        By temperature, each in [0, 1].

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> curve = {0.2: Estimate(0.9, 0.8, 1.0), 1.0: Estimate(0.4, 0.3, 0.5)}
    >>> accuracy_by_temperature(axes, curve).get_lines()[0].get_ydata().tolist()
    [0.9, 0.4]
    >>> plt.close(figure)
    """
    temperatures = np.array(sorted(accuracy))
    value, low, high = np.array([accuracy[t] for t in temperatures]).T
    axes.fill_between(temperatures, low, high, **band(BLUE), label="95 % interval")
    axes.plot(temperatures, value, color=BLUE, marker="o", label="mean over kept questions")
    axes.set(xlabel="temperature t", ylabel="accuracy (share of right replies)", ylim=(0, 1.02))
    _temperature_ticks(axes, temperatures)
    axes.set_title("Accuracy against temperature")
    legend_below(axes)
    return axes


def survival(axes: Axes, holding: Mapping[float, Estimate]) -> Axes:
    """Draw the Kaplan-Meier curve P(t_b > t): the share of facts that hold beyond each temperature, with 95 %
    intervals.

    All unbroken facts are censored at the last temperature, so the estimate is that share. A break is only known to lie
    between two temperatures of the grid; a step stands where it was seen.

    Parameters
    ----------
    axes
        Where to draw.
    holding
        By temperature, the share of facts that are not broken there or before, in [0, 1].

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> survival(axes, {0.5: Estimate(0.75), 1.0: Estimate(0.25)}).get_lines()[0].get_ydata().tolist()
    [1.0, 0.75, 0.25]
    >>> plt.close(figure)
    """
    temperatures = sorted(holding)
    at = np.array([0.0, *temperatures])
    value, low, high = np.array([(1.0, 1.0, 1.0), *(holding[t] for t in temperatures)]).T
    axes.fill_between(at, low, high, step="post", **band(BLUE), label="95 % interval")
    axes.step(at, value, where="post", color=BLUE, label="facts that hold")
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
    _note_line(axes, 0.5, "half of the facts")
    axes.set(xlabel="temperature t", ylabel="share of facts unbroken beyond t", ylim=(0, 1.02), xlim=(0, None))
    _temperature_ticks(axes, np.array(temperatures))
    axes.set_title("Facts that hold")
    legend_below(axes)
    return axes


def entropy_by_breaking_temperature(
    axes: Axes, entropy: ArrayLike, breaking: ArrayLike, temperatures: ArrayLike, pearson: float
) -> Axes:
    """Draw the initial entropy of the facts that break at each temperature: mean with its standard error, and every
    fact (Fig. 3). Unbroken facts stand apart on the right; they are not in Pearson's r.

    Parameters
    ----------
    axes
        Where to draw.
    entropy, breaking
        (n,) of each fact: H in [0, 1], and t_b on the grid, inf where unbroken. A fact with a NaN is left out.
    temperatures
        (T,) the grid, ascending.
    pearson
        r between the two over broken facts, for the title; NaN where undefined.
    """
    h, t = np.asarray(entropy, dtype=float), np.asarray(breaking, dtype=float)
    levels, labels, step = break_levels(t, temperatures)
    place = np.where(np.isinf(t), levels[-1], t)
    spread = np.random.default_rng(0).uniform(-0.18, 0.18, len(place)) * step
    many = len(h) > MANY
    axes.plot(
        place + spread,
        h,
        linestyle="none",
        marker="o",
        markersize=1.4 if many else 3.5,
        markeredgewidth=0,
        color=QUALITATIVE[5],  # lighter than the means, and without transparency half as long in an SVG file
        label="one fact",
        rasterized=many,
    )
    known = [h[(place == level) & ~np.isnan(h)] for level in levels]
    shown = [(level, values) for level, values in zip(levels, known, strict=True) if len(values)]
    axes.errorbar(
        [level for level, _ in shown],
        [values.mean() for _, values in shown],
        [standard_error(values) for _, values in shown],
        fmt="D",
        color=RED,
        markersize=5,
        capsize=3,
        label="mean ± standard error",
    )
    axes.set_xticks(levels, labels)
    axes.set(xlabel="breaking temperature $t_b$", ylabel="initial entropy H (0 to 1)", ylim=(-0.02, 1.02))
    r = number(pearson, ".2f").replace("-", "−")
    correlation = f"r = {r} over broken facts" if np.isfinite(pearson) else "r undefined"
    axes.set_title(f"Initial entropy against breaking temperature\n({correlation})")
    legend_below(axes, enlarged=2.5 if many else 1)
    return axes


def frs_by_entropy_and_breaking(
    axes: Axes, entropy: ArrayLike, breaking: ArrayLike, scores: ArrayLike, temperatures: ArrayLike, d: float
) -> Axes:
    """Draw every fact in the plane of entropy and breaking temperature, coloured by its score (Fig. 4).

    Parameters
    ----------
    axes
        Where to draw.
    entropy, breaking, scores
        (n,) of each fact: H in [0, 1], t_b on the grid (inf where unbroken), FRS in [0, 1]. A fact without a score
        (NaN) is left out.
    temperatures
        (T,) the grid, ascending.
    d
        The weight of the entropy in the score.
    """
    points = facts_in_plane(axes, entropy, breaking, scores, temperatures)
    root(axes).colorbar(points, ax=axes, label=f"FRS (d = {d:g})")
    axes.set_title("Robustness of every fact")
    return axes


def facts_in_plane(
    axes: Axes, entropy: ArrayLike, breaking: ArrayLike, scores: ArrayLike, temperatures: ArrayLike
) -> PathCollection:
    """Draw what :func:`frs_by_entropy_and_breaking` does but for the bar of colours, and return the points."""
    h, t, score = (np.asarray(values, dtype=float) for values in (entropy, breaking, scores))
    levels, labels, step = break_levels(t, temperatures)
    known = ~np.isnan(score)
    place = np.where(np.isinf(t), levels[-1], t) + np.random.default_rng(0).uniform(-0.25, 0.25, len(t)) * step
    many = np.count_nonzero(known) > MANY
    points = axes.scatter(
        h[known],
        place[known],
        c=score[known],
        cmap=SEQUENTIAL,
        vmin=0,
        vmax=1,
        s=3 if many else 22,
        rasterized=many,
        **OUTLINE | ({"linewidths": 0.3} if many else {}),
        clip_on=False,  # clipped, each point takes half as much again in an SVG file
    )
    axes.set_yticks(levels, labels)
    axes.set(xlabel="initial entropy H (0 to 1)", ylabel="breaking temperature $t_b$", xlim=(-0.02, 1.02))
    return points


def most_robust_by_type(axes: Axes, shares: Mapping[str, Estimate], questions: Mapping[str, int], n: int) -> Axes:
    """Draw the share of each question type among the most robust facts, out of the most and the least robust (Fig. 5).

    Parameters
    ----------
    axes
        Where to draw.
    shares
        By type, in [0, 1], with its 95 % interval; a type that is among neither (NaN) is not drawn.
    questions
        How many facts of each type there are.
    n
        How many facts were taken from either end.
    """
    drawn = {name: share for name, share in shares.items() if np.isfinite(share.value)}
    value, low, high = np.array(list(drawn.values())).reshape(-1, 3).T
    spread = np.nan_to_num(np.maximum([value - low, high - value], 0))
    places = range(len(drawn))
    axes.bar(places, value, 0.6, color=BLUE)
    axes.errorbar(places, value, spread, fmt="none", ecolor="black", elinewidth=1.2, capsize=4)
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=1)
    labels = [f"{QUESTION_TYPES.get(name, name or 'no type')}\nn = {questions[name]}" for name in drawn]
    axes.set_xticks(places, labels, parse_math=False)
    axes.grid(visible=False, axis="x")
    axes.set(ylabel="share among the most robust, 95 % interval", ylim=(0, 1.02))
    axes.set_title(f"Question types among the {n} most and the {n} least robust facts")
    return axes


def frs_by_d(axes: Axes, scores: Mapping[float, Estimate], unbroken_share: float) -> Axes:
    """Mean FRS for each weight d of the entropy, with 95 % intervals (Fig. 10 to 12).

    Parameters
    ----------
    axes
        Where to draw.
    scores
        By d, each in [0, 1].
    unbroken_share
        Of the facts, in [0, 1]: they score 1 for every d, so no mean is read without it.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> frs_by_d(axes, {1.0: Estimate(0.7), 5.0: Estimate(0.6)}, 0.12).texts[0].get_text()
    '12 % of the facts are unbroken'
    >>> plt.close(figure)
    """
    weights = sorted(scores)
    value, low, high = np.array([scores[d] for d in weights]).T
    spread = np.maximum([value - low, high - value], 0)  # rounding may put a bound beyond the value
    axes.errorbar(weights, value, spread, color=BLUE, marker="o", capsize=3, elinewidth=1)
    axes.axhline(unbroken_share, color=GREY, linestyle="--", linewidth=1)
    _note_line(axes, unbroken_share, f"{_percent(unbroken_share)} of the facts are unbroken")
    axes.set_xscale("log")
    axes.set_xticks(weights, [f"{d:g}" for d in weights])
    axes.minorticks_off()
    axes.set(xlabel="weight d of the entropy", ylabel="mean FRS, 95 % interval", ylim=(0, 1.02))
    axes.set_title("Mean score for each d")
    return axes


def frs_density(axes: Axes, scores: Mapping[float, ArrayLike], breaking: ArrayLike) -> Axes:
    """Draw the distribution of the score over facts for each d (Fig. 13): density of the broken facts.

    The share of unbroken facts, which score alike by convention, is in the title: a smooth density cannot show a point
    mass.

    Parameters
    ----------
    axes
        Where to draw.
    scores
        By d, (n,) FRS of each fact in [0, 1]; NaN is left out.
    breaking
        (n,) t_b of each fact, inf where unbroken.
    """
    t = np.asarray(breaking, dtype=float)
    places = np.linspace(0, 1, 401)
    dashes = cycle(["-", "--", "-.", ":"])
    for (d, values), colour, dash in zip(scores.items(), cycle(QUALITATIVE), dashes, strict=False):
        score = np.asarray(values, dtype=float)
        known = ~np.isnan(score)
        broken = score[known & np.isfinite(t)]
        if len(broken) > 2 and np.ptp(broken) > 1e-6:
            density = _density(broken, places) * len(broken) / known.sum()
            axes.plot(places, density, color=colour, linestyle=dash, linewidth=1.8, label=f"d = {d:g}")
    axes.set(xlabel="FRS", ylabel="density of broken facts", xlim=(0, 1), ylim=(0, None))
    title = "Distribution of the Factual Robustness Score"
    if np.isinf(t).any():
        share = np.isinf(t).sum() / max(1, (~np.isnan(t)).sum())
        title += f"\n({_percent(share)} of facts are unbroken and not shown)"
    axes.set_title(title)
    if axes.get_lines():
        legend_below(axes, columns=5)
    else:
        axes.text(0.5, 0.5, "too few broken facts for a density", transform=axes.transAxes, ha="center", color=GREY)
    return axes


def _percent(share: float) -> str:
    return number(share, ".0%").replace("%", " %")


def standard_error(values: NDArray[np.float64]) -> float:
    """Standard error of a mean; NaN for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _density(values: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gaussian kernel density; many values are first counted in steps far finer than the kernel is wide."""
    if len(values) <= MANY:
        from scipy.stats import gaussian_kde  # it takes half a second, which most runs need not spend

        return np.asarray(gaussian_kde(values)(places))
    counts, edges = np.histogram(values, bins=4000, range=(0, 1))
    middle = (edges[1:] + edges[:-1]) / 2
    some = counts > 0
    width = values.std(ddof=1) * len(values) ** -0.2  # Scott's rule
    kernel = np.exp(-0.5 * ((places[:, None] - middle[some]) / width) ** 2)
    return np.asarray(kernel @ counts[some] / (len(values) * width * np.sqrt(2 * np.pi)))


def break_levels(
    breaking: NDArray[np.float64], temperatures: ArrayLike
) -> tuple[NDArray[np.float64], list[str], float]:
    """Return where facts stand on the axis of t_b, the labels, and the step; unbroken facts, if any,
    beyond the grid.
    """
    levels = np.asarray(temperatures, dtype=float)
    step = float(np.diff(levels).min()) if len(levels) > 1 else 1.0
    labels = [f"{level:.1f}" if level == round(level, 1) else f"{level:g}" for level in levels]
    if np.isinf(breaking).any():
        return np.append(levels, levels[-1] + 1.5 * step), [*labels, "none"], step
    return levels, labels, step


def _note_line(axes: Axes, height: float, words: str) -> None:
    """Say at its right end what a horizontal line means."""
    axes.text(0.99, height + 0.015, words, transform=axes.get_yaxis_transform(), ha="right", color=GREY, fontsize=9)


def _temperature_ticks(axes: Axes, temperatures: NDArray[np.float64]) -> None:
    """Set ticks at the temperatures that were asked, where these are few."""
    if len(temperatures) <= 12:
        axes.set_xticks(temperatures)
