"""Decisions of a gate: PASS, FAIL or INCONCLUSIVE, of each metric and in total (docs/methods.md, §5)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from numpy.typing import NDArray
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from robust_eval.answer import GREEDY, NO_REPLY
from robust_eval.error import UserError, first_line
from robust_eval.gate.knowledge_and_firmness import (
    FIRMNESS,
    KNOWLEDGE,
    firmness,
    knowledge,
    knowledge_label,
    no_firmness,
)
from robust_eval.gate.measured_run import MeasuredRun, same_answers
from robust_eval.metric.frs_specs import FRS
from robust_eval.metric.greedy import SPEC as GREEDY_ACCURACY
from robust_eval.metric.metric_spec import MetricSpec
from robust_eval.runs.differing_settings import TRUNCATED, differing, listed, truncation
from robust_eval.runtime.text import number, signed
from robust_eval.stats.interval import MIN_UNITS, Floats, independent
from robust_eval.stats.non_inferiority import Outcome, confidence_sequence, facts_needed, outcome_of, verdict
from robust_eval.stats.significance import mcnemar


@dataclass
class GateSettings:
    """The metrics that a gate judges and how sure it must be."""

    metrics: dict[str, float] = field(default_factory=lambda: {KNOWLEDGE: 0.02, FIRMNESS: 0.02})
    """Each metric with its margin, in (0, 1): how much worse than the baseline its mean may be. ``knowledge`` and
    ``firmness`` stand for the metrics that the runs have (:func:`resolved`)."""
    level: float = 0.95
    """Of the two-sided intervals."""
    no_reply: float = 0.05
    """The largest share of a run's greedy, or of its sampled, answers that may be missing (failed, filtered)."""

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ValueError("metrics must name at least one metric with its margin, such as {accuracy.greedy: 0.02}")
        for name, margin in self.metrics.items():
            if not 0 < margin < 1:
                raise ValueError(f"metrics: the margin of {name} must be above 0 and below 1, not {margin:g}")
        if not 0 < self.level < 1:
            raise ValueError(f"level must be above 0 and below 1, not {self.level:g}")
        if not 0 <= self.no_reply < 1:
            raise ValueError(f"no_reply must be at least 0 and below 1, not {self.no_reply:g}")


def gate_settings(overrides: Sequence[str], folders: Sequence[Path]) -> GateSettings:
    """Return the gate's settings from ``gate=NAME`` and ``gate.SETTING=VALUE``; of the ``folders`` with files the
    first has priority.

    Raises UserError for an unknown setting or file, and for an invalid value.
    """
    name, changed = "default", {}
    try:
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            key, value = str(override.key_or_group), override.value()
            if key == "gate":
                name = str(value)
            elif (setting := key.removeprefix("gate.")) in GateSettings.__dataclass_fields__:
                changed[setting] = value
            else:
                raise UserError(
                    f"there is no setting {key}; a gate has gate.metrics={{NAME: MARGIN}}, gate.level and gate.no_reply"
                )
        files = [file for folder in folders if (file := folder / "gate" / f"{name}.yaml").is_file()]
        if not files:
            names = sorted({file.stem for folder in folders for file in (folder / "gate").glob("*.yaml")})
            raise UserError(f"there is no gate={name}; options are {', '.join(names)}")
        merged = OmegaConf.structured(GateSettings)
        read = OmegaConf.load(files[0])
        for source in (read, changed):
            if "metrics" in source:  # those that are named are judged, and no others
                merged.metrics = {}
            merged = OmegaConf.merge(merged, source)
        settings = OmegaConf.to_object(merged)
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError, OSError) as problem:
        setting = getattr(problem, "full_key", "")  # of OmegaConf, whose first line does not name it
        raise UserError(f"gate{f'.{setting}' if setting else ''}: {first_line(problem)}") from problem
    assert isinstance(settings, GateSettings)
    return settings


def resolved(settings: GateSettings, baseline: MeasuredRun, candidate: MeasuredRun | None = None) -> GateSettings:
    """Return the settings with the metrics for which knowledge and firmness stand: the greedy accuracy and FRS (d = 1,
    or else the first), if both runs have it. Without a metric they keep their names, and are judged by the answers.
    """
    runs = [run for run in (baseline, candidate) if run is not None and (run is baseline or not run.kept_nothing)]
    scores = FRS.among(name for name in baseline.run.question_metrics)
    standing = {KNOWLEDGE: GREEDY_ACCURACY.name, FIRMNESS: scores.get(1.0, next(iter(scores.values()), ""))}
    return replace(
        settings,
        metrics={
            metric if all(metric in run.run.question_metrics for run in runs) else name: margin
            for name, margin in settings.metrics.items()
            for metric in [standing.get(name, name)]
        },
    )


