"""Breakdowns of measurements by scenario, with means over data sets, and by question type, over all data sets.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", Table 5.
Fastowski et al., "From Confidence to Collapse in LLM Factual Robustness", Fig. 5.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.metric.agreement_metric import of_scenario
from robust_eval.metric.frs_tables import type_shares
from robust_eval.metric.metric_spec import curve_and_temperature, point
from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.stats.estimate import Estimate, mean_estimate

COLUMNS = ("subject", "scenario", "dataset", "kind", "questions", "metric", *Estimate._fields, "n", "mean")
"""Columns of the frame of scenarios: ``kind`` is empty for the questions of one scenario in one data set, AVG for the
unweighted mean of such rows, WAVG for the mean weighted by the number ``n`` of questions of each metric.
``questions`` is the number of questions of the scenario. ``mean`` is true for a mean over questions. The first row of a
scenario has no metric.
"""


def scenario_frame(runs: Sequence[FinishedRun], subjects: Sequence[str], datasets: Sequence[str]) -> pd.DataFrame:
    """Return a row for each headline metric of each scenario of a run (:data:`COLUMNS`), with AVG and WAVG of each
    scenario of several data sets of one subject, and finally of all its rows if there are several scenarios (Cho &
    Watson, Table 5, from the rows of Table 4).

    ``subjects`` and ``datasets`` label the model and the data set of each run. Means are of metrics that all parts
    have; parts in which one is undefined are left out of its mean. Their intervals treat data sets as independent.
    """
    rows = [row for each in zip(runs, subjects, datasets, strict=True) for row in _scenarios(*each)]
    parts = pd.DataFrame(rows, columns=COLUMNS)
    frames = [parts[:0]]
    for _, of_subject in parts.groupby("subject", sort=False):
        scenarios = of_subject.groupby("scenario")
        for scenario, scenario_rows in scenarios:
            frames += [scenario_rows, _averages(scenario_rows, scenario)]
        if len(scenarios) > 1:
            frames.append(_averages(pd.concat([each for _, each in scenarios]), "total"))
    return pd.concat([frame for frame in frames if len(frame)] or frames, ignore_index=True)


def _scenarios(run: FinishedRun, subject: str, dataset: str) -> Iterator[tuple[Any, ...]]:
    """Yield the scenario rows of a run, without means over data sets."""
    of_question = np.array(run.questions["scenario"].to_pylist())
    for scenario in sorted({*of_question.tolist()}):
        in_scenario = of_question == scenario
        place = subject, scenario, dataset, "", int(in_scenario.sum())
        yield *place, "", *Estimate(math.nan), 0, False
        for name, (estimate, n, is_mean) in _headline(run, scenario, in_scenario).items():
            yield *place, name, *estimate, n, is_mean


def _headline(run: FinishedRun, scenario: str, in_scenario: NDArray[np.bool_]) -> dict[str, tuple[Estimate, int, bool]]:
    """Return the headline metrics over some questions of a run, the number of questions of each, and True if it is a
    mean over questions.
    """
    groups = run.groups()
    metrics: dict[str, tuple[Estimate, int, bool]] = {}
    for name in run.headline_means:
        values = run.values(name)
        defined = in_scenario & ~np.isnan(values)
        labels = None if groups is None else np.asarray(groups)[defined].tolist()
        metrics[name] = mean_estimate(values[defined], labels, run.limits(name)), int(defined.sum()), True
    n_kept = int((in_scenario & run.kept()).sum())
    for name in run.headline_metrics:
        curve, t = curve_and_temperature(name) or (name, math.nan)
        spec = run.spec(name)
        if spec and spec.excluded_count:
            total, excluded = (
                run.metrics.get(point(of_scenario(each, "" if in_scenario.all() else scenario), t))
                for each in (curve, spec.excluded_count)
            )
            if total is not None:
                metrics[name] = total, n_kept - int(excluded.value if excluded else 0), False
    return metrics


def _averages(rows: pd.DataFrame, scenario: str) -> pd.DataFrame:
    """Return AVG and WAVG of the metrics that all parts of a breakdown have."""
    parts = rows[rows["metric"] == ""]
    place, questions = (rows["subject"].iloc[0], scenario, ""), parts["questions"].sum()
    means = []
    for kind in ("AVG", "WAVG") if len(parts) > 1 else ():
        for metric, each in rows.groupby("metric", sort=False):
            if len(each) == len(parts):
                defined = each.dropna(subset="value")
                estimates = [Estimate(*row) for row in defined[[*Estimate._fields]].itertuples(index=False)]
                n = defined["n"].tolist()
                mean = weighted_mean(estimates, [1.0] * len(n) if kind == "AVG" else n, defined["mean"].all())
                means.append((*place, kind, questions, metric, *mean, sum(n), False))
    return pd.DataFrame(means, columns=COLUMNS)


def weighted_mean(metrics: Sequence[Estimate], weights: Sequence[float], is_mean: bool = False) -> Estimate:
    """Return the weighted mean of independent metrics, with its 95 % interval.

    Of means over questions (``is_mean``) the distance of each bound is the root of the summed squares of the metrics'
    own distances, by their weights (Zou, Huang & Zhang, Computational Statistics & Data Analysis 53, 2009). Of κ and α
    the bounds are the means of the metrics' bounds: there that rule covers 85 to 95 % for 95 %, as Feldt's law of α is
    too skewed with few raters. There are none where one of the metrics has none.
    """
    if not metrics:
        return Estimate(math.nan)
    share = np.array(weights) / sum(weights)
    value, low, high = np.array(metrics, dtype=float).T
    mean = float(share @ value)
    if is_mean:
        lower_distance, upper_distance = (float(np.linalg.norm(share * (value - bound))) for bound in (low, high))
        return Estimate(mean, mean - lower_distance, mean + upper_distance)
    return Estimate(mean, float(share @ low), float(share @ high))


class PooledTypes(NamedTuple):
    """Pooled question types: those of a subject's questions over ``datasets``, by a ``score``, such as FRS for one d:
    see :func:`~robust_eval.metric.frs_tables.type_shares`.
    """

    subject: str
    datasets: list[str]
    score: str
    shares: pa.Table


def pooled_types(runs: Sequence[FinishedRun], subjects: Sequence[str], datasets: Sequence[str]) -> list[PooledTypes]:
    """Return the shares of question types for each subject whose questions have types, by the leading score for the
    smallest number (FRS: d) that all runs with it share.

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
    """Return the groups of dependent questions over all data sets of a breakdown; None without any."""
    by_run = [(run.groups(), run.questions.num_rows, dataset) for run, dataset in runs]
    if all(groups is None for groups, _, _ in by_run):
        return None
    return [
        f"{dataset} {group}"
        for groups, n, dataset in by_run
        for group in (groups or [f"question {row}" for row in range(n)])
    ]
