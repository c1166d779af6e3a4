"""Measurements by scenario, with their means over data sets, and by question type, over all data sets together.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", Table 5.
Fastowski et al., "From Confidence to Collapse in LLM Factual Robustness", Fig. 5.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.metric.agreement_metric import of_scenario
from robust_eval.metric.frs_tables import type_shares
from robust_eval.metric.metric_spec import curve_and_temperature, point
from robust_eval.metric.score import mean_estimate
from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.stats.estimate import Estimate


class ScenarioRow(NamedTuple):
    """The telling figures of a measurement over the questions of one scenario, or their mean over several data sets.

    ``kind`` is empty for the questions of one scenario in one data set; AVG is the mean that counts such rows alike,
    WAVG the one that counts questions alike: each figure is weighted by the number of questions that have it.
    ``questions`` are those of the scenario, ``of_questions`` how many each figure rests on. Intervals of means take
    different data sets to be independent.
    """

    subject: str
    scenario: str
    dataset: str
    kind: str
    questions: int
    figures: dict[str, Estimate]
    of_questions: dict[str, int]


class PartialMetric(NamedTuple):
    """A figure of ``n`` questions, and whether it is a mean over them."""

    n: int
    estimate: Estimate
    mean: bool = False


class Part(NamedTuple):
    """Metrics of the questions of one scenario in one data set."""

    scenario: str
    dataset: str
    questions: int
    figures: dict[str, PartialMetric]


def scenario_rows(runs: Sequence[FinishedRun], subjects: Sequence[str], datasets: Sequence[str]) -> list[ScenarioRow]:
    """Return a row for each run and scenario; of several data sets of one subject also AVG and WAVG, by scenario and in
    total.

    ``subjects`` and ``datasets`` say of each run what was measured, and on what.
    """
    rows: list[ScenarioRow] = []
    for subject in dict.fromkeys(subjects):
        own = [(run, dataset) for run, name, dataset in zip(runs, subjects, datasets, strict=True) if name == subject]
        parts: list[Part] = []
        for scenario in sorted({kind for run, _ in own for kind in run.questions["scenario"].to_pylist()}):
            for run, dataset in own:
                asked = np.array([kind == scenario for kind in run.questions["scenario"].to_pylist()])
                if asked.any():
                    parts.append(_part(run, scenario, dataset, asked))
        rows += with_averages(subject, parts)
    return rows


def with_averages(subject: str, parts: Sequence[Part]) -> Iterator[ScenarioRow]:
    """Yield the parts, and after those of each scenario AVG and WAVG, if they are several; at last those of all parts,
    if there are several scenarios (Cho & Watson, Table 5, from the rows of Table 4).

    Figures that not all parts have are in no mean; parts in which one is undefined are left out of its mean.
    """
    scenarios = list(dict.fromkeys(part.scenario for part in parts))
    for scenario in scenarios:
        own = [part for part in parts if part.scenario == scenario]
        for part in own:
            figures = {name: figure.estimate for name, figure in part.figures.items()}
            of_questions = {name: figure.n for name, figure in part.figures.items()}
            yield ScenarioRow(subject, scenario, part.dataset, "", part.questions, figures, of_questions)
        yield from _averages(subject, scenario, own)
    if len(scenarios) > 1:
        yield from _averages(subject, "total", parts)


def _part(run: FinishedRun, scenario: str, dataset: str, asked: NDArray[np.bool_]) -> Part:
    """Return the telling figures over some questions of a run."""
    groups = run.groups()
    figures: dict[str, PartialMetric] = {}
    for name in run.headline_means:
        values = run.values(name)
        defined = asked & ~np.isnan(values)
        labels = None if groups is None else np.asarray(groups)[defined].tolist()
        estimate = mean_estimate(values[defined], labels, run.limits(name))
        figures[name] = PartialMetric(int(defined.sum()), estimate, mean=True)
    kept = int((asked & run.kept()).sum())
    for name in run.headline:
        curve, t = curve_and_temperature(name) or (name, math.nan)
        about = run.about(name)
        if about and about.excluded_count:
            found, lacking = (
                run.figures.get(point(each if asked.all() else of_scenario(each, scenario), t))
                for each in (curve, about.excluded_count)
            )
            if found is not None:
                figures[name] = PartialMetric(kept - int(lacking.value if lacking else 0), found)
    return Part(scenario, dataset, int(asked.sum()), figures)


def _averages(subject: str, scenario: str, parts: Sequence[Part]) -> Iterator[ScenarioRow]:
    """Yield AVG and WAVG of the figures that all of several parts have."""
    if len(parts) < 2:
        return
    shared = [name for name in parts[0].figures if all(name in part.figures for part in parts)]
    questions = sum(part.questions for part in parts)
    for kind in ("AVG", "WAVG"):
        figures, of_questions = {}, {}
        for name in shared:
            used = [part.figures[name] for part in parts if not math.isnan(part.figures[name].estimate.value)]
            figures[name] = _mean(used, [1.0 if kind == "AVG" else figure.n for figure in used])
            of_questions[name] = sum(figure.n for figure in used)
        yield ScenarioRow(subject, scenario, "", kind, questions, figures, of_questions)


def _mean(figures: Sequence[PartialMetric], weights: Sequence[float]) -> Estimate:
    """Return the weighted mean of independent figures, with its 95 % interval.

    Of means over questions the distance of each bound is the root of the summed squares of the figures' own distances,
    by their weights (Zou, Huang & Zhang, Computational Statistics & Data Analysis 53, 2009). Of κ and α the bounds are
    the means of the figures' bounds: there that rule covers 85 to 95 % for 95 %, as Feldt's law of α is too skewed with
    few raters. There are none where one of the figures has none.
    """
    if not figures:
        return Estimate(math.nan)
    share = np.array(weights) / sum(weights)
    value, low, high = np.array([figure.estimate for figure in figures]).T
    mean = float(share @ value)
    if all(figure.mean for figure in figures):
        below, above = (float(np.linalg.norm(share * (value - bound))) for bound in (low, high))
        return Estimate(mean, mean - below, mean + above)
    return Estimate(mean, float(share @ low), float(share @ high))


class PooledTypes(NamedTuple):
    """The types of a subject's questions over ``datasets``, by a ``score``, such as FRS for one d: see
    :func:`~robust_eval.metric.frs_tables.type_shares`.
    """

    subject: str
    datasets: list[str]
    score: str
    shares: pa.Table


def pooled_types(runs: Sequence[FinishedRun], subjects: Sequence[str], datasets: Sequence[str]) -> list[PooledTypes]:
    """Return the shares for each subject whose questions have types, by the leading score for the smallest number (FRS:
    d) that all runs with it share.

    ``subjects`` and ``datasets`` say of each run what was measured, and on what. Empty where no number is shared.
    """
    leading = next(filter(None, (run.leading_score for run in runs)), None)
    if leading is None:
        return []
    scored = [each for each in zip(runs, subjects, datasets, strict=True) if each[0].by_number(leading)]
    common = set.intersection(*(set(run.by_number(leading)) for run, _, _ in scored))
    if not common:
        return []
    smallest = min(common)
    score = scored[0][0].by_number(leading)[smallest]
    pooled = []
    for subject in dict.fromkeys(subject for _, subject, _ in scored):
        own = [(run, dataset) for run, name, dataset in scored if name == subject]
        types = [name for run, _ in own for name in run.questions["type"].to_pylist()]
        if not any(types):
            continue
        scores = np.concatenate([run.values(run.by_number(leading)[smallest]) for run, _ in own])
        seed = int(own[0][0].settings["seed"])
        shares = type_shares(scores, types, groups=_groups(own), seed=seed)
        pooled.append(PooledTypes(subject, [dataset for _, dataset in own], score, shares))
    return pooled


def _groups(own: Sequence[tuple[FinishedRun, str]]) -> list[str] | None:
    """Return what makes questions dependent, over all data sets; None where nothing does."""
    by_run = [(run.groups(), run.questions.num_rows, dataset) for run, dataset in own]
    if all(groups is None for groups, _, _ in by_run):
        return None
    return [
        f"{dataset} {group}"
        for groups, n, dataset in by_run
        for group in (groups or [f"question {row}" for row in range(n)])
    ]
