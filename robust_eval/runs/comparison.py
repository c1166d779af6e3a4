"""Comparison of runs: their metrics, and their differences on shared questions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robust_eval.answer import temperature_name, temperatures_of
from robust_eval.metric.metric_spec import DRAWING_KINDS, ComparisonView, MetricSpec
from robust_eval.metric.variance_metric import AnswerVariance, VarianceDecomposition, difference_variance
from robust_eval.runs.differing_settings import contrast, merged, scoring_settings, without_repetitions
from robust_eval.runs.finished_runs import FinishedRun, Labels
from robust_eval.runs.scenarios_and_types import PooledTypes, pooled_types, scenario_frame
from robust_eval.runs.shared_questions import SharedQuestions, shared_questions
from robust_eval.sampler.recorded_answers import RecordedConditions
from robust_eval.stats.interval import MIN_UNITS, SHARE, Limits, independent
from robust_eval.stats.non_inferiority import facts_needed
from robust_eval.stats.significance import (
    LEVEL,
    Difference,
    LogRank,
    holm,
    paired_difference,
    paired_p_value,
    stratified_log_rank,
)

MARGIN = 0.02
"""Difference for which a comparison reports the number of questions needed to decide."""


class Pair(NamedTuple):
    """Pair of compared measurements, by their indices, on the questions that both asked.

    ``kept`` are the numbers of questions that each kept, ``shared`` is the number that both kept, with ``units``
    independent ones: groups, if questions have groups. ``differences`` maps the headline metrics to the first's minus
    the second's; ``leading`` is the first primary one of them, if any. ``log_rank`` is None if breaking temperatures
    are missing or come from different grids.
    ``p_value`` is that of the difference of :attr:`metric`, ``corrected`` for all pairs with the same metric;
    ``is_significant`` is true if it is below 0.05 (of several pairs) and 0 is outside the interval. ``needed`` is the
    number of questions that decide whether they differ by :data:`MARGIN`; NaN if the metric is no share. ``unjudged``
    is the reason for no verdict: the same answers are ``scored`` differently; these are scored differently
    (``rescored``), and others as well; the distribution is ``truncated`` differently; or questions are too ``few``.
    ``variance`` is that of the difference between their answers, of the only pair of a comparison; None if the answers
    cannot be paired by question, rewrite and trial, or do not differ.
    """

    first: int
    second: int
    kept: tuple[int, int]
    shared: int
    units: int
    differences: dict[str, Difference]
    log_rank: LogRank | None
    leading: str | None
    p_value: float = math.nan
    corrected: float = math.nan
    is_significant: bool = False
    needed: float = math.nan
    unjudged: str = ""
    variance: AnswerVariance | None = None

    @property
    def metric(self) -> str | None:
        """Metric of the verdict on a pair: the first primary one, or else the first."""
        return self.leading or next(iter(self.differences), None)


@dataclass(frozen=True)
class Comparison:
    """Comparison of several runs.

    ``runs`` are the compared runs without ``repetitions``, with their ``labels``. ``measurements`` are the same with
    those merged that differ in nothing but a number in the names of metrics (FRS: d), with ``measurement_labels``.
    """

    runs: list[FinishedRun]
    labels: list[str]
    repetitions: int
    measurements: list[FinishedRun]
    measurement_labels: Labels
    pairs: list[Pair]
    shared: list[SharedQuestions]
    scenarios: pd.DataFrame
    types: list[PooledTypes]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Tidy frame of all compared runs (:attr:`.FinishedRun.frame`), each by its label ``run``."""
        frames = [run.frame.assign(run=label) for run, label in zip(self.runs, self.labels, strict=True)]
        return pd.concat(frames, ignore_index=True)

    def spec(self, metric: str) -> MetricSpec | None:
        """Return a compared metric's spec, from the first run with it; None without one."""
        return next((spec for run in self.runs if metric in run.metrics and (spec := run.spec(metric))), None)

    def words(self, metric: str) -> str:
        """Return the label of a compared metric, or else its name."""
        spec = self.spec(metric)
        return metric if spec is None else spec.words

    def heading(self, metric: str) -> str:
        """Return the label of a compared metric, with an arrow for the better direction."""
        spec = self.spec(metric)
        return metric if spec is None else f"{spec.words} {spec.direction}".rstrip()

    @property
    def views(self) -> list[tuple[MetricSpec, ComparisonView]]:
        """Metrics declared for comparisons, by the first run with each: first those with a number in their names, then
        lines before survival curves.
        """
        specs = {spec.name: spec for run in reversed(self.measurements) for spec in reversed(run.specs)}
        views = [(spec, spec.comparison) for spec in reversed(specs.values()) if spec.comparison]
        return sorted(views, key=lambda each: (not each[0].numbered, DRAWING_KINDS.index(each[1].kind)))

    @property
    def smallest_sample(self) -> tuple[int, bool]:
        """Number of independent questions of the smallest compared sample (a run, one of its scenarios, shared by a
        pair), 0 without one; and whether they are groups.
        """
        selections = [(run.kept(), run.groups()) for run in self.runs]
        sizes = [
            (independent(int(is_kept.sum()), _groups_of(groups, is_kept)), groups is not None)
            for is_kept, groups in selections
        ]
        sizes += [(pair.units, self.measurements[pair.first].groups() is not None) for pair in self.pairs]
        sizes += [(questions, False) for questions in self.scenarios["questions"].tolist()]
        return min((each for each in sizes if each[0]), default=(0, False))

    def on(self, dataset: str, subject: str | None = None) -> list[tuple[str, FinishedRun]]:
        """Return the compared measurements on a data set, of one subject or of all, each with its subject."""
        labelled = zip(
            self.measurement_labels.subjects, self.measurement_labels.datasets, self.measurements, strict=True
        )
        return [(name, run) for name, where, run in labelled if where == dataset and subject in (None, name)]


