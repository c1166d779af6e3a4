"""What a fact withstands of each kind of pressure, and which breaks it first (docs/profile.md)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robust_eval.stats.interval import Floats


class Pressure(NamedTuple):
    """What n facts withstand of one kind of pressure: the ``share`` (n,) of it, in [0, 1]; NaN where that is not known.

    ``held`` (n,) is 1 for a fact that withstands all of it, else 0; NaN as above.
    """

    name: str
    share: Floats
    held: Floats


def breaks_first(pressures: Sequence[Pressure]) -> list[str | None]:
    """Return for each fact the name of the pressure that it withstands least of, of those that break it; several, as
    "doubt, order", where it withstands as little of each, empty where it withstands all, None where nothing is known.

    Examples
    --------
    >>> heat = Pressure("temperature", np.array([1.0, 0.4, 0.4]), np.array([1.0, 0.0, 0.0]))
    >>> doubt = Pressure("doubt", np.array([1.0, 0.8, 0.4]), np.array([1.0, 0.0, 0.0]))
    >>> breaks_first([heat, doubt])
    ['', 'temperature', 'temperature, doubt']
    """
    share = np.column_stack([pressure.share for pressure in pressures])
    held = np.column_stack([pressure.held for pressure in pressures])
    found: list[str | None] = []
    for withstood, firm in zip(share, held, strict=True):
        known = ~np.isnan(withstood) & ~np.isnan(firm)
        broken = known & (firm < 1)
        least = withstood[broken].min() if broken.any() else np.nan
        as_soon = (broken & (withstood <= least + 1e-9)).tolist()
        first = [pressure.name for pressure, breaks in zip(pressures, as_soon, strict=True) if breaks]
        found.append(", ".join(first) if known.any() else None)
    return found


def share_of_steps(breaking: Floats, steps: Sequence[float]) -> Floats:
    """Return (n,) the share of the steps of a pressure, such as temperatures or turns, that lie before a fact breaks;
    NaN where it is not known where it does.

    >>> share_of_steps(np.array([1.0, np.inf, np.nan]), [0.5, 1.0, 2.0, 3.0])
    array([0.25, 1.  ,  nan])
    """
    before = np.asarray(steps, dtype=float) < breaking[:, None]
    share: Floats = before.mean(axis=1) if len(steps) else np.isinf(breaking).astype(float)
    return np.where(np.isnan(breaking), np.nan, share)
