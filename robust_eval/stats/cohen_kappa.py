"""Agreement of two who label beyond what chance alone would give."""

import math

import numpy as np
from numpy.typing import ArrayLike


def cohen_kappa(counts: ArrayLike) -> float:
    """Return Cohen's κ, (observed − chance) / (1 − chance).

    Parameters
    ----------
    counts
        (K, K): how many items the first gave the label of the row, and the second that of the column.

    Returns
    -------
    NaN without an item, and where both give all items one and the same label: chance then agrees always.

    References
    ----------
    Cohen, Educational and Psychological Measurement 20 (1960).

    Examples
    --------
    >>> round(cohen_kappa([[20, 5], [10, 15]]), 3)
    0.4
    """
    table = np.asarray(counts, dtype=float)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or np.any(table < 0):
        raise ValueError(f"counts must be a square table of numbers of at least 0, not {table.shape}")
    total = float(table.sum())
    expected = float(table.sum(axis=0) @ table.sum(axis=1))
    # in whole numbers, so that the test for 1 is exact: chance = expected / total²
    if total == 0 or expected == total**2:
        return math.nan
    return (float(np.trace(table)) * total - expected) / (total**2 - expected)
