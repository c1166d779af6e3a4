"""What the figures of a run are drawn from: its estimates, settings and tables, as it ends or from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robust_eval.error import UserError, first_line
from robust_eval.metric.score import Estimate, Floats, curve_and_temperature, nearest_to_one
from robust_eval.record.result import Result
from robust_eval.report.finished_runs import read_run

TABLES = (
    "profile",
    "frs",
    "frs_certainty",
    "frs_types",
    "agreement",
    "agreement_matrix",
    "certainty",
)
"""The tables that figures are drawn from, by the names of their files."""


@dataclass(frozen=True)
class Findings:
    """What a run found, as its figures need it.

    ``values`` and ``curves`` are those of all its scores (:class:`robust_eval.metric.score.Score`), ``settings`` are
    flat, under the names of the configuration, ``tables`` those of :data:`TABLES` that the run has.
    """

    values: Mapping[str, Estimate]
    curves: Mapping[str, Mapping[float, Estimate]]
    settings: Mapping[str, Any]
    tables: Mapping[str, pa.Table]

    def mean_scores(self) -> dict[float, Estimate]:
        """Mean FRS for each d."""
        return {float(name[5:]): value for name, value in self.values.items() if name.startswith("frs.d")}

    def scores(self) -> dict[float, Floats]:
        """(n,) FRS of every fact for each d."""
        table = self.tables["frs"]
        return {float(name[5:]): table[name].to_numpy() for name in table.column_names if name.startswith("frs_d")}

    def nearest_to_one(self, table: str) -> pa.Table:
        """The rows of a table at the temperature nearest to 1, the only one of most runs."""
        rows = self.tables[table]
        nearest = nearest_to_one(pc.unique(rows["temperature"]).to_pylist())
        return rows.filter(pc.equal(rows["temperature"], nearest))


def findings(result: Result) -> Findings:
    """Of a run that has just ended."""
    values: dict[str, Estimate] = {}
    curves: dict[str, Mapping[float, Estimate]] = {}
    settings = dict(result.description)
    tables: dict[str, pa.Table] = {}
    for metric, score in result.scores.items():
        values |= score.values
        curves |= score.curves
        settings |= {f"metric.{metric}.{name}": value for name, value in score.settings.items()}
        tables |= {name: table for name, table in score.tables.items() if name in TABLES}
    return Findings(values, curves, settings, tables)


def read_findings(folder: str | Path) -> Findings:
    """Of a finished run, from its folder; UserError where it has not finished, or a file of it is damaged."""
    run = read_run(Path(folder))
    tables = {}
    for name in TABLES:
        file = Path(folder) / f"{name}.parquet"
        if file.is_file():
            try:
                tables[name] = pq.read_table(file)
            except (OSError, pa.ArrowInvalid) as problem:
                raise UserError(f"{file} cannot be read: {first_line(problem)}") from problem
    curves: dict[str, dict[float, Estimate]] = {}
    for figure, estimate in run.figures.items():
        if found := curve_and_temperature(figure):
            curves.setdefault(found[0], {})[found[1]] = estimate
    return Findings(run.figures, curves, run.settings, tables)
