"""Numbers and words that figures show, in figures.jsonl; tests/integration/report draws each of a run."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from findings_by_hand import findings_of
from golden import Golden
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, QuadMesh

from robust_eval.metric.agreement_metric import SPECS as OF_AGREEMENT
from robust_eval.metric.frs_specs import ACCURACY, FRS, SURVIVAL
from robust_eval.metric.metric_spec import MetricSpec, spec_of
from robust_eval.plot import certainty_figures, comparison_figures, frs_figures
from robust_eval.plot.figure_registry import registered
from robust_eval.plot.frs_figures import Facts, most_robust_first
from robust_eval.runs.figure_data import FigureData
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE

GOLDEN = Golden(Path(__file__).with_name("figures.jsonl"))
NAN, INF = math.nan, math.inf
MOST = math.log(5)
WIDE = [0.5, 1.0, 1.5]


def rounded(values: Any) -> Any:
    """Numbers with four decimals in lists; None for what is undefined or masked."""
    if isinstance(values, np.ma.MaskedArray):
        values = values.filled(NAN)
    if np.ndim(values):
        return [rounded(each) for each in values]
    return None if np.isnan(values) else round(float(values), 4) + 0.0


def of_collection(drawn: Collection) -> tuple[str, Any]:
    if isinstance(drawn, LineCollection):
        return "intervals", [rounded(segment) for segment in drawn.get_segments()]
    if isinstance(drawn, QuadMesh):
        table = drawn.get_array().filled(NAN)
        return "cells", [[*place, rounded(value)] for place, value in np.ndenumerate(table) if not np.isnan(value)]
    if isinstance(drawn, PathCollection):
        values = drawn.get_array()
        return "points", [rounded(drawn.get_offsets()), None if values is None else rounded(values)]
    return "band", rounded(np.unique([corner for path in drawn.get_paths() for corner in path.vertices], axis=0))


def of_axes(axes: Axes) -> dict[str, Any]:
    """What is drawn: curves of more than 50 points, which tests of statistics prove, are counted."""
    found: dict[str, Any] = {"title": axes.get_title(), "words": [text.get_text() for text in axes.texts]}
    lines = [rounded(line.get_xydata()) for line in axes.lines]
    found["lines"] = [line for line in lines if len(line) <= 50]
    found["curves"] = len(lines) - len(found["lines"])
    found["bars"] = [rounded([each.get_x(), each.get_y(), each.get_height()]) for each in axes.patches]
    found["images"] = [rounded(image.get_array()) for image in axes.images]
    legend = axes.get_legend()
    found["legend"] = [text.get_text() for text in legend.get_texts()] if legend else []
    for kind, values in map(of_collection, axes.collections):
        found.setdefault(kind, []).append(values)
    return {name: values for name, values in found.items() if values}


def estimates(entries: dict[str, list[float]]) -> dict[str, Estimate]:
    return {name: Estimate(*values) for name, values in entries.items()}


def run_of(case: dict[str, Any]) -> FigureData:
    """The run that a case describes by its estimates, its curves and its tables."""
    curves = {
        name: {float(t): estimate for t, estimate in estimates(curve).items()}
        for name, curve in case.get("curves", {}).items()
    }
    return findings_of(estimates(case.get("values", {})), curves, **case.get("tables", {}))


def on_axes(draw: Callable[..., Any], *arguments: Any) -> Callable[[Axes], Any]:
    return lambda axes: draw(axes, *arguments)


CURVES = {
    "small": {1.0: Estimate(0.25, 0.125, 0.5), 0.5: Estimate(0.75, 0.5, 0.875)},
    "large": {0.5: Estimate(1.0, 1.0, 1.0), 2.0: Estimate(0.5, 0.25, 0.625)},
}
GAPS = {"small": {0.5: Estimate(0.75, 0.5, 1.0), 1.0: Estimate(NAN), 2.0: Estimate(0.25)}, "none": {0.5: Estimate(NAN)}}
AT_THE_VALUE = {
    0.5: Estimate(0.5, 0.5, 0.5),
    1.0: Estimate(1.0, 0.75, 1.0),
    1.5: Estimate(0.3, 0.30000000000000004, 0.4),
    2.0: Estimate(0.3, 0.2, 0.29999999999999993),
}
BY_DATASET = {
    "small": {"facts": Estimate(0.5, -4, 0.75), "physics": Estimate(0.25)},
    "large": {"physics": Estimate(0)},
}
SEVERAL = {
    "small": Facts(np.array([0.1, 0.4, 0.8]), np.array([INF, 1.0, 0.5]), {1.0: np.array([1, 0.6, 0.3])}, WIDE),
    "large": Facts(np.array([0.2, 0.5]), np.array([1.5, 0.5]), {1.0: np.array([0.7, 0.4])}, WIDE),
}
REGISTERED = {entry.name: entry for entry in registered()}
FIGURES: dict[str, Callable[[Axes], Any]] = {
    "entropies of models stand side by side on common bins": on_axes(
        certainty_figures.entropy_histogram, {"small": [0.0, 0.1, MOST / 2, MOST, NAN], "large": [MOST]}, MOST
    ),
    "right and wrong replies stand on one another as shares of all": on_axes(
        frs_figures.certainty_bins, [0.1, 0.9], [1, 5], [3, 1]
    ),
    "accuracies of runs have their intervals": on_axes(comparison_figures.by_temperature, CURVES, ACCURACY, "On facts"),
    "scores of runs for each d stand beside one another": on_axes(
        comparison_figures.by_number,
        {
            "small": {5.0: Estimate(0.5, 0.25, 0.75), 1.0: Estimate(0.625, 0.5, 0.75)},
            "large": {1.0: Estimate(0.75, 0.5, 0.875), 10.0: Estimate(0.25, 0.125, 0.375)},
        },
        FRS,
        "Scores",
    ),
    "survival of runs starts at one": on_axes(comparison_figures.by_temperature, CURVES, SURVIVAL, "Unbroken facts"),
    "a bound beyond its value by rounding is drawn at the value": on_axes(
        comparison_figures.by_temperature, {"small": AT_THE_VALUE}, ACCURACY, "Accuracy"
    ),
    "undefined scores leave a gap": on_axes(comparison_figures.by_number, GAPS, FRS, "Gaps"),
    "undefined accuracies leave a gap": on_axes(comparison_figures.by_temperature, GAPS, ACCURACY, "Gaps"),
    "undefined survival leaves a gap": on_axes(comparison_figures.by_temperature, GAPS, SURVIVAL, "Gaps"),
    "differences come from the top with their intervals beside zero": on_axes(
        comparison_figures.intervals,
        {"a − b": Estimate(0.25, 0.125, 0.5), "a − $c$": Estimate(-0.5, -0.75, 0.25)},
        "first minus second: mean FRS",
        "Pairs",
        True,
    ),
    "a metric is drawn for each data set, beside that of chance where it knows it": on_axes(
        comparison_figures.by_dataset, BY_DATASET, spec_of("agreement.kappa", OF_AGREEMENT), "By data set"
    ),
    "a metric without a value by chance has no line for it": on_axes(
        comparison_figures.by_dataset, BY_DATASET, MetricSpec("mine", "mine", limits=SHARE), "By data set"
    ),
    "types of runs stand beside one another": on_axes(
        comparison_figures.most_robust_by_type,
        {
            "small": {"HUM": Estimate(0.25, 0.125, 0.5), "NUM": Estimate(0.75, 0.5, 0.875)},
            "large": {"NUM": Estimate(0.5, 0.25, 0.625), "": Estimate(NAN)},
        },
        "Types",
    ),
    "each measurement has a panel of its breaking temperatures": on_axes(
        comparison_figures.entropy_by_breaking_temperature, SEVERAL, "title"
    ),
    "facts of all measurements have one scale of colours": on_axes(
        comparison_figures.frs_by_entropy_and_breaking, SEVERAL, 1.0, "title"
    ),
    "replies are shares of those of their own run": on_axes(
        comparison_figures.draw_panels,
        {"a": ([0.8], [1], [1]), "b": ([0.9], [1], [3])},
        lambda panel, each: frs_figures.certainty_bins(panel, *each),
        "title",
    ),
    "maps of facts have one height": on_axes(
        comparison_figures.accuracy_by_fact,
        {name: most_robust_first(np.full((n, 3), 0.5), np.full(n, 1.0), WIDE) for name, n in (("a", 2), ("b", 3))},
        "title",
    ),
}


@pytest.mark.parametrize("case", GOLDEN.cases, ids=lambda case: case["about"])
def test_a_figure_shows_the_numbers_that_it_is_given(case: dict[str, Any]):
    figure = plt.figure()
    if "draw" in case:
        REGISTERED[case["draw"]].draw(figure.subplots(), run_of(case))
    else:
        FIGURES[case["about"]](figure.subplots())
    figure.canvas.draw()
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    panels = [of_axes(axes) for axes in figure.axes if axes.get_label() != "<colorbar>"]
    GOLDEN.check(case, drawn=panels, legends=legends)
    plt.close(figure)


OF_OWN_METRICS = {"figures_by_temperature"}
"""Drawn in tests/integration/report/test_own_metric.py."""


def test_every_figure_of_a_run_and_every_comparison_is_in_the_file():
    drawn = {case["draw"] for case in GOLDEN.cases if "draw" in case}
    assert {entry.name for entry in registered() if entry.allowed} == drawn | OF_OWN_METRICS
    assert [case["about"] for case in GOLDEN.cases if "draw" not in case] == [*FIGURES]
