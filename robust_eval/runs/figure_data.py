"""Input of the figures of a run: its estimates and tables, from memory or from its folder."""

from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from robust_eval.answer import at_temperature, temperatures_of
from robust_eval.error import UserError, first_line
from robust_eval.metric.frs_tables import score_columns
from robust_eval.metric.metric_spec import HEADLINE, MetricSpec, nearest_to_one
from robust_eval.runs.finished_runs import KNOWN_SPECS, read_run
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats
from robust_eval.tracking.result import Result


@dataclass(frozen=True)
class FigureData:
    """Results of a run, as input of its figures.

    ``values``, ``curves``, ``tables`` and ``specs`` are those of all its scores
    (:class:`robust_eval.metric.score.Score`).
    """

    values: Mapping[str, Estimate]
    curves: Mapping[str, Mapping[float, Estimate]]
    tables: Mapping[str, pa.Table]
    specs: Sequence[MetricSpec] = ()

    def curves_of_others(self) -> dict[str, Mapping[float, Estimate]]:
        """Return the headline curves of user-defined metrics, by label."""
        specs = [spec for spec in self.specs if spec not in KNOWN_SPECS and spec.shown == HEADLINE]
        return {spec.words: curve for spec in specs if len(curve := self.curves.get(spec.name, {})) > 1}

    def by_parameter(self, spec: MetricSpec) -> dict[float, Estimate]:
        """Return the estimates of a metric with a number in its name, by that number."""
        return {number: self.values[name] for number, name in spec.among(self.values).items()}

    def scores(self) -> dict[float, Floats]:
        """Return (n,) the FRS of every fact for each d."""
        table = self.tables["frs"]
        return {d: table[name].to_numpy() for d, name in score_columns(table).items()}

    def nearest_to_one(self, table: str) -> pa.Table:
        """Return the rows of a table at the temperature nearest to 1, the only one of most runs."""
        rows = self.tables[table]
        return at_temperature(rows, nearest_to_one(temperatures_of(rows)))

    def estimates(self, table: str, column: str) -> list[Estimate]:
        """Return the estimates in a column of a table, with the bounds in its neighbours, at the temperature nearest to
        1.
        """
        table_rows = self.nearest_to_one(table)
        columns = (table_rows[f"{column}{end}"].to_pylist() for end in ("", "_low", "_high"))
        return [Estimate(*each) for each in zip(*columns, strict=True)]


class TablesIn(UserDict[str, Any]):
    """Tables for figures, in the folder of a run, read lazily; UserError if one cannot be read."""

    def __init__(self, folder: Path) -> None:
        super().__init__({file.stem: file for file in sorted(folder.glob("*.parquet"))})

    def __getitem__(self, name: str) -> pa.Table:
        if isinstance(file := self.data[name], Path):
            try:
                self.data[name] = read_parquet(file)
            except (OSError, pa.ArrowInvalid) as problem:
                raise UserError(f"{file} cannot be read: {first_line(problem)}") from problem
        return self.data[name]


def figure_data(result: Result) -> FigureData:
    """Return the data of the figures of a result in memory."""
    scores = result.scores.values()
    values = {name: estimate for score in scores for name, estimate in score.values.items()}
    curves = {name: curve for score in scores for name, curve in score.curves.items()}
    return FigureData(values, curves, result.tables, [spec for score in scores for spec in score.specs])


def read_figure_data(folder: str | Path) -> FigureData:
    """Return the data of the figures of a finished run, from its folder; UserError where it has not finished, or a
    file of it is damaged.
    """
    run = read_run(Path(folder))
    return FigureData(run.metrics, run.curves, TablesIn(Path(folder)), run.specs)
