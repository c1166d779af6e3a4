"""Figures of a run, drawn and saved."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from robust_eval.plot.figure_registry import CATALOGUE, RegisteredFigure, registered
from robust_eval.runs.findings import Findings, findings
from robust_eval.tracking.result import Result


@dataclass(frozen=True)
class SavedFigure:
    """Registered figure with its ``svg`` file; a .png file is next to it."""

    entry: RegisteredFigure
    svg: Path


def save_figures(result: Result, folder: Path) -> list[SavedFigure]:
    """Save every figure that a run allows in ``folder``, as PNG and SVG.

    Figures of the method are left out, because they are the same for all runs.
    """
    run = findings(result)
    registered()
    return save_entries([entry for entry in CATALOGUE if entry.allowed and entry.allowed(run)], run, folder)


def save_entries(entries: Iterable[RegisteredFigure], run: Findings, folder: Path) -> list[SavedFigure]:
    """Draw registered figures into ``folder``."""
    from robust_eval.plot.figure_files import save  # matplotlib takes half a second to import
    from robust_eval.plot.style import figure

    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for entry in entries:
        with figure() as (canvas, axes):
            entry.draw(canvas if entry.whole else axes, run)
            saved.append(SavedFigure(entry, save(canvas, folder / entry.name)))
    return saved
