"""The table that ends a run in the terminal."""

import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from robust_eval.metric.score import Estimate, Score
from robust_eval.result import Result


def print_summary(result: Result, folder: Path, ui_command: str | None) -> None:
    """The figures that matter most, and where the rest is."""
    table = Table(
        title=f"{result.name}: {len(result.kept)} of {len(result.asked)} questions kept", title_justify="left"
    )
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for score in result.scores.values():
        for label, estimate in headline(score):
            interval = "" if math.isnan(estimate.low) else f"{estimate.low:.3f} to {estimate.high:.3f}"
            table.add_row(label, number(estimate.value), interval)
    console = Console(highlight=False, soft_wrap=True)
    console.print()
    console.print(table)
    notes = [note for score in result.scores.values() for note in score.notes]
    for note in notes:
        console.print(note)
    console.print(f"report:  {folder / 'report.html'}")
    console.print(f"answers: {folder / 'graded.parquet'}")
    if ui_command:
        console.print(f"tracker: {ui_command}")


def headline(score: Score) -> list[tuple[str, Estimate]]:
    """The figures of a score that a person wants first, with their labels."""
    rows = []
    for name, estimate in score.values.items():
        if label := _LABELS.get(name):
            rows.append((label, estimate))
        elif name.startswith("frs.d"):
            rows.append((f"mean FRS, d = {name.removeprefix('frs.d')}", estimate))
    for name, curve in score.curves.items():
        if label := _CURVES.get(name):
            shown = sorted({min(curve), max(curve)} | ({0.2, 1.0, 2.0} & set(curve)))
            rows += [(f"{label} at t = {t:g}", curve[t]) for t in shown]
    return rows


_LABELS = {
    "frs.unbroken_share": "share of unbroken facts (each scores 1)",
    "frs.count.broken": "broken facts",
    "frs.count.unbroken": "unbroken facts",
    "frs.breaking_temperature.median": "median breaking temperature",
    "frs.breaking_temperature.mean_broken": "mean breaking temperature, broken facts",
    "frs.entropy.mean": "mean initial entropy H",
}
_CURVES = {
    "accuracy": "accuracy",
    "certainty.entropy": "answer entropy (nats)",
    "certainty.error_rate": "error rate",
}


def number(value: float) -> str:
    """Three decimals, or none for a count; a median beyond the grid is "unbroken"."""
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "unbroken"
    return f"{value:.0f}" if value == int(value) and abs(value) > 1 else f"{value:.3f}"