def compare(runs: Sequence[FinishedRun]) -> Comparison:
    """Compare runs, earlier ones first."""
    distinct = without_repetitions(runs)
    measurements = merged(distinct)
    labels = Labels(measurements, ignored=scoring_settings(measurements))
    places = combinations(range(len(measurements)), 2)
    compared = [_pair(measurements, first, second) for first, second in places]
    pairs = _corrected(_rescored([pair for pair in compared if pair is not None], measurements))
    if len(measurements) == 2:
        pairs = [pair._replace(variance=_variance(measurements[0], measurements[1], pair.unjudged)) for pair in pairs]
    return Comparison(
        distinct,
        Labels(distinct).full,
        len(runs) - len(distinct),
        measurements,
        labels,
        pairs,
        shared_questions(measurements, labels, [(pair.first, pair.second) for pair in pairs]),
        scenario_frame(measurements, labels.subjects, labels.datasets),
        pooled_types(measurements, labels.subjects, labels.datasets),
    )


def _variance(one: FinishedRun, other: FinishedRun, unjudged: str) -> AnswerVariance | None:
    """Return :attr:`Pair.variance`: of rewrites if a sampler has them, else of the first common sampler."""
    if unjudged in ("scored", "truncated"):
        return None
    shared = [question_id for question_id, _ in {*one.keys()} & {*other.keys()}]
    trials = [
        {name: table.filter(pc.is_in(table["question_id"], pa.array(shared))) for name, table in run.trials().items()}
        for run in (one, other)
    ]
    common = [name for name in trials[0] if name in trials[1] and all(each[name].num_rows for each in trials)]
    common.sort(key=lambda name: RecordedConditions(name, trials[0][name]).axis != VarianceDecomposition.axis)
    for name in common:
        first, second = (each[name] for each in trials)
        temperatures = {temperature_name(t) for t in temperatures_of(pa.concat_tables([first, second]))}
        rewritten = any((each["rewrite"].to_numpy() > 0).any() for each in (first, second))
        if len(temperatures) > 1 or (rewritten and one.rewrites(shared) != other.rewrites(shared)):
            continue
        variance = difference_variance(first, second, one.groups_by_id())
        if not math.isnan(variance.standard_error()):
            return variance
    return None


