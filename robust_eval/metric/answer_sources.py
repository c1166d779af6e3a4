"""Which answers a metric reads, where several samplers asked (docs/methods.md, §4)."""

from collections.abc import Mapping

from robust_eval.error import UserError
from robust_eval.metric.score import Metric
from robust_eval.sampler.base import ORDER, TURN, Conditions

_ALONE = {
    ORDER: "metric=order needs answers to choices in several orders or forms: choose sampler=order",
    TURN: "metric=doubt needs conversations that go on with doubts: choose sampler=challenge",
}
"""What metrics lack that can score answers of one kind alone."""


def sources(metrics: Mapping[str, Metric], answered: Mapping[str, Conditions]) -> dict[str, str]:
    """Return for each metric the name of the sampler whose answers it reads.

    It is the first that varies what the metric is about, or else the first whose answers it can score: answers under
    doubt are none of the others. Raises UserError where there is none, with what the metric lacks.
    """
    return {name: _source(metric, answered) for name, metric in metrics.items()}


def _source(metric: Metric, answered: Mapping[str, Conditions]) -> str:
    lacking = None
    able = {
        name: conditions
        for name, conditions in answered.items()
        if conditions.axis == metric.axis or (metric.axis not in _ALONE and conditions.axis != TURN)
    }
    if not able:
        raise UserError(_ALONE.get(metric.axis, f"answers under doubt say nothing of a metric by {metric.axis}"))
    for name, conditions in sorted(able.items(), key=lambda entry: entry[1].axis != metric.axis):
        try:
            metric.check(conditions.temperatures, conditions.repetitions)
        except UserError as problem:
            lacking = lacking or problem
        else:
            return name
    assert lacking is not None
    raise lacking
