"""Gallery of a comparison: figures, each with its caption and reading."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from robust_eval.answer import at_temperature, temperatures_of
from robust_eval.metric.certainty_metric import ENTROPY, ERROR_RATE
from robust_eval.metric.frs_specs import ACCURACY, FRS
from robust_eval.metric.frs_specs import ENTROPY as INITIAL_ENTROPY
from robust_eval.metric.frs_tables import share_estimates
from robust_eval.metric.metric_spec import DATASETS, STEPS, MetricSpec, nearest_to_one, point
from robust_eval.plot import certainty_figures as certainty
from robust_eval.plot import comparison_figures as plot
from robust_eval.plot.figure_files import save
from robust_eval.plot.figure_registry import registered
from robust_eval.plot.frs_figures import FactAccuracy, Facts, certainty_bins, draw_densities, most_robust_first
from robust_eval.plot.style import figure
from robust_eval.question import PHYSICS_CATEGORIES
from robust_eval.report.comparison_summary import SHARED_LETTER, letters
from robust_eval.report.comparison_tables import best_runs
from robust_eval.runs.comparison import Comparison
from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.stats.estimate import Estimate

MAX_PAIRS = 20
"""Maximum number of pairs in one figure."""
MAX_PANELS = 12
"""Maximum number of panels in one figure."""
MAX_MAPS = 4
"""Maximum number of heat maps of facts in one figure."""

Runs = Mapping[str, FinishedRun]
"""Measurements on a data set, by label."""


class SavedComparisonFigure(NamedTuple):
    """Comparison figure with its ``caption``, ``reading`` (an explanation with the source), and SVG file."""

    caption: str
    reading: str
    svg: Path


class Drawing(NamedTuple):
    """Comparison figure to be drawn: the name of its ``file`` without suffix, the similar figure of a single run
    (``like``), and the function that draws it on the axes of a figure. ``reading`` explains a figure without a similar
    one.
    """

    file: str
    like: str
    caption: str
    draw: Callable[[Axes], object]
    reading: str = ""


def save_comparison_figures(compared: Comparison, folder: Path) -> list[SavedComparisonFigure]:
    """Draw the comparison's figures that the measurements on each data set allow."""
    folder.mkdir(parents=True, exist_ok=True)
    saved: list[SavedComparisonFigure] = []
    readings = {entry.name: f"{entry.interpretation} ({entry.source})" for entry in registered()}
    for drawing in _drawings(compared):
        file = folder / drawing.file
        while file.with_suffix(".svg") in [each.svg for each in saved]:  # another metric calls a figure the same
            file = file.with_name(f"{file.name}_")
        with figure() as (canvas, axes):
            drawing.draw(axes)
            svg = save(canvas, file)
        saved.append(SavedComparisonFigure(drawing.caption, readings.get(drawing.like, drawing.reading), svg))
    return saved


def _drawings(compared: Comparison) -> Iterator[Drawing]:
    """Yield all figures of a comparison, in the order of the page."""
    yield from _main_metric(compared)
    datasets = list(dict.fromkeys(compared.measurement_labels.datasets))
    ends = ["", *(f"_{number}" for number in range(2, len(datasets) + 1))]
    for dataset, end in zip(datasets, ends, strict=True):
        yield from _fact_maps(dict(compared.on(dataset)), dataset, end)
    for dataset, end in zip(datasets, ends, strict=True):
        yield from _curves(compared, dataset, end)
    if compared.types:
        ranked = [(pooled.subject, share_estimates(pooled.shares)) for pooled in compared.types]
        shares = {subject: estimates for subject, estimates in ranked if estimates}
        caption = "Question types among the most robust facts"
        if shares:
            draw = _bind(plot.most_robust_by_type, shares, caption)
            yield Drawing("most_robust_by_type", "question_types", caption, draw)
    yield from _differences(compared)
    yield from _by_dataset(compared)
    for dataset, end in zip(datasets, ends, strict=True):
        runs = dict(compared.on(dataset))
        yield from _reply_certainty(runs, dataset, end)
        yield from _facts(runs, dataset, end)
        yield from _entropies(runs, dataset, end)


def _main_metric(compared: Comparison) -> Iterator[Drawing]:
    """Yield the figure that compares the headline metric of the measurements that have it (of many, the best), with the
    letters of their significance groups.
    """
    name = next((pair.metric for pair in compared.pairs if pair.metric), "")
    groups, labels = letters(compared), compared.measurement_labels.full
    measured = [index for index, run in enumerate(compared.measurements) if name in run.metrics]
    if len(measured) < 2:
        return
    estimates = {
        f"{labels[index]} ({groups[index]})" if groups else labels[index]: compared.measurements[index].metrics[name]
        for index in best_runs(compared, compared.measurements, name)
        if index in measured
    }
    label = compared.words(name)
    best = f", the best {len(estimates)} of {len(measured)}" if len(estimates) < len(measured) else ""
    caption = f"{label[:1].upper()}{label[1:]}, by run{best}"
    reading = f"Each run with its 95 % interval.{f' {SHARED_LETTER}' if groups else ''}"
    yield Drawing("headline", "", caption, _bind(plot.intervals, estimates, label, caption), reading=reading)