def _groups_of(groups: Sequence[str] | NDArray[np.str_] | None, rows: NDArray[np.bool_]) -> NDArray[np.str_] | None:
    """Return the groups of a pair's questions; None where there are none."""
    return None if groups is None else np.asarray(groups)[rows]


def _joint_limits(one: FinishedRun, other: FinishedRun, metric: str) -> Limits:
    """Return the limits of a metric of one question over both compared runs."""
    (lowest, highest), (other_lowest, other_highest) = one.limits(metric), other.limits(metric)
    return min(lowest, other_lowest), max(highest, other_highest)


def _pair(measurements: Sequence[FinishedRun], first: int, second: int) -> Pair | None:
    """Compare two measurements; None where they have no question in common."""
    one, other = measurements[first], measurements[second]
    places = {question: row for row, question in enumerate(other.keys())}
    common = [(row, places[question]) for row, question in enumerate(one.keys()) if question in places]
    if not common:
        return None
    rows, other_rows = np.array(common).T
    labels = one.groups()
    groups = None if labels is None else np.asarray(labels)[rows]
    other_means = other.headline_means
    differences = {
        name: paired_difference(
            one.values(name)[rows], other.values(name)[other_rows], groups, limits=_joint_limits(one, other, name)
        )
        for name in one.headline_means
        if name in other_means
    }
    (grid, holds), (other_grid, other_holds) = one.holding(), other.holding()
    log_rank = None
    if grid and grid == other_grid:
        log_rank = stratified_log_rank(holds[rows], other_holds[other_rows], groups)
    one_kept, other_kept = one.kept(), other.kept()
    both = one_kept[rows] & other_kept[other_rows]
    shared = int(both.sum())
    units = independent(shared, _groups_of(groups, both))
    primary = (name for spec in one.specs if spec.primary for name in spec.covered_names(differences))
    leading = next(primary, None)  # of a curve the point nearest to t = 1
    headline = leading or next(iter(differences), None)
    p_value = needed = math.nan
    kind = contrast(one, other).kind
    unjudged = kind if kind in ("scored", "truncated") else ""
    if headline is not None:
        difference = one.values(headline)[rows] - other.values(headline)[other_rows]
        p_value = paired_p_value(difference, groups)
        if _joint_limits(one, other, headline) == SHARE:
            needed = facts_needed(difference, MARGIN, groups)
        defined = ~np.isnan(difference)
        if not unjudged and independent(int(defined.sum()), _groups_of(groups, defined)) < MIN_UNITS:
            unjudged = "few"
    both_kept = int(one_kept.sum()), int(other_kept.sum())
    return Pair(
        *(first, second, both_kept, shared, units, differences, log_rank, leading),
        p_value=p_value,
        needed=needed,
        unjudged=unjudged,
    )


def _rescored(pairs: Sequence[Pair], measurements: Sequence[FinishedRun]) -> list[Pair]:
    """Return the compared pairs, without verdicts between different scorings if a pair has the same answers scored
    differently: the most lenient scoring would be ahead.
    """
    several = {place for pair in pairs if pair.unjudged == "scored" for place in pair[:2]}
    return [
        pair._replace(unjudged="rescored")
        if not pair.unjudged
        and several & {*pair[:2]}
        and contrast(measurements[pair.first], measurements[pair.second]).rescored
        else pair
        for pair in pairs
    ]


def _corrected(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the compared pairs with p values corrected for the number of those with a verdict by the same metric."""
    corrected_pairs = list(pairs)
    for metric in {pair.metric for pair in pairs if pair.metric}:
        family = [place for place, pair in enumerate(pairs) if pair.metric == metric and not pair.unjudged]
        corrected = holm([pairs[place].p_value for place in family]).tolist()
        for place, p_value in zip(family, corrected, strict=True):
            difference = pairs[place].differences[metric]
            beyond = difference.low > 0 or difference.high < 0
            is_significant = beyond and (len(family) == 1 or p_value < LEVEL)
            corrected_pairs[place] = pairs[place]._replace(corrected=p_value, is_significant=is_significant)
    return corrected_pairs
