"""Measurements by scenario, with their means over data sets.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers", Table 5.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robust_eval.metric.interval import bootstrap_draws
from robust_eval.metric.score import Estimate, Floats, mean_estimate
from robust_eval.report.finished import FinishedRun


class ScenarioRow(NamedTuple):
    """The telling figures of a measurement over the questions of one scenario, or their mean over several data sets.

    ``kind`` is empty for the questions of one scenario in one data set; AVG is the mean that counts such rows alike,
    WAVG the one that counts questions alike: each figure is weighted by the number of questions that have it.
    ``questions`` were asked. Intervals of means take different data sets to be independent.
    """

    subject: str
    scenario: str
    dataset: str
    kind: str
    questions: int
    figures: dict[str, Estimate]


class _Mean(NamedTuple):
    """A mean over ``n`` questions, with that of each bootstrap draw."""

    n: int
    value: float
    draws: Floats


class _Part(NamedTuple):
    """The questions of one scenario in one data set."""

    questions: int
    figures: dict[str, Estimate]
    means: dict[str, _Mean]


def scenario_rows(runs: Sequence[FinishedRun], subjects: Sequence[str], datasets: Sequence[str]) -> list[ScenarioRow]:
    """A row for each run and scenario; of several data sets of one subject also AVG and WAVG, by scenario and in total.

    ``subjects`` and ``datasets`` say of each run what was measured, and on what.
    """
    rows: list[ScenarioRow] = []
    for subject in dict.fromkeys(subjects):
        own = [(run, dataset) for run, name, dataset in zip(runs, subjects, datasets, strict=True) if name == subject]
        scenarios = sorted({kind for run, _ in own for kind in run.questions["scenario"].to_pylist()})
        every: list[_Part] = []
        for scenario in scenarios:
            parts: list[_Part] = []
            for run, dataset in own:
                asked = np.array([kind == scenario for kind in run.questions["scenario"].to_pylist()])
                if asked.any():
                    part = _part(run, asked, seed=len(every) + len(parts))
                    rows.append(ScenarioRow(subject, scenario, dataset, "", part.questions, part.figures))
                    parts.append(part)
            rows += _averages(subject, scenario, parts)
            every += parts
        if len(scenarios) > 1:
            rows += _averages(subject, "total", every)
    return rows


def _part(run: FinishedRun, asked: NDArray[np.bool_], seed: int) -> _Part:
    """The telling figures over some questions of a run, drawn independently of those under other seeds."""
    groups = run.groups()
    figures, means = {}, {}
    for name in run.telling:
        values = run.values(name)
        defined = asked & ~np.isnan(values)
        labels = None if groups is None else np.asarray(groups)[defined].tolist()
        figures[name] = mean_estimate(values[defined], labels, run.settings["seed"])
        draws = bootstrap_draws(np.mean, values[defined], groups=labels, seed=seed)
        means[name] = _Mean(int(defined.sum()), figures[name].value, draws)
    return _Part(int(asked.sum()), figures, means)


def _averages(subject: str, scenario: str, parts: Sequence[_Part]) -> Iterator[ScenarioRow]:
    """AVG and WAVG of the figures that all of several parts have."""
    if len(parts) < 2:
        return
    shared = [name for name in parts[0].means if all(name in part.means for part in parts)]
    questions = sum(part.questions for part in parts)
    for kind in ("AVG", "WAVG"):
        figures = {}
        for name in shared:
            means = [part.means[name] for part in parts]
            figures[name] = _mean(means, [float(mean.n > 0) if kind == "AVG" else mean.n for mean in means])
        yield ScenarioRow(subject, scenario, "", kind, questions, figures)


def _mean(means: Sequence[_Mean], weights: Sequence[float]) -> Estimate:
    """The weighted mean of independent means, those of no question left out, with its 95 % bootstrap interval."""
    used = [(mean, weight) for mean, weight in zip(means, weights, strict=True) if mean.n]
    if not used:
        return Estimate(math.nan)
    share = np.array([weight for _, weight in used]) / sum(weight for _, weight in used)
    draws = share @ np.stack([mean.draws for mean, _ in used])
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(float(share @ [mean.value for mean, _ in used]), float(low), float(high))
