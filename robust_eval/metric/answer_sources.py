"""Which answers a metric reads, where several samplers asked (docs/methods.md, §4)."""

from collections.abc import Mapping

from robust_eval.error import UserError
from robust_eval.metric.score import Metric
from robust_eval.sampler.base import ORDER, TURN, Conditions

_NO_ORDERS = (
    "metric=order needs answers to choices in several orders or forms: choose sampler=order, or "
    "sampler.orders=rotations with sampler=perturbation"
)
_NO_TURNS = "metric=challenge needs answers that were doubted, turn by turn: choose sampler=challenge"
_TURNS = "metric={} does not read the answers of conversations that go on: metric=challenge does"


def sources(metrics: Mapping[str, Metric], answered: Mapping[str, Conditions]) -> dict[str, str]:
    """Return for each metric the name of the sampler whose answers it reads.

    It is the first that varies what the metric is about, or else the first whose answers it can score. Raises UserError
    where there is none, with what the metric lacks.
    """
    return {name: _source(name, metric, answered) for name, metric in metrics.items()}


def _source(metric_name: str, metric: Metric, answered: Mapping[str, Conditions]) -> str:
    lacking = None
    for name, conditions in sorted(answered.items(), key=lambda entry: entry[1].axis != metric.axis):
        try:
            if metric.axis == ORDER and not conditions.arranges:
                raise UserError(_NO_ORDERS)
            if (metric.axis == TURN) != (conditions.axis == TURN):
                raise UserError(_NO_TURNS if metric.axis == TURN else _TURNS.format(metric_name))
            metric.check(conditions.temperatures, conditions.repetitions)
        except UserError as problem:
            lacking = lacking or problem
        else:
            return name
    assert lacking is not None
    raise lacking