STATUS: Mapping[Outcome, int] = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}
"""Exit status of each outcome; 2 is a usage error."""


MAX_FACTS = 20_000
"""Maximum number of facts for which the need of a confidence sequence is computed."""


class Differences(NamedTuple):
    """Metric of both runs on their shared questions, in the order asked; NaN if undefined.

    ``groups`` are labels of dependent questions. ``sign`` is −1 if less is better. ``looks`` is true for several looks
    at the data: the metric is then judged by an anytime-valid confidence sequence. ``largest`` is the maximum size of a
    group.
    """

    name: str
    label: str
    margin: float
    baseline: Floats
    candidate: Floats
    groups: NDArray[Any] | None = None
    sign: int = 1
    looks: bool = False
    largest: int = 1

    @property
    def values(self) -> Floats:
        """(n,) improvements of the candidate over the baseline."""
        difference: Floats = self.sign * (self.candidate - self.baseline)
        return difference

    @property
    def units(self) -> int:
        """Number of independent facts for which both runs have the gate's metric."""
        defined = ~np.isnan(self.values)
        return independent(int(defined.sum()), None if self.groups is None else self.groups[defined])

    def bounds(self, level: float) -> tuple[float, float]:
        """Return the interval of the mean difference; NaN without data."""
        if not self.looks:
            return verdict(self.values, self.margin, level, self.groups)[2:4]
        return _sequence_bounds(self, level)


class MetricVerdict(NamedTuple):
    """Verdict on one metric of a gate.

    ``needed`` facts decide, ``n`` facts are available, in ``units`` independent groups; the means are over shared facts
    with the metric in both runs. ``p_mcnemar`` is set for knowledge alone; ``unchanged`` is true if no fact differs.
    """

    name: str
    label: str
    margin: float
    outcome: Outcome
    n: int
    baseline: float
    candidate: float
    difference: float
    low: float
    high: float
    needed: float
    p_mcnemar: float | None = None
    unchanged: bool = False
    units: int = 0

    @property
    def more(self) -> float:
        """Number of further facts that decide if the true difference is 0; 0 with enough of them, NaN if unknown."""
        return self.needed if not math.isfinite(self.needed) else max(0.0, self.needed - self.n)


class Decision(NamedTuple):
    """Outcome of the gate, the verdicts on its metrics, and the reasons, in sentences."""

    outcome: Outcome
    metrics: list[MetricVerdict]
    reasons: list[str]
    identical: bool = False


def differences(
    baseline: MeasuredRun,
    candidate: MeasuredRun,
    shared: Sequence[tuple[str, str]],
    settings: GateSettings,
    looks: bool = False,
) -> list[Differences]:
    """Return the differences that a gate judges, by metric, on the ``shared`` questions, in their order.

    A candidate that kept no question has undefined metrics of kept ones. Raises UserError for any other metric that
    cannot be judged.
    """
    one, other = _rows(baseline, shared), _rows(candidate, shared)
    labels = baseline.run.groups()
    groups = None if labels is None else np.asarray(labels)[one]
    largest = 1 if labels is None else int(np.unique(np.asarray(labels), return_counts=True)[1].max())
    metrics = []
    for name, margin in resolved(settings, baseline, candidate).metrics.items():
        if name in (KNOWLEDGE, FIRMNESS):
            answered = (knowledge if name == KNOWLEDGE else firmness)(baseline, candidate, shared)
            if answered is not None:
                values = answered.baseline, answered.candidate
                metrics.append(Differences(name, answered.label, margin, *values, groups, 1, looks, largest))
            continue
        spec = gate_spec(baseline, name)
        if not candidate.kept_nothing:
            gate_spec(candidate, name)
        values = baseline.values(name, one), candidate.values(name, other)
        sign = 1 if spec.more_is_better else -1
        words = spec.words.replace(" (", ", ").replace(")", "")
        label = f"{spec.construct} ({words})" if spec.construct else spec.words
        if name == GREEDY_ACCURACY.name:
            label = knowledge_label(baseline, candidate)
        metrics.append(Differences(name, label, margin, *values, groups, sign, looks, largest))
    if not metrics:
        raise UserError(f"gate.metrics names only firmness. {no_firmness(baseline, candidate)}")
    return metrics


