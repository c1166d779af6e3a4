"""The table that ends a run in the terminal."""

import math
import re
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from robust_eval.metric.score import Score
from robust_eval.result import Result


def print_summary(result: Result, folder: Path, store: str, ui_command: str | None) -> None:
    """The figures that matter most, and where the rest is."""
    table = Table(
        title=f"{result.name}: {len(result.kept)} of {len(result.asked)} questions kept", title_justify="left"
    )
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for score in result.scores.values():
        for row in headline(score):
            table.add_row(row.label, row.value, row.interval)
    console = Console(highlight=False, soft_wrap=True)
    console.print()
    console.print(table)
    console.print(f"report:  {folder / 'report.html'}")
    console.print(f"answers: {folder / 'graded.parquet'}")
    console.print(f"store:   {store}")
    if ui_command:
        console.print(f"tracker: {ui_command}")


class Row(NamedTuple):
    """A figure as a person reads it."""

    label: str
    value: str
    interval: str


def headline(score: Score) -> list[Row]:
    """The figures of a score that a person wants first; all of them, by name, of a metric without labels here."""
    shown = []
    for name, estimate in score.values.items():
        if label := _LABELS.get(name):
            shown.append((label, estimate, ".0f" if ".count." in name else ".3f"))
        elif name.startswith("frs.d"):
            shown.append((f"mean FRS, d = {name.removeprefix('frs.d')}", estimate, ".3f"))
        elif match := re.fullmatch(r"frs\.(combined|trials|offgrid)\.d([^.]*\.?[^.]*)", name):
            shown.append((f"mean FRS, d = {match.group(2)}, {_ESTIMATES[match.group(1)]}", estimate, ".3f"))
    for name, curve in score.curves.items():
        if label := _CURVES.get(name):
            temperatures = sorted({min(curve), max(curve)} | ({0.2, 1.0, 2.0} & set(curve)))
            shown += [(f"{label} at t = {t:g}", curve[t], ".3f") for t in temperatures]
    if not shown:
        shown = [(name, estimate, ".3f") for name, estimate in score.values.items()]
        shown += [(f"{name} at t = {t:g}", e, ".3f") for name, curve in score.curves.items() for t, e in curve.items()]
    return [Row(label, number(value, form), _interval(low, high)) for label, (value, low, high), form in shown]


_ESTIMATES = {
    "combined": "all draws combined",
    "trials": "by trials",
    "offgrid": "off the grid",
}
_LABELS = {
    "frs.combined.breaking_temperature.median": "median breaking temperature, all draws combined",
    "frs.trials.breaking_temperature.median": "median breaking temperature, by trials",
    "frs.offgrid.breaking_temperature.median": "median breaking temperature, off the grid",
    "frs.unbroken_share": "share of unbroken facts (each scores 1)",
    "frs.count.broken": "broken facts",
    "frs.count.unbroken": "unbroken facts",
    "frs.breaking_temperature.median": "median breaking temperature",
    "frs.breaking_temperature.mean_broken": "mean breaking temperature, broken facts",
    "frs.entropy.mean": "mean initial entropy H",
    "certainty.count.unlabelled": "answers without a label, left out of the entropy",
}
_CURVES = {
    "accuracy": "accuracy",
    "certainty.entropy": "answer entropy (nats)",
    "certainty.error_rate": "error rate of answers with a label",
}


def number(value: float, form: str = ".3f") -> str:
    """A figure in words where it has no number: a breaking temperature beyond the grid is "unbroken"."""
    if math.isnan(value):
        return "undefined"
    return "unbroken" if math.isinf(value) else format(value, form)


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"{low:.3f} to {high:.3f}"
