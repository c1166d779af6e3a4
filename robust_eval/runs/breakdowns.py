"""Measurements by scenario, with means over data sets, and by question type, over all data sets.

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
    """Headline figures of a measurement over the questions of one scenario, or their mean over several data sets.

    ``kind`` is empty for the questions of one scenario in one data set; AVG is the unweighted mean of such rows, WAVG
    the mean weighted by the number of questions of each figure. ``questions`` is the number of questions of the
    scenario, ``of_questions`` that of each figure. Intervals of means treat data sets as independent.
    """

    subject: str
    scenario: str
    dataset: str
    kind: str
    questions: int
    figures: dict[str, Estimate]
    of_questions: dict[str, int]


class PartialMetric(NamedTuple):
    """Figure of ``n`` questions; ``mean`` is true of a mean over them."""

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

    ``subjects`` and ``datasets`` label the model and the data set of each run.
    """
    rows: list[ScenarioRow] = []
    for subject in dict.fromkeys(subjects):
        subject_runs = [
            (run, dataset) for run, name, dataset in zip(runs, subjects, datasets, strict=True) if name == subject
        ]
        parts: list[Part] = []
        for scenario in sorted({value for run, _ in subject_runs for value in run.questions["scenario"].to_pylist()}):
            for run, dataset in subject_runs:
                in_scenario = np.array([value == scenario for value in run.questions["scenario"].to_pylist()])
                if in_scenario.any():
                    parts.append(_part(run, scenario, dataset, in_scenario))
        rows += with_averages(subject, parts)
    return rows


def with_averages(subject: str, parts: Sequence[Part]) -> Iterator[ScenarioRow]:
    """Yield the parts, after those of each scenario AVG and WAVG if there are several, and finally those of all parts
    if there are several scenarios (Cho & Watson, Table 5, from the rows of Table 4).

    Means are of figures that all parts have; parts in which one is undefined are left out of its mean.
    """
    scenarios = list(dict.fromkeys(part.scenario for part in parts))
    for scenario in scenarios:
        scenario_parts = [part for part in parts if part.scenario == scenario]
        for part in scenario_parts:
            figures = {name: figure.estimate for name, figure in part.figures.items()}
            of_questions = {name: figure.n for name, figure in part.figures.items()}
            yield ScenarioRow(subject, scenario, part.dataset, "", part.questions, figures, of_questions)
        yield from _averages(subject, scenario, scenario_parts)
    if len(scenarios) > 1:
        yield from _averages(subject, "total", parts)


def _part(run: FinishedRun, scenario: str, dataset: str, in_scenario: NDArray[np.bool_]) -> Part:
    """Return the headline figures over some questions of a run."""
    groups = run.groups()
    figures: dict[str, PartialMetric] = {}
    for name in run.headline_means:
        values = run.values(name)
        defined = in_scenario & ~np.isnan(values)
        labels = None if groups is None else np.asarray(groups)[defined].tolist()
        estimate = mean_estimate(values[defined], labels, run.limits(name))
        figures[name] = PartialMetric(int(defined.sum()), estimate, mean=True)
    n_kept = int((in_scenario & run.kept()).sum())
    for name in run.headline:
        curve, t = curve_and_temperature(name) or (name, math.nan)
        about = run.about(name)
        if about and about.excluded_count:
            total, excluded = (
                run.figures.get(point(each if in_scenario.all() else of_scenario(each, scenario), t))
                for each in (curve, about.excluded_count)
            )
            if total is not None:
                figures[name] = PartialMetric(n_kept - int(excluded.value if excluded else 0), total)
    return Part(scenario, dataset, int(in_scenario.sum()), figures)


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
        lower_distance, upper_distance = (float(np.linalg.norm(share * (value - bound))) for bound in (low, high))
        return Estimate(mean, mean - lower_distance, mean + upper_distance)
    return Estimate(mean, float(share @ low), float(share @ high))


class PooledTypes(NamedTuple):
    """Types of a subject's questions over ``datasets``, by a ``score``, such as FRS for one d: see
    :func:`~robust_eval.metric.frs_tables.type_shares`.
    """

    subject: str
    datasets: list[str]
    score: str
    shares: pa.Table


def pooled_types(runs: Sequence[FinishedRun], subjects: Sequence[str], datasets: Sequence[str]) -> list[PooledTypes]:
    """Return the shares for each subject whose questions have types, by the leading score for the smallest number (FRS:
    d) that all runs with it share.

    ``subjects`` and ``datasets`` label the model and the data set of each run. Empty if no number is shared.
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
        subject_runs = [(run, dataset) for run, name, dataset in scored if name == subject]
        types = [name for run, _ in subject_runs for name in run.questions["type"].to_pylist()]
        if not any(types):
            continue
        scores = np.concatenate([run.values(run.by_number(leading)[smallest]) for run, _ in subject_runs])
        seed = int(subject_runs[0][0].settings["seed"])
        shares = type_shares(scores, types, groups=_groups(subject_runs), seed=seed)
        pooled.append(PooledTypes(subject, [dataset for _, dataset in subject_runs], score, shares))
    return pooled


def _groups(runs: Sequence[tuple[FinishedRun, str]]) -> list[str] | None:
    """Return the groups of dependent questions over all data sets; None without any."""
    by_run = [(run.groups(), run.questions.num_rows, dataset) for run, dataset in runs]
    if all(groups is None for groups, _, _ in by_run):
        return None
    return [
        f"{dataset} {group}"
        for groups, n, dataset in by_run
        for group in (groups or [f"question {row}" for row in range(n)])
    ]
