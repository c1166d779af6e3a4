"""FigureData of a run, as its figures read them, from columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from robust_eval.runs.figure_data import FigureData
from robust_eval.stats.estimate import Estimate


def findings_of(
    values: Mapping[str, Estimate] | None = None,
    curves: Mapping[str, Mapping[float, Estimate]] | None = None,
    **tables: Mapping[str, Sequence[Any]],
) -> FigureData:
    """Return findings with these estimates and tables; rows without a temperature are at t = 1."""
    found = {}
    for name, columns in tables.items():
        rows = len(next(iter(columns.values())))
        found[name] = pa.table({"temperature": [1.0] * rows, **columns})
    return FigureData(values or {}, curves or {}, found)
