"""Samplers that ask no more than breaking temperatures need: which can, how far, and what share of the answers that is
(docs/methods.md, §1).
"""

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from robust_eval.answer import Undecided
from robust_eval.config.config import Config
from robust_eval.error import UserError
from robust_eval.metric.answer_sources import sources
from robust_eval.runtime.measured_choices import recalled, remember
from robust_eval.runtime.text import number
from robust_eval.sampler.base import Conditions, Sampler
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.sampler.temperature_sweep import asks_undecided, why_whole

log = logging.getLogger(__name__)

_MEMORY = "asked_share"
HALF = 0.5
"""The share that is expected where no earlier run says more."""


def undecided(config: Config, samplers: Mapping[str, Sampler]) -> dict[str, Undecided]:
    """Return how far each sampler asks that is set to ask no more than breaking temperatures need, and can; log why
    one cannot.
    """
    found = {}
    for name, sampler in samplers.items():
        if asks_undecided(sampler):
            if reasons := why_all(config, samplers, name):
                log.warning("sampler=%s asks all, in spite of ask=undecided: %s", name, "; ".join(reasons))
            else:
                (threshold,) = _settling(config, samplers, name)[0]
                found[name] = Undecided(tuple(sampler.temperatures), threshold)
    return found


def why_all(config: Config, samplers: Mapping[str, Sampler], name: str) -> list[str]:
    """Return why a sampler has to ask all; nothing where breaking temperatures are all that is read."""
    judged = ["the verdicts of a judge come after the answers"] if config.grader.uses_model else []
    return [*_settling(config, samplers, name)[1], *judged, *why_whole(samplers[name])]


def refuse_undecided(config: Config, file: RecordedAnswers) -> None:
    """Raise UserError where a metric reads answers in a file that were not asked for because another did not."""
    if file.asked is None:
        return
    for name, asked in file.asked.undecided.items():
        thresholds, reasons = _settling(config, file.conditions(), name)
        if reasons or thresholds != [asked.threshold]:
            reason = "; ".join(reasons) or f"metric.frs.threshold={thresholds[0]:g} needs others"
            raise UserError(
                f"{file.file}: {reason}, and those of {name} were asked for with sampler.ask=undecided, only as far as "
                f"breaking temperatures at metric.frs.threshold={asked.threshold:g} need: ask the model with "
                "sampler.ask=all, which asks only for the rest"
            )


def _settling(config: Config, answered: Mapping[str, Conditions], sampler: str) -> tuple[list[float], list[str]]:
    """Return the thresholds by which metrics read the breaking temperatures of a sampler alone, and which read more."""
    thresholds, reasons = [], []
    readers = [metric for metric, source in sources(config.metric, answered).items() if source == sampler]
    for metric in readers:
        threshold = getattr(
            config.metric[metric], "early_stop_threshold", None
        )  # one of somebody's own need not say it
        if threshold is None:
            reasons.append(f"metric={metric} reads all answers")
        else:
            thresholds.append(threshold)
    return thresholds, reasons if readers else ["no metric reads it"]


def remember_share(identity: Mapping[str, Any], asked: int, planned: int) -> None:
    """Keep which share of the planned answers a model of this ``identity`` was asked for."""
    remember(_MEMORY, _digest(identity), repr(asked / planned))


def expected_share(identity: Mapping[str, Any]) -> tuple[float, str]:
    """Return the share that is expected of a model, and on what that rests."""
    try:
        known = float(recalled(_MEMORY, _digest(identity)) or "")
    except ValueError:  # a file of the cache that is not there, or damaged
        known = math.nan
    if not 0 <= known <= 1:
        return HALF, "half: no earlier run with this model says more"
    return known, f"{number(known, '.0%')}, as in the last such run with this model"


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
