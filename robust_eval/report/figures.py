"""Figures of a run's report, drawn and saved."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from robust_eval.metric.presentation import escaped
from robust_eval.plot.figure_registry import RegisteredFigure, registered
from robust_eval.runs.figure_data import FigureData, figure_data
from robust_eval.tracking.result import Result


@dataclass(frozen=True)
class SavedFigure:
    """Saved figure of a run's report, with its ``svg`` file; a .png file is next to it."""

    entry: RegisteredFigure
    svg: Path


def save_figures(result: Result, folder: Path) -> list[SavedFigure]:
    """Save every report figure that a run allows in ``folder``, as PNG and SVG.

    Figures of the method are left out, because they are the same for all runs.
    """
    run = figure_data(result)
    return save_entries([entry for entry in registered() if entry.allowed and entry.allowed(run)], run, folder)


def save_for_paper(entries: Iterable[RegisteredFigure], run: FigureData, folder: Path, subject: str) -> None:
    """Draw a run's registered figures without title into ``folder``, as wide as a column, as PNG of 300 dpi, SVG and
    PDF, and write their captions with the ``subject`` (model, data and n) into ``captions.md``.
    """
    from robust_eval.plot.figure_files import save
    from robust_eval.plot.style import figure, fit_column

    folder.mkdir(parents=True, exist_ok=True)
    captions = []
    for entry in entries:
        with figure(paper=True) as (canvas, axes):
            entry.draw(axes, run)
            title = canvas.get_suptitle() or axes.get_title()
            if canvas.get_suptitle():
                canvas.suptitle("")
            axes.set_title("")
            fit_column(canvas)
            save(canvas, folder / entry.name, pdf=True)
        about = "" if entry.allowed is None else f"{subject}. "
        caption = f"{' '.join(title.split()) or entry.caption}. {about}{entry.shows} Source: {entry.source}."
        captions.append(f"## {entry.name}\n\n{escaped(caption)}\n")
    (folder / "captions.md").write_text("\n".join(captions), encoding="utf-8")


def save_entries(entries: Iterable[RegisteredFigure], run: FigureData, folder: Path) -> list[SavedFigure]:
    """Draw registered figures of a report into ``folder``."""
    from robust_eval.plot.figure_files import save  # matplotlib takes half a second to import
    from robust_eval.plot.style import figure

    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for entry in entries:
        with figure() as (canvas, axes):
            entry.draw(axes, run)
            saved.append(SavedFigure(entry, save(canvas, folder / entry.name)))
    return saved
