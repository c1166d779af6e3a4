"""The figures that a run's findings allow, drawn and saved, or taken from a run that found the same."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from robust_eval.report.catalogue import CATALOGUE, Entry
from robust_eval.report.drawn_before import DrawnBefore
from robust_eval.report.findings import Findings, findings
from robust_eval.tracking.result import Result


@dataclass(frozen=True)
class SavedFigure:
    """A figure of the catalogue in its files, of which ``svg`` is one; the other has the suffix .png."""

    entry: Entry
    svg: Path


def save_figures(result: Result, folder: Path, notes: Path | None = None) -> list[SavedFigure]:
    """Save every figure that a run allows in ``folder``, as PNG and SVG.

    ``notes`` is the folder of :class:`robust_eval.report.drawn_before.DrawnBefore`: what an earlier run has drawn from
    the same findings is copied. Without it everything is drawn. Figures of the method alone are not among them: they
    are the same for all runs, and the gallery has them.
    """
    run = findings(result)
    entries = [entry for entry in CATALOGUE if entry.allowed and entry.allowed(run)]
    if notes is None:
        return save_entries(entries, run, folder)
    before = DrawnBefore(run, [entry.name for entry in entries], notes)
    if before.copied(folder):
        return [SavedFigure(entry, folder / f"{entry.name}.svg") for entry in entries]
    saved = save_entries(entries, run, folder)
    before.keep(folder)
    return saved


def save_entries(entries: Iterable[Entry], run: Findings, folder: Path) -> list[SavedFigure]:
    """Draw figures of the catalogue into ``folder``."""
    from robust_eval.plot.files import save  # matplotlib takes half a second, which nobody need spend who draws nothing
    from robust_eval.plot.style import figure

    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for entry in entries:
        with figure() as (drawn, axes):
            entry.draw(drawn if entry.whole else axes, run)
            saved.append(SavedFigure(entry, save(drawn, folder / entry.name)))
    return saved