def gate_spec(run: MeasuredRun, metric: str) -> MetricSpec:
    """Return the spec of a metric that a gate can judge. Raises UserError if a run lacks the metric by question, for
    one without a direction (more_is_better), and for values outside 0 to 1.
    """
    if metric not in run.run.question_metrics:
        available = "it kept no questions" if run.kept_nothing else f"it has {', '.join(run.run.headline_means)}"
        raise UserError(f"gate.metrics names {metric}, for which {run.name} has no per-question values; {available}")
    spec, values = run.run.spec(metric), run.run.values(metric)
    if spec is None or spec.more_is_better is None:
        raise UserError(
            f"gate.metrics names {metric}, for which neither a higher nor a lower value is better: remove it"
        )
    if np.nanmin(values, initial=0) < 0 or np.nanmax(values, initial=0) > 1:
        raise UserError(
            f"gate.metrics names {metric}, but some of its per-question values lie outside 0 to 1, and the interval of "
            "a gate needs values in that range: remove it, and compare the runs (robust-eval compare)"
        )
    return spec


def decide(
    baseline: MeasuredRun, candidate: MeasuredRun, metrics: Sequence[Differences], settings: GateSettings
) -> Decision:
    """Return the gate's decision from the metrics.

    It is INCONCLUSIVE if the share of missing greedy or sampled answers of a run exceeds ``no_reply``. Runs with
    identical answers PASS. Otherwise the gate FAILS if Holm's procedure rejects, at half of 1 − level, that the mean of
    some metric is no more than its margin below the baseline's. It PASSES if the interval of each metric lies above
    −margin.
    """
    judged = metric_verdicts(metrics, settings.level, final=True)
    missing = [reason for run in (baseline, candidate) if (reason := _missing_answers(run, settings.no_reply))]
    if missing:
        return Decision("INCONCLUSIVE", judged, missing)
    if same_answers(baseline, candidate):
        return Decision("PASS", judged, ["The answers of both runs are identical."], identical=True)
    outcome = joint_outcome(judged)
    cut = truncation(differing([baseline.run, candidate.run]))
    warning = [f"Truncation differs ({listed(cut)}): {TRUNCATED}"] if cut else []
    if FIRMNESS in settings.metrics and len(judged) < len(settings.metrics):
        warning.append(no_firmness(baseline, candidate))
    return Decision(outcome, judged, [*map(sentence, judged), *warning])


def joint_outcome(judged: Sequence[MetricVerdict]) -> Outcome:
    """Return the joint outcome of all metrics of a gate."""
    outcomes = {each.outcome for each in judged}
    return "FAIL" if "FAIL" in outcomes else "PASS" if outcomes == {"PASS"} else "INCONCLUSIVE"


def metric_verdicts(metrics: Sequence[Differences], level: float, final: bool = False) -> list[MetricVerdict]:
    """Return the gate's verdict on each metric: FAIL where Holm's procedure rejects it, PASS by its own interval.

    A one-sided test at α' rejects if the interval at level 1 − 2 α' lies below −margin: the order of the p-values
    suffices. After a rejection at α / 2m the others are tested at α / 2(m − 1). The number of facts needed is computed
    at the ``final`` look alone.
    """
    own = {each.name: each.bounds(level) for each in metrics}
    failed: set[str] = set()
    while left := [each for each in metrics if each.name not in failed]:
        strict = own if len(left) == 1 else {each.name: each.bounds(1 - (1 - level) / len(left)) for each in left}
        rejected = {each.name for each in left if strict[each.name][1] < -each.margin}
        if not rejected:
            break
        failed |= rejected
    return [_metric_verdict(each, level, own[each.name], each.name in failed, final) for each in metrics]


def _metric_verdict(
    metric: Differences, level: float, bounds: tuple[float, float], failed: bool, final: bool
) -> MetricVerdict:
    values = metric.values
    defined = ~np.isnan(values)
    n = int(defined.sum())
    low, high = bounds
    outcome: Outcome = "FAIL" if failed else outcome_of(low, math.inf, metric.margin, metric.units)
    needed = (
        _needed_at_any_time(metric, level)
        if metric.looks and final
        else facts_needed(values, metric.margin, metric.groups, level)
    )
    one, other, between = (
        float(each[defined].mean()) if n else math.nan for each in (metric.baseline, metric.candidate, values)
    )
    is_knowledge = metric.name in (KNOWLEDGE, GREEDY_ACCURACY.name)
    p = mcnemar(metric.baseline, metric.candidate) if is_knowledge else None
    unchanged = n > 0 and not values[defined].any()
    labels = metric.name, metric.label, metric.margin
    return MetricVerdict(*labels, outcome, n, one, other, between, low, high, needed, p, unchanged, metric.units)


