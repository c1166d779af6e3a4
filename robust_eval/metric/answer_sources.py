"""Choice of the sampler whose answers a metric reads (docs/methods.md, §4)."""

from collections.abc import Mapping, Sequence

from robust_eval.error import UserError
from robust_eval.metric.metric_spec import MetricSpec, point
from robust_eval.metric.score import Metric
from robust_eval.sampler.base import ORDER, THOUGHT, TURN, Conditions

_NO_ORDERS = (
    "metric=order needs answers to choices in several orders or forms: choose sampler=order, or "
    "sampler.orders=rotations with sampler=perturbation"
)
_OWN = {
    TURN: (
        "metric=challenge needs answers that were doubted, turn by turn: choose sampler=challenge",
        "metric={} does not read the answers of conversations that go on: metric=challenge does",
    ),
    THOUGHT: (
        "metric=thinking needs answers after thoughts of known length: choose sampler=thinking",
        "metric={} does not read the answers after thoughts of several lengths: metric=thinking does",
    ),
}
"""Axes that one metric alone reads: the errors for that metric without it, and for the other metrics with it."""


def sources(metrics: Mapping[str, Metric], answered: Mapping[str, Conditions]) -> dict[str, str]:
    """Return for each metric the name of the sampler whose answers it reads.

    It is the first that varies what the metric is about, or else the first whose answers it can score. Raises UserError
    where there is none, with what the metric lacks.
    """
    return {name: _source(name, metric, answered) for name, metric in metrics.items()}


def names_of(figure: MetricSpec, metric: Metric, temperatures: Sequence[float]) -> list[str]:
    """Return the names of a metric's figure in a run, as far as settings tell: ``frs.d{}`` for each d, a curve at each
    temperature.
    """
    numbers = getattr(metric, figure.number, None) if figure.numbered else None
    names = [figure.name]
    if isinstance(numbers, list):
        names = [figure.name.replace("{}", f"{number:g}") for number in numbers]
    if figure not in getattr(metric, "curves", ()):
        return names
    return [point(name, t) for name in names for t in temperatures]


def _source(metric_name: str, metric: Metric, answered: Mapping[str, Conditions]) -> str:
    lacking = None
    for name, conditions in sorted(answered.items(), key=lambda entry: entry[1].axis != metric.axis):
        try:
            if metric.axis == ORDER and not conditions.arranges:
                raise UserError(_NO_ORDERS)
            for axis, (lacks, other) in _OWN.items():
                if (metric.axis == axis) != (conditions.axis == axis):
                    raise UserError(lacks if metric.axis == axis else other.format(metric_name))
            metric.check(conditions.temperatures, conditions.repetitions)
        except UserError as problem:
            lacking = lacking or problem
        else:
            return name
    assert lacking is not None
    raise lacking
