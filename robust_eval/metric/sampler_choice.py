"""Choice of the sampler whose answers a metric scores (docs/methods.md, §4)."""

from collections.abc import Mapping
from contextlib import suppress

from robust_eval.error import UserError
from robust_eval.metric.score import Metric
from robust_eval.sampler.base import ORDER, REASONING, TURN, Conditions

_NO_ORDERS = (
    "metric=order needs answers to choices in several orders or forms: choose sampler=order, or "
    "sampler.orders=rotations with sampler=perturbation"
)
_EXCLUSIVE_AXES = {
    TURN: (
        "metric=challenge needs answers to pushback, turn by turn: choose sampler=challenge",
        "metric={} cannot score answers after pushback: choose metric=challenge",
    ),
    REASONING: (
        "metric=thinking needs answers after reasoning of known length: choose sampler=thinking",
        "metric={} cannot score answers after reasoning of several lengths: choose metric=thinking",
    ),
}
"""Axes of one metric alone: the error of that metric without the axis, and of other metrics with it."""


def choose_samplers(metrics: Mapping[str, Metric], samplers: Mapping[str, Conditions]) -> dict[str, str]:
    """Return the name of the sampler whose answers each metric scores.

    It is the first that varies what the metric is about, or else the first whose answers it can score. Raises UserError
    where there is none, with what the metric lacks.
    """
    return {name: _sampler_for(name, metric, samplers) for name, metric in metrics.items()}


def choose_available_samplers(metrics: Mapping[str, Metric], samplers: Mapping[str, Conditions]) -> dict[str, str]:
    """Return the sampler's name for each metric that the answers of one of the ``samplers`` can score."""
    chosen = {}
    for name, metric in metrics.items():
        with suppress(UserError):
            chosen[name] = _sampler_for(name, metric, samplers)
    return chosen


def _sampler_for(metric_name: str, metric: Metric, samplers: Mapping[str, Conditions]) -> str:
    errors = []
    for name, conditions in sorted(samplers.items(), key=lambda entry: entry[1].axis != metric.axis):
        try:
            if metric.axis == ORDER and not conditions.arranges_choices:
                raise UserError(_NO_ORDERS)
            for axis, (lacks, other) in _EXCLUSIVE_AXES.items():
                if axis in metric.other_axes:
                    continue
                if (metric.axis == axis) != (conditions.axis == axis):
                    raise UserError(lacks if metric.axis == axis else other.format(metric_name))
            metric.check(conditions.temperatures, conditions.repetitions)
        except UserError as problem:
            errors.append(problem)
        else:
            return name
    raise errors[0] if errors else UserError(f"metric={metric_name} needs a sampler: set sampler=NAME")
