"""Early stopping of trials: its rules, and the reasons against it."""

import logging
from collections.abc import Mapping

from robust_eval.answer import EarlyStopping
from robust_eval.error import UserError
from robust_eval.metric.sampler_choice import choose_samplers
from robust_eval.metric.score import Metric
from robust_eval.sampler.base import Conditions, Sampler
from robust_eval.sampler.recorded_answers import RecordedAnswers

log = logging.getLogger(__name__)


def early_stopping_rules(
    samplers: Mapping[str, Sampler], metrics: Mapping[str, Metric], uses_judge: bool
) -> dict[str, EarlyStopping]:
    """Return the rules of the samplers with early stopping; log the reasons of those that cannot stop early.

    ``uses_judge`` is True if a model gives the verdicts.
    """
    rules = {}
    for name, sampler in samplers.items():
        if sampler.early_stop:
            thresholds, reasons = _thresholds_and_reasons(metrics, samplers, name)
            late = ["the judge grades answers only after all have been sampled"] if uses_judge else []
            if reasons := [*reasons, *late, *sampler.full_sampling_reasons()]:
                log.warning("sampler=%s ignores early_stop=true: %s", name, "; ".join(reasons))
            else:
                (threshold,) = thresholds
                rules[name] = EarlyStopping(tuple(sampler.temperatures), threshold)
    return rules


def refuse_early_stopping(file: RecordedAnswers, metrics: Mapping[str, Metric]) -> None:
    """Raise UserError if a metric needs answers that the run of a file skipped by early stopping."""
    for name, rule in file.early_stopping.items():
        thresholds, reasons = _thresholds_and_reasons(metrics, file.conditions(), name)
        if reasons or thresholds != [rule.threshold]:
            reason = "; ".join(reasons) or f"metric.frs.threshold={thresholds[0]:g} needs different answers"
            raise UserError(
                f"{file.file}: {reason}, but its sampler ({name}) stopped early (sampler.early_stop=true) and has only "
                f"the answers that breaking temperatures at metric.frs.threshold={rule.threshold:g} need: repeat the "
                "run with sampler.early_stop=false, which requests only the missing answers"
            )


def _thresholds_and_reasons(
    metrics: Mapping[str, Metric], conditions: Mapping[str, Conditions], sampler: str
) -> tuple[list[float], list[str]]:
    """Return the thresholds of a sampler's metrics, one if it can stop early, and the reasons against that."""
    readers = [metric for metric, chosen in choose_samplers(metrics, conditions).items() if chosen == sampler]
    threshold_of = {metric: metrics[metric].early_stop_threshold for metric in readers}
    reasons = [f"metric={metric} reads all answers" for metric, threshold in threshold_of.items() if threshold is None]
    thresholds = sorted({threshold for threshold in threshold_of.values() if threshold is not None})
    if len(thresholds) > 1:
        reasons.append(f"metrics have several thresholds ({', '.join(f'{each:g}' for each in thresholds)})")
    return thresholds, reasons if readers else ["no metric reads it"]
