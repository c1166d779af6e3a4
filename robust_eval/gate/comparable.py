"""Conditions of a comparison: settings that must agree so that a difference is one of the models."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from robust_eval.error import UserError
from robust_eval.gate.measured_run import MeasuredRun

_ALIKE = ("temperatures", "trials", "selection", "min_confidence", "max_questions", "rewrites")
"""Settings of samplers: the grid, k, the selection."""


def refuse_incomparable(baseline: MeasuredRun, candidate: MeasuredRun) -> list[tuple[str, str]]:
    """Return the questions that both asked, by id and text; UserError names what differs that must not: k, the grid,
    the grader, the selection, how a metric is computed, or the key of a shared question.
    """
    refuse_other_settings(baseline, candidate.run.settings, candidate.name)
    return shared_questions(baseline, candidate.keys, candidate.name)


def shared_questions(baseline: MeasuredRun, keys: Mapping[tuple[str, str], str], name: str) -> list[tuple[str, str]]:
    """Return those of the baseline's questions that a candidate, called ``name``, asks as well. ``keys`` say what is
    right of each of its questions.

    Raises UserError where there is none, or where the key of one differs.
    """
    shared = [question for question in baseline.keys if question in keys]
    if not shared:
        raise UserError(f"{name} cannot be gated by {baseline.name}: they share no question (id and text)")
    for question in shared:
        if baseline.keys[question] != keys[question]:
            raise UserError(
                f"{name} cannot be gated by {baseline.name}: the key of question {question[0]} is "
                f"{_right(keys[question])} and was {_right(baseline.keys[question])}"
            )
    return shared


def refuse_other_settings(baseline: MeasuredRun, other: Mapping[str, Any], name: str) -> None:
    """Raise UserError where settings of a candidate, called ``name``, differ that must agree with the baseline's."""
    one = baseline.run.settings
    for setting in sorted({*_compared(one), *_compared(other)}):
        if one.get(setting) != other.get(setting):
            raise UserError(
                f"{name} cannot be gated by {baseline.name}: {setting} is {_said(other, setting)} and was "
                f"{_said(one, setting)}; measure both alike"
            )


def _compared(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the settings that must agree."""
    for name in settings:
        group, _, rest = name.partition(".")
        own = rest.partition(".")[2]
        sampled = group == "sampler" and own in _ALIKE
        if sampled or (group == "metric" and own != "d") or group in ("grader", "aggregator") or name == "reader":
            yield name


def _said(settings: Mapping[str, Any], setting: str) -> str:
    return str(settings[setting]) if setting in settings else "not set"


def _right(key: str) -> str:
    """Return a key as a person reads it."""
    try:
        found = json.loads(key)
        choices, correct = found.get("choices"), found.get("correct")
        if choices:
            return f"{choices[correct]!r} of {', '.join(map(str, choices))}"
        return "; ".join(map(str, found.get("answers", []))) or "none"
    except (ValueError, AttributeError, TypeError, IndexError):
        return key
