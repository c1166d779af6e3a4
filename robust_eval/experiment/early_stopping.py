"""Early stopping of trials: its rules, the reasons against it, and the share of answers that it is expected to need."""

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from robust_eval.answer import EarlyStopping
from robust_eval.error import UserError
from robust_eval.metric.sampler_choice import choose_samplers
from robust_eval.metric.score import Metric
from robust_eval.runtime.cache import cached_choice, store_choice
from robust_eval.runtime.text import number
from robust_eval.sampler.base import Conditions, Sampler
from robust_eval.sampler.recorded_answers import RecordedAnswers

log = logging.getLogger(__name__)

_MEMORY = "asked_share"
DEFAULT_SHARE = 0.5
"""Expected share without an earlier run."""


def early_stopping_rules(
    samplers: Mapping[str, Sampler], metrics: Mapping[str, Metric], uses_judge: bool
) -> dict[str, EarlyStopping]:
    """Return the rules of the samplers with early stopping; log the reasons of those that cannot stop early.

    ``uses_judge`` is True if a model gives the verdicts.
    """
    rules = {}
    for name, sampler in samplers.items():
        if sampler.early_stop:
            if reasons := reasons_for_full_sampling(name, samplers, metrics, uses_judge):
                log.warning("sampler=%s ignores early_stop=true: %s", name, "; ".join(reasons))
            else:
                (threshold,) = _thresholds_and_reasons(metrics, samplers, name)[0]
                rules[name] = EarlyStopping(tuple(sampler.temperatures), threshold)
    return rules


def reasons_for_full_sampling(
    name: str, samplers: Mapping[str, Sampler], metrics: Mapping[str, Metric], uses_judge: bool
) -> list[str]:
    """Return the reasons against early stopping of a sampler; none if metrics read only breaking temperatures."""
    late = ["the judge grades answers only after all have been sampled"] if uses_judge else []
    return [*_thresholds_and_reasons(metrics, samplers, name)[1], *late, *samplers[name].full_sampling_reasons()]


def refuse_early_stopping(file: RecordedAnswers, metrics: Mapping[str, Metric]) -> None:
    """Raise UserError if a metric needs answers that the run of a file skipped by early stopping."""
    for name, rule in file.early_stopping.items():
        thresholds, reasons = _thresholds_and_reasons(metrics, file.conditions(), name)
        if reasons or thresholds != [rule.threshold]:
            reason = "; ".join(reasons) or f"metric.frs.threshold={thresholds[0]:g} needs other answers"
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


def remember_share(identity: Mapping[str, Any], requested: int, planned: int) -> None:
    """Cache the share of planned answers that a run with early stopping requested of a model with this ``identity``."""
    store_choice(_MEMORY, _digest(identity), repr(requested / planned))


def expected_share(identity: Mapping[str, Any]) -> tuple[float, str]:
    """Return the share of answers that early stopping is expected to need for a model, and the reason."""
    try:
        share = float(cached_choice(_MEMORY, _digest(identity)) or "")
    except ValueError:  # a missing or damaged file of the cache
        share = math.nan
    if not 0 <= share <= 1:
        return DEFAULT_SHARE, "assuming half, because there is no earlier run of this model"
    return share, f"{number(share, '.0%')}, as in the last such run of this model"


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
