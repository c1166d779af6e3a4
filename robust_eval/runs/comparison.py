"""Runs beside one another: what each found, and how far apart they are on the questions that they share."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robust_eval.metric.metric_spec import DRAWING_KINDS, ComparisonView, MetricSpec
from robust_eval.runs.breakdowns import PooledTypes, ScenarioRow, pooled_types, scenario_rows
from robust_eval.runs.contrast import contrast
from robust_eval.runs.finished_runs import FinishedRun, Labels, merged, scoring_settings, without_repetitions
from robust_eval.runs.shared_questions import SharedQuestions, shared_questions
from robust_eval.stats.interval import MIN_UNITS, SHARE, Limits, independent
from robust_eval.stats.significance import (
    LEVEL,
    Difference,
    LogRank,
    holm,
    paired_difference,
    paired_p_value,
    stratified_log_rank,
)
from robust_eval.stats.verdicts import facts_needed

MARGIN = 0.02
"""The difference of which a comparison says how many questions would decide whether it is there."""


class Pair(NamedTuple):
    """Two measurements, by their places, on the questions that both asked.

    ``kept`` are the numbers of questions that each kept, ``shared`` of those that both did, which are ``units``
    independent ones: groups, where questions come in groups. ``differences`` maps the telling figures to the first's
    minus the second's; ``leading`` is the first of them that leads, if one does. ``log_rank`` is None where breaking
    temperatures are missing or come from different grids.
    ``p_value`` is that of the headline's difference, ``corrected`` for all pairs with the same headline; ``told_apart``
    says whether it is below 0.05 (of several pairs) and 0 is outside the interval. ``needed`` is how many questions
    decide whether they differ by :data:`MARGIN`; NaN where the headline is no share. ``unjudged`` says why there is no
    verdict: the same answers are ``scored`` differently; these are scored differently (``rescored``), and others as
    well; the distribution is ``truncated`` differently; or questions are too ``few``.
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
    told_apart: bool = False
    needed: float = math.nan
    unjudged: str = ""

    @property
    def headline(self) -> str | None:
        """The figure that speaks for the pair: the first that leads, else the first."""
        return self.leading or next(iter(self.differences), None)


@dataclass(frozen=True)
class Comparison:
    """Comparison of several runs.

    ``runs`` are those compared, without repetitions, and ``labels`` what each is called. ``measurements`` are the same
    with those merged that differ in nothing but a number that figures have in their names (FRS: d), and ``names`` what
    those are called.
    """

    runs: list[FinishedRun]
    labels: list[str]
    repetitions: int
    measurements: list[FinishedRun]
    names: Labels
    pairs: list[Pair]
    shared: list[SharedQuestions]
    scenarios: list[ScenarioRow]
    types: list[PooledTypes]

    def about(self, figure: str) -> MetricSpec | None:
        """Return what the first run with the figure of this name declares of it; None where none does."""
        return next((about for run in self.runs if figure in run.figures and (about := run.about(figure))), None)

    def words(self, figure: str) -> str:
        """Return what a person calls a figure: its label, or else its name."""
        about = self.about(figure)
        return figure if about is None else about.words

    def heading(self, figure: str) -> str:
        """Return what a person calls a figure, with an arrow that says whether more or less of it is better."""
        about = self.about(figure)
        return figure if about is None else f"{about.words} {about.direction}".rstrip()

    @property
    def views(self) -> list[tuple[MetricSpec, ComparisonView]]:
        """The figures that are declared to be shown beside those of other runs, as the first run declares them: first
        those with a number in their names, then lines before survival curves.
        """
        found = {figure.name: figure for run in reversed(self.measurements) for figure in reversed(run.declared)}
        shown = [(figure, figure.comparison) for figure in reversed(found.values()) if figure.comparison]
        return sorted(shown, key=lambda each: (not each[0].numbered, DRAWING_KINDS.index(each[1].kind)))

    @property
    def smallest_sample(self) -> tuple[int, bool]:
        """Number of independent questions of the smallest sample (a run, one of its scenarios, shared by a pair), 0
        without one; and whether they are groups.
        """
        kept = [(run.kept(), run.groups()) for run in self.runs]
        found = [(independent(int(own.sum()), _chosen(groups, own)), groups is not None) for own, groups in kept]
        found += [(pair.units, self.measurements[pair.first].groups() is not None) for pair in self.pairs]
        found += [(row.questions, False) for row in self.scenarios]
        return min((each for each in found if each[0]), default=(0, False))

    def on(self, dataset: str, subject: str | None = None) -> list[tuple[str, FinishedRun]]:
        """Return the measurements on a data set, of one subject or of all, each with its subject."""
        found = zip(self.names.subjects, self.names.datasets, self.measurements, strict=True)
        return [(name, run) for name, where, run in found if where == dataset and subject in (None, name)]


