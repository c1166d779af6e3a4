"""Conditions of a comparison: settings that must agree for a difference to be due to the models."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from robust_eval.error import UserError
from robust_eval.gate.measured_run import MeasuredRun

_SAMPLER_SETTINGS = ("temperatures", "trials", "selection", "min_confidence", "max_questions", "rewrites")
"""Compared settings of samplers: the grid, k, the selection."""


def refuse_incomparable(baseline: MeasuredRun, candidate: MeasuredRun) -> list[tuple[str, str]]:
    """Return the shared questions, by id and text; UserError if k, the grid, the grader, the selection, a metric's
    setting, or the key of a shared question differs.
    """
    refuse_other_settings(baseline, candidate.run.settings, candidate.name)
    return shared_questions(baseline, candidate.keys, candidate.name)


def shared_questions(baseline: MeasuredRun, keys: Mapping[tuple[str, str], str], name: str) -> list[tuple[str, str]]:
    """Return the questions that the baseline shares with a candidate called ``name``, with these ``keys``.

    Raises UserError if there is none, or if the key of one differs.
    """
    shared = [question for question in baseline.keys if question in keys]
    if not shared:
        raise UserError(f"{name} cannot be gated by {baseline.name}: they share no question (id and text)")
    for question in shared:
        if baseline.keys[question] != keys[question]:
            raise UserError(
                f"{name} cannot be gated by {baseline.name}: the key of question {question[0]} is "
                f"{_key_text(keys[question])} and was {_key_text(baseline.keys[question])}"
            )
    return shared


def refuse_other_settings(baseline: MeasuredRun, other: Mapping[str, Any], name: str) -> None:
    """Raise UserError if a compared setting of a candidate called ``name`` differs from the baseline's."""
    one = baseline.run.settings
    for setting in sorted({*_compared(one), *_compared(other)}):
        if one.get(setting) != other.get(setting):
            raise UserError(
                f"{name} cannot be gated by {baseline.name}: {setting} is {_setting_text(other, setting)} and was "
                f"{_setting_text(one, setting)}; measure both alike"
            )


def _compared(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the settings that must agree."""
    for name in settings:
        group, _, rest = name.partition(".")
        option = rest.partition(".")[2]
        sampled = group == "sampler" and option in _SAMPLER_SETTINGS
        if sampled or (group == "metric" and option != "d") or group in ("grader", "aggregator") or name == "reader":
            yield name


def _setting_text(settings: Mapping[str, Any], setting: str) -> str:
    return str(settings[setting]) if setting in settings else "not set"


def _key_text(key: str) -> str:
    """Return a key as text for people."""
    try:
        entries = json.loads(key)
        choices, correct = entries.get("choices"), entries.get("correct")
        if choices:
            return f"{choices[correct]!r} of {', '.join(map(str, choices))}"
        return "; ".join(map(str, entries.get("answers", []))) or "none"
    except (ValueError, AttributeError, TypeError, IndexError):
        return key
