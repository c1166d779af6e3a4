"""Figures of uncertainty against right and wrong answers."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from robust_eval.metric.uncertainty_metric import SCORES
from robust_eval.plot.colours import BLUE, GREY, INKS, QUALITATIVE, RED
from robust_eval.plot.figure_registry import run_figure
from robust_eval.plot.style import legend_outside, panels
from robust_eval.runs.figure_data import FigureData
from robust_eval.stats.calibration import calibration_bins
from robust_eval.stats.interval import Floats, wilson
from robust_eval.stats.uncertainty import risk_coverage

_BINS = 10
_DASHES = ("-", "--", "-.", (0, (5, 1)), (0, (1, 1)))
_MARKERS = ("o", "s")


def _judged(run: FigureData) -> dict[str, tuple[Floats, Floats]]:
    """Return each uncertainty score of a run and the verdicts, on the questions that have both."""
    if "uncertainty" not in run.tables:
        return {}
    table = run.tables["uncertainty"]
    correct, judged = table["correct"].to_numpy(), {}
    for name in (name for name in SCORES if name in table.column_names):
        values = table[name].to_numpy()
        both = ~np.isnan(values) & ~np.isnan(correct)
        if 0 < correct[both].sum() < both.sum():
            judged[name] = values[both], correct[both]
    return judged


def _probabilities(run: FigureData) -> dict[str, tuple[Floats, Floats]]:
    """Return the uncertainty scores that have a probability, as this probability, with the verdicts."""
    return {
        name: (to_probability(values), correct)
        for name, (values, correct) in _judged(run).items()
        if (to_probability := SCORES[name].probability)
    }


@run_figure(
    "Risk against coverage",
    "A curve near the oracle ranks nearly all errors last; one along the dotted line (random order) is uninformative.",
    "risk-coverage curve (El-Yaniv & Wiener), not in the papers",
    lambda run: bool(_judged(run)),
)
def risk_by_coverage(axes: Axes, run: FigureData) -> None:
    """The share of wrong answers among the most certain ones, for each share of answers accepted, by uncertainty
    score.
    """
    judged = _judged(run)
    for index, (name, (values, correct)) in enumerate(judged.items()):
        curve = risk_coverage(values, correct)
        (line,) = axes.plot(curve.coverage, curve.risk, color=QUALITATIVE[index], linestyle=_DASHES[index])
        line.set_label(f"{SCORES[name].label} (AURC {curve.area:.3f})")
    correct = next(iter(judged.values()))[1]
    oracle = risk_coverage(-correct, correct)
    axes.plot(oracle.coverage, oracle.risk, color=GREY, linewidth=1, label="oracle")
    axes.axhline(1 - correct.mean(), color=GREY, linestyle=":", linewidth=1, label="random order")
    axes.set(xlabel="coverage: share of answers accepted", ylabel="risk: share of these that are wrong")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    sizes = sorted({len(verdicts) for _, verdicts in judged.values()})
    axes.set_title(f"Risk against coverage (n = {' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))})")
    axes.legend()


@run_figure(
    "Reliability diagram",
    "Points on the diagonal are calibrated; points below it are overconfident.",
    "reliability diagram (DeGroot & Fienberg), not in the papers",
    lambda run: bool(_probabilities(run)),
)
def reliability_diagram(axes: Axes, run: FigureData) -> None:
    """The share of right answers by their probability, in bins of equally many questions, with 95 % intervals."""
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="calibrated")
    for index, (name, (probability, correct)) in enumerate(_probabilities(run).items()):
        bins = calibration_bins(probability, correct)
        bounds = [wilson(share * n, n) for share, n in zip(bins.accuracy.tolist(), bins.number.tolist(), strict=True)]
        whiskers = np.maximum(np.abs(np.array(bounds).T - bins.accuracy), 0)
        label = f"{SCORES[name].confidence}, n = {len(correct)}"
        style: dict[str, Any] = {"fmt": _MARKERS[index], "color": QUALITATIVE[index], "label": label}
        axes.errorbar(bins.probability, bins.accuracy, yerr=whiskers, capsize=3, **style)
    axes.set(xlabel="mean probability", ylabel="share of right answers, 95 % interval", xlim=(0, 1), ylim=(0, 1.02))
    axes.set_title("Reliability diagram")
    axes.legend()


@run_figure(
    "Uncertainty of right and wrong answers",
    "The score separates right and wrong answers if the wrong ones (hatched) are on the right; wrong ones on the left "
    "are confident errors.",
    "distributions of uncertainty scores, not in the papers",
    lambda run: bool(_judged(run)),
)
def uncertainty_of_right_and_wrong(axes: Axes, run: FigureData) -> None:
    """Right and wrong answers by their rank in each uncertainty score, in ten bins; ties share a rank, and each
    distribution sums to 1.
    """
    judged = _judged(run)
    fig, grid = panels(axes, len(judged), columns=3, width=2.4, height=2.0)
    for panel, (name, (values, correct)) in zip(grid, judged.items(), strict=True):
        level, number = np.unique(values, return_inverse=True, return_counts=True)[1:]
        place = ((np.cumsum(number) - number / 2)[level] * _BINS / len(values)).astype(int)
        for side, (verdict, colour, label) in enumerate(((1, BLUE, "right"), (0, RED, "wrong"))):
            share = np.bincount(place[correct == verdict], minlength=_BINS) / np.count_nonzero(correct == verdict)
            start = (np.arange(_BINS) + 0.05 + 0.45 * side) / _BINS
            bars = panel.bar(start, share, 0.45 / _BINS, align="edge", color=colour, linewidth=0, label=label)
            for bar in bars if side else ():
                bar.set(hatch="///", edgecolor=INKS[1])
        panel.set(xlim=(0, 1))
        panel.set_title(SCORES[name].label, fontsize=10)
        panel.grid(visible=False, axis="x")
    fig.supxlabel("rank by uncertainty (1: the least certain answer)", fontsize=11)
    fig.supylabel("share of right or wrong answers", fontsize=11)
    fig.suptitle("Uncertainty of right and wrong answers", fontsize=12)
    legend_outside(fig, *grid[0].get_legend_handles_labels())
