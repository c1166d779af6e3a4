"""Estimates: a value with its 95 % confidence interval, and its text form."""

import math
from typing import NamedTuple

from robust_eval.runtime.text import number


class Estimate(NamedTuple):
    """A value with its 95 % confidence interval; NaN where undefined, NaN bounds where there is no interval.

    No interval is without width: where all questions are alike, it is exact or there is none
    (:func:`robust_eval.metric.score.mean_estimate`).
    """

    value: float
    low: float = float("nan")
    high: float = float("nan")


def columns_of(name: str, estimate: Estimate) -> dict[str, float]:
    """Return an estimate as cells of a table: ``name``, ``name_low`` and ``name_high``."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


UNDEFINED = Estimate(float("nan"))


def with_interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """Format a value with, in brackets, its bounds and number of questions, if any.

    >>> with_interval(Estimate(0.5, 0.25, 0.75), n=12), with_interval(Estimate(0.5))
    ('0.500 (0.250 to 0.750, n = 12)', '0.500')
    """
    value, details = number(estimate.value, form), interval(estimate, form, n)
    return f"{value} ({details})" if details else value


def interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """Format the bounds and the number of questions of an estimate; empty if it has neither."""
    details = [] if math.isnan(estimate.low) else [bounds(estimate.low, estimate.high, form)]
    return ", ".join(details if n is None else [*details, f"n = {n:,}"])


def bounds(low: float, high: float, form: str = ".3f") -> str:
    """Format the bounds of an interval, with more digits until they differ.

    >>> bounds(0.25, 0.5), bounds(0.6496, 0.6502)
    ('0.250 to 0.500', '0.6496 to 0.6502')
    """
    start, kind = form[:-2], form[-1]
    for digits in range(int(form[-2]), 10):
        words = [number(bound, f"{start}{digits}{kind}") for bound in (low, high)]
        if words[0] != words[1]:
            break
    return " to ".join(words)
