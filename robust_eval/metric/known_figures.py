"""The figures of the metrics that come with the package: runs of earlier versions do not say what theirs are."""

from collections.abc import Sequence
from dataclasses import replace

from robust_eval.metric import (
    agreement_presentation,
    certainty_metric,
    challenge_metric,
    frs_presentation,
    greedy,
    order_metric,
    profile,
    thinking_presentation,
)
from robust_eval.metric.metric_spec import MetricSpec

KNOWN_FIGURES = (
    *frs_presentation.FIGURES,
    *agreement_presentation.FIGURES,
    *certainty_metric.FIGURES,
    *order_metric.FIGURES,
    *challenge_metric.FIGURES,
    *thinking_presentation.FIGURES,
    *profile.FIGURES,
    *greedy.FIGURES,
)

_ADDED = ("is_survival", "is_threshold", "construct", "setting", "comparison")
"""What declarations of earlier versions did not say yet."""
_RENAMED = {"greedy.accuracy": "accuracy.greedy"}
"""Figures that runs of earlier versions have under another name."""


def completed(figures: Sequence[MetricSpec]) -> list[MetricSpec]:
    """Return what a run declares, with what declarations of earlier versions did not say yet."""
    known = {figure.name: figure for figure in KNOWN_FIGURES}
    return [
        replace(figure, **{name: getattr(figure, name) or getattr(now, name) for name in _ADDED})
        if (now := known.get(figure.name))
        else figure
        for figure in figures
    ]


def present_name(number: str) -> str:
    """Return what a number of a run is called by now: a figure, or an end of its interval.

    >>> present_name("greedy.accuracy.low"), present_name("frs.d1")
    ('accuracy.greedy.low', 'frs.d1')
    """
    for before, now in _RENAMED.items():
        if number in (before, f"{before}.low", f"{before}.high"):
            return now + number.removeprefix(before)
    return number