def _fact_maps(runs: Runs, dataset: str, end: str) -> Iterator[Drawing]:
    """Yield the comparison figure of the accuracy of every fact at each temperature, with a panel for each run; of runs
    on several grids, only those on the first have one.
    """
    maps: dict[str, FactAccuracy] = {}
    for label, run in runs.items():
        grid, breaking = run.breaking_temperatures()
        names = [point(ACCURACY.name, t) for t in grid]
        if grid and not np.isnan(breaking).all() and {*names} <= {*run.question_metrics}:
            accuracy = np.column_stack([run.values(name) for name in names])
            maps[label] = most_robust_first(accuracy, breaking, grid)
    first = next(iter(maps.values()), None)
    maps = {
        f"{label} (n = {each.total:,})": each
        for label, each in maps.items()
        if first and np.array_equal(each.temperatures, first.temperatures)
    }
    if len(maps) > 1:
        panels, suffix = _limit_panels(maps, MAX_MAPS)
        title = f"Accuracy of every fact, data set {dataset}{suffix}"
        draw = _bind(plot.accuracy_by_fact, panels, title)
        yield Drawing(f"accuracy_by_fact{end}", "accuracy_by_fact", f"{title}: {', '.join(panels)}", draw)


def _curves(compared: Comparison, dataset: str, end: str) -> Iterator[Drawing]:
    """Yield a figure for each metric declared for comparison along a number or a temperature: mean scores by d,
    accuracies, survival curves.
    """
    for spec, view in compared.views:
        curves = {label: curve for label, run in compared.on(dataset) if (curve := run.by_parameter(spec))}
        is_drawn = len({*chain(*curves.values())}) > 1 if spec.numbered else curves  # a single d needs no figure
        if is_drawn and view.kind != DATASETS:
            along = "" if spec.numbered or view.kind == STEPS else " against temperature"
            caption = f"{view.caption or spec.title + along}, {dataset}"
            name = view.file or _file(spec, spec.number if spec.numbered else "temperature")
            draw = plot.by_number if spec.numbered else plot.by_temperature
            yield Drawing(f"{name}{end}", name, caption, _bind(draw, curves, spec, caption), reading=spec.explained)


def _by_dataset(compared: Comparison) -> Iterator[Drawing]:
    """Yield a figure for each metric declared for comparison by data set, at the temperature nearest to 1: κ and α."""
    for spec, view in compared.views:
        estimates: dict[str, dict[str, Estimate]] = {}
        for dataset in dict.fromkeys(compared.measurement_labels.datasets):
            for subject, run in compared.on(dataset):
                if names := spec.covered_names(run.metrics):
                    estimates.setdefault(subject, {})[dataset] = run.metrics[names[0]]
        if estimates and view.kind == DATASETS:
            name, caption = view.file or _file(spec, "dataset"), view.caption or f"{spec.title} by data set"
            yield Drawing(name, name, caption, _bind(plot.by_dataset, estimates, spec, caption), reading=spec.explained)