def _needed_at_any_time(metric: Differences, level: float) -> float:
    """Return the number of facts after which the confidence sequence would PASS if these were repeated with a mean of
    0.

    It is inf beyond :data:`MAX_FACTS`.
    """
    values = metric.values[~np.isnan(metric.values)]
    if len(values) == 0:
        return math.nan
    centred = np.clip(values - values.mean(), -1, 1)
    low, _ = confidence_sequence(np.resize(centred, MAX_FACTS), level)
    decided = np.flatnonzero(low > -metric.margin)
    return float(decided[0] + 1) if len(decided) else math.inf


def _sequence_bounds(metric: Differences, level: float) -> tuple[float, float]:
    """Return the gate's anytime-valid interval of the mean difference.

    Each group of questions gives one value: the sum of the differences to −margin, over its maximum.
    """
    values = metric.values
    if not np.any(~np.isnan(values)):
        return math.nan, math.nan
    if metric.groups is None:
        low, high = confidence_sequence(values, level)
        return float(low[-1]), float(high[-1])
    _, first, group = np.unique(metric.groups, return_index=True, return_inverse=True)
    defined = ~np.isnan(values)
    scale = (1 + metric.margin) * metric.largest
    sums = np.bincount(group, np.where(defined, values + metric.margin, 0.0)) / scale
    low, high = confidence_sequence(sums[np.argsort(first)], level)
    size = float(defined.sum() / len(sums))
    ends = (float(bound[-1]) * scale / size - metric.margin for bound in (low, high))
    return max(-1.0, next(ends)), min(1.0, next(ends))


def sentence(judged: MetricVerdict) -> str:
    """Return a sentence on the verdict on a metric and, if it is undecided, on the number of facts needed."""
    if judged.n == 0:
        return f"{judged.label}: no fact has a value in both runs."
    summary = (
        f"{judged.label}: {number(judged.candidate)} (baseline {number(judged.baseline)}) over {judged.n:,} facts, "
        f"a difference of {signed(judged.difference)} ({signed(judged.low)} to {signed(judged.high)}; "
        f"margin {judged.margin:g})"
    )
    if judged.outcome == "FAIL":
        return f"{summary}: worse by more than the margin."
    if judged.outcome == "PASS":
        return f"{summary}: not worse by more than the margin."
    if judged.low > -judged.margin:
        few = f"{judged.units} facts" if judged.units == judged.n else f"{judged.units} groups of facts"
        same = ", though no fact differs" if judged.unchanged else ""
        return f"{summary}: undecided{same}: {few} are too few for a PASS, which needs {MIN_UNITS}."
    if math.isinf(judged.needed) or judged.more == 0:
        return (
            f"{summary}: too close to the margin to decide; a verdict needs many more questions, or a wider margin "
            "that is chosen before the next gate."
        )
    needs = f"a PASS at this margin needs about {judged.needed:,.0f} facts"
    if judged.unchanged:
        return f"{summary}: undecided; no fact differs, but {needs}."
    return (
        f"{summary}: undecided; if both models are equally good, {needs}. Run the gate on new facts only; do not "
        "include these again."
    )


def _missing_answers(run: MeasuredRun, max_share: float) -> str:
    """Return a sentence on the greedy or sampled answers of a run if too many are missing; else empty."""
    for sampler, outcomes in run.outcomes().items():
        lost, of = sum(outcomes[outcome] for outcome in NO_REPLY), outcomes.total()
        if lost > max_share * of:
            kind, failed = "greedy" if sampler == GREEDY else "sampled", outcomes["error"]
            share = number(lost / of, ".0%")
            return (
                f"{share} of the {kind} answers of {run.name} are missing ({failed:,} of {of:,} failed, "
                f"{lost - failed:,} were filtered), more than gate.no_reply={max_share:g} allows."
            )
    return ""


def _rows(run: MeasuredRun, shared: Sequence[tuple[str, str]]) -> NDArray[np.intp]:
    place = {key: row for row, key in enumerate(run.run.keys())}
    return np.array([place[key] for key in shared], dtype=np.intp)
