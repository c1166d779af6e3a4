"""An estimate: a value with its 95 % confidence interval, and both as a person reads them."""

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


UNDEFINED = Estimate(float("nan"))


def with_interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """Format a value and, in brackets, its bounds and the number of questions, where there are any.

    >>> with_interval(Estimate(0.5, 0.25, 0.75), n=12), with_interval(Estimate(0.5))
    ('0.500 (0.250 to 0.750, n = 12)', '0.500')
    """
    value, said = number(estimate.value, form), interval(estimate, form, n)
    return f"{value} ({said})" if said else value


def interval(estimate: Estimate, form: str = ".3f", n: int | None = None) -> str:
    """Format the bounds of an estimate and the number of questions that it rests on; empty where there are none."""
    said = [] if math.isnan(estimate.low) else [bounds(estimate.low, estimate.high, form)]
    return ", ".join(said if n is None else [*said, f"n = {n:,}"])


def bounds(low: float, high: float, form: str = ".3f") -> str:
    """Format the bounds of an interval, with as many more digits as it takes to tell them apart.

    >>> bounds(0.25, 0.5), bounds(0.6496, 0.6502)
    ('0.250 to 0.500', '0.6496 to 0.6502')
    """
    start, kind = form[:-2], form[-1]
    for digits in range(int(form[-2]), 10):
        words = [number(bound, f"{start}{digits}{kind}") for bound in (low, high)]
        if words[0] != words[1]:
            break
    return " to ".join(words)