def _file(spec: MetricSpec, along: str) -> str:
    """Return a name for the files of a comparison figure, without characters that are unsafe in file names."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', spec.name.removesuffix('{}'))}_by_{along}"


def _differences(compared: Comparison) -> Iterator[Drawing]:
    """Yield the comparison figures of the paired differences of each headline metric; of many pairs the largest."""
    names = compared.measurement_labels.full
    for number, name in enumerate(dict.fromkeys(pair.metric for pair in compared.pairs if pair.metric), start=1):
        pairs = [pair for pair in compared.pairs if pair.metric == name and pair.differences[name].n]
        if not pairs:
            continue
        largest = sorted(pairs, key=lambda pair: -abs(pair.differences[name].value))[:MAX_PAIRS]
        differences = {
            f"{names[pair.first]} − {names[pair.second]}": Estimate(*pair.differences[name][3:])
            for pair in pairs
            if pair in largest
        }
        label = compared.words(name)
        limited = f", the {len(largest)} largest of {len(pairs)}" if len(largest) < len(pairs) else ""
        caption = f"Paired differences: {label}{limited}"
        draw = _bind(plot.intervals, differences, f"first minus second: {label}", caption, True)
        yield Drawing(f"differences{f'_{number}' if number > 1 else ''}", "", caption, draw)


def _reply_certainty(runs: Runs, dataset: str, end: str) -> Iterator[Drawing]:
    """Yield the comparison figure of the certainty of right and wrong replies at the temperature nearest to 1, with a
    panel for each run (Fastowski et al., Fig. 2).
    """
    bins = {}
    for label, run in runs.items():
        if run.reply_certainty is not None and run.reply_certainty.num_rows:
            t = nearest_to_one(temperatures_of(run.reply_certainty))
            table = at_temperature(run.reply_certainty, t)
            columns = [table[name].to_numpy() for name in ("certainty_from", "right", "wrong")]
            bins[f"{label}, t = {t:g}"] = (columns[0], columns[1], columns[2])
    if len(bins) > 1:
        panels, suffix = _limit_panels(bins)
        caption = f"Certainty of right and wrong replies, {dataset}{suffix}"
        draw = _bind(plot.draw_panels, panels, lambda panel, each: certainty_bins(panel, *each), caption)
        yield Drawing(f"reply_certainty{end}", "reply_certainty_by_temperature", caption, draw)


def _facts(runs: Runs, dataset: str, end: str) -> Iterator[Drawing]:
    """Yield the figures that compare every fact by entropy and breaking temperature, and the distributions of the
    scores, with a panel for each run (Fastowski et al., Fig. 3, 4 and 13); of runs on several grids, only those on the
    first have one.
    """
    facts: dict[str, Facts] = {}
    for label, run in runs.items():
        grid, breaking = run.breaking_temperatures()
        scores = {d: run.values(name) for d, name in run.by_number(FRS).items()}
        if grid and scores and INITIAL_ENTROPY.name in run.question_metrics:
            facts[label] = Facts(run.values(INITIAL_ENTROPY.name), breaking, scores, grid)
    first = next(iter(facts.values()), None)
    facts = {label: each for label, each in facts.items() if first and each.temperatures == first.temperatures}
    if first is None or len(facts) < 2:
        return
    panels, suffix = _limit_panels(facts)
    common = [d for d in first.scores if all(d in each.scores for each in panels.values())]
    where = f"{dataset}{suffix}"

    def drawing(name: str, caption: str, draw: Callable[..., object], *arguments: Any, title: str = "") -> Drawing:
        return Drawing(f"{name}{end}", name, caption, _bind(draw, panels, *arguments, title or caption))

    yield drawing(
        "entropy_by_breaking_temperature",
        f"Initial entropy against breaking temperature, {where}",
        plot.entropy_by_breaking_temperature,
    )
    if common:
        caption, draw = f"Robustness of every fact, {where}", plot.frs_by_entropy_and_breaking
        yield drawing("frs_by_entropy_and_breaking", caption, draw, common[0])
    title = f"Distribution of the score of the broken facts, {where}"
    caption = f"Distribution of the score, {where}"

    def draw_scores(panel: Axes, each: Facts) -> None:
        draw_densities(panel, each.scores, each.breaking)

    yield drawing("frs_density", caption, plot.draw_panels, draw_scores, title=title)


def _entropies(runs: Runs, dataset: str, end: str) -> Iterator[Drawing]:
    """Yield the figures that compare the entropies of the answers on common bins, and the error rates by entropy with a
    panel for each run, over all questions and by category, at the temperature nearest to 1 (Reganova & Steinbach, Fig.
    1 to 5).
    """
    entropies, errors, categories = {}, {}, {}
    for label, run in runs.items():
        if curve := run.curve(ENTROPY.name):
            t = nearest_to_one(curve)
            entropies[label] = run.values(point(ENTROPY.name, t))
            error = point(ERROR_RATE.name, t)
            if error in run.question_metrics and not np.isnan(run.values(error)).all():
                errors[label] = run.values(error)
                categories[label] = run.questions["category"].to_pylist()
    max_entropy = max((np.nanmax(values, initial=0) for values in entropies.values()), default=0)
    if max_entropy <= 0:
        return
    caption = f"Entropy of the answers, {dataset}"
    draw = _bind(certainty.entropy_histogram, entropies, max_entropy)
    yield Drawing(f"answer_entropy{end}", "answer_entropy", caption, draw)
    if len(errors) < 2:
        return
    selected, suffix = _limit_panels(errors)
    entropy = np.concatenate([entropies[label] for label in selected])
    rates = np.concatenate(list(selected.values()))
    labels = [label for label, values in selected.items() for _ in values]
    draw = _bind(certainty.by_category, entropy, rates, labels, max_entropy)
    caption = f"Error rate against entropy, {dataset}{suffix}"
    yield Drawing(f"error_rate_by_entropy{end}", "error_rate_by_entropy", caption, draw)
    category_names = dict.fromkeys(kind for label in selected for kind in categories[label])
    if 1 < len(category_names) <= MAX_PANELS:
        panels = [f"{kind}\n{label}" for label in selected for kind in categories[label]]
        words = {kind: PHYSICS_CATEGORIES.get(kind, kind or "none") for kind in category_names}
        names = {f"{kind}\n{label}": f"{words[kind]}, {label}" for kind in category_names for label in selected}
        draw = _bind(certainty.by_category, entropy, rates, panels, max_entropy, names)
        caption = f"Error rate against entropy, by category, {dataset}{suffix}"
        yield Drawing(f"error_rate_by_category{end}", "error_rate_by_category", caption, draw)


def _bind(draw: Callable[..., object], *arguments: Any) -> Callable[[Axes], object]:
    """Bind all arguments of a drawing function except the axes."""
    return lambda axes: draw(axes, *arguments)


def _limit_panels(measured: Mapping[str, Any], limit: int = MAX_PANELS) -> tuple[dict[str, Any], str]:
    """Return the first ``limit`` panels of a figure, and a suffix for its caption, which is empty if these are all."""
    selected = dict(list(measured.items())[:limit])
    return selected, "" if len(selected) == len(measured) else f", the first {len(selected)} of {len(measured)}"