def compare(runs: Sequence[FinishedRun]) -> Comparison:
    """Compare runs, earlier ones first."""
    distinct = without_repetitions(runs)
    measurements = merged(distinct)
    names = Labels(measurements, ignored=scoring_settings(measurements))
    places = combinations(range(len(measurements)), 2)
    compared = [_pair(measurements, first, second) for first, second in places]
    pairs = _corrected(_rescored([pair for pair in compared if pair is not None], measurements))
    return Comparison(
        distinct,
        Labels(distinct).whole,
        len(runs) - len(distinct),
        measurements,
        names,
        pairs,
        shared_questions(measurements, names, [(pair.first, pair.second) for pair in pairs]),
        scenario_rows(measurements, names.subjects, names.datasets),
        pooled_types(measurements, names.subjects, names.datasets),
    )


def _chosen(groups: Sequence[str] | NDArray[np.str_] | None, rows: NDArray[np.bool_]) -> NDArray[np.str_] | None:
    """Return the groups of some questions; None where there are none."""
    return None if groups is None else np.asarray(groups)[rows]


def _either(one: FinishedRun, other: FinishedRun, figure: str) -> Limits:
    """Return the lowest and the highest value that a figure of one question can have in either run."""
    (lowest, highest), (other_lowest, other_highest) = one.limits(figure), other.limits(figure)
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
    there = other.headline_means
    differences = {
        name: paired_difference(
            one.values(name)[rows], other.values(name)[other_rows], groups, limits=_either(one, other, name)
        )
        for name in one.headline_means
        if name in there
    }
    (grid, breaking), (other_grid, other_breaking) = one.breaking_temperatures(), other.breaking_temperatures()
    log_rank = None
    if grid and grid == other_grid:
        log_rank = stratified_log_rank(breaking[rows], other_breaking[other_rows], groups)
    kept, other_kept = one.kept(), other.kept()
    both = kept[rows] & other_kept[other_rows]
    shared = int(both.sum())
    units = independent(shared, _chosen(groups, both))
    leading = next(iter(_leading(one, differences)), None)
    headline = leading or next(iter(differences), None)
    p_value = needed = math.nan
    kind = contrast(one, other).kind
    unjudged = kind if kind in ("scored", "truncated") else ""
    if headline is not None:
        apart = one.values(headline)[rows] - other.values(headline)[other_rows]
        p_value = paired_p_value(apart, groups)
        if _either(one, other, headline) == SHARE:
            needed = facts_needed(apart, MARGIN, groups)
        defined = ~np.isnan(apart)
        if not unjudged and independent(int(defined.sum()), _chosen(groups, defined)) < MIN_UNITS:
            unjudged = "few"
    both_kept = int(kept.sum()), int(other_kept.sum())
    return Pair(
        *(first, second, both_kept, shared, units, differences, log_rank, leading),
        p_value=p_value,
        needed=needed,
        unjudged=unjudged,
    )


def _rescored(pairs: Sequence[Pair], measurements: Sequence[FinishedRun]) -> list[Pair]:
    """Return the pairs, without a verdict on other answers that are scored differently where the same ones are: the
    scoring that takes most for right would be ahead.
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


def _leading(run: FinishedRun, names: Collection[str]) -> Iterator[str]:
    """Yield those of the names that lead, of a curve first the point nearest to t = 1."""
    for figure in run.declared:
        if figure.primary:
            yield from figure.standing(names)


def _corrected(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with p values corrected for the number of those with a verdict by the same headline."""
    found = list(pairs)
    for figure in {pair.headline for pair in pairs if pair.headline}:
        family = [place for place, pair in enumerate(pairs) if pair.headline == figure and not pair.unjudged]
        corrected = holm([pairs[place].p_value for place in family]).tolist()
        for place, p_value in zip(family, corrected, strict=True):
            difference = pairs[place].differences[figure]
            beyond = difference.low > 0 or difference.high < 0
            apart = beyond and (len(family) == 1 or p_value < LEVEL)
            found[place] = pairs[place]._replace(corrected=p_value, told_apart=apart)
    return found
