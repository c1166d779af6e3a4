"""Figures as files: those of a run, and any figure as PNG and SVG. Importing this module does not import matplotlib."""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robust_eval.plot.figure_registry import RegisteredFigure, registered
from robust_eval.runs.figure_data import FigureData, figure_data
from robust_eval.runtime.text import escaped, printable_lines
from robust_eval.tracking.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RULE = re.compile(
    r'<defs>\s*<style type="text/css">\*\{stroke-linejoin: round; stroke-linecap: butt\}</style>\s*</defs>'
)
"""Style of lines in an SVG file of matplotlib: a rule for everything (``*``), which would hold for a whole page."""


@dataclass(frozen=True)
class SavedFigure:
    """Saved figure of a run, with its ``svg`` file; a .png file is next to it."""

    entry: RegisteredFigure
    svg: Path


def save_figures(result: Result, folder: Path) -> list[SavedFigure]:
    """Save every figure that a run allows in ``folder``, as PNG and SVG files.

    Figures of the method are left out, because they are the same for all runs.
    """
    run = figure_data(result)
    return save_entries([entry for entry in registered() if entry.allowed and entry.allowed(run)], run, folder)


def save_for_paper(entries: Iterable[RegisteredFigure], run: FigureData, folder: Path, subject: str) -> None:
    """Draw a run's registered figures without title into files in ``folder``, as wide as a column, as PNG of 300 dpi,
    SVG and PDF, and write their captions with the ``subject`` (model, data and n) into ``captions.md``.
    """
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
        caption = f"{' '.join(title.split()) or entry.caption}. {about}{entry.shows} ({entry.source})"
        captions.append(f"## {entry.name}\n\n{escaped(caption)}\n")
    (folder / "captions.md").write_text("\n".join(captions), encoding="utf-8")


def save_entries(entries: Iterable[RegisteredFigure], run: FigureData, folder: Path) -> list[SavedFigure]:
    """Draw registered figures into files in ``folder``."""
    from robust_eval.plot.style import figure  # matplotlib takes half a second to import

    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for entry in entries:
        with figure() as (canvas, axes):
            entry.draw(axes, run)
            saved.append(SavedFigure(entry, save(canvas, folder / entry.name)))
    return saved


def save(fig: "Figure", path: Path, pdf: bool = False) -> Path:
    """Write a figure as PNG on white, as transparent SVG (:mod:`robust_eval.plot.style`), and with ``pdf`` as PDF;
    return the path of the SVG.

    Equal figures give equal files. Text of the SVG stays text, except in the style of a paper.
    """
    from robust_eval.plot.style import wrap_words

    wrap_words(fig)
    _make_printable(fig)
    layout = fig.get_layout_engine()
    assert layout is not None
    layout.execute(fig)
    fig.set_layout_engine(None)  # it is laid out: with an engine, each file would be drawn twice
    fig.savefig(path.with_suffix(".png"))
    if pdf:
        fig.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    without = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    drawing = io.StringIO()
    fig.savefig(drawing, format="svg", transparent=True, metadata=without, dpi=100)
    svg = _RULE.sub("", drawing.getvalue()).replace("<svg ", '<svg stroke-linejoin="round" ', 1)
    path.with_suffix(".svg").write_text(svg, encoding="utf-8")
    return path.with_suffix(".svg")


def _make_printable(fig: "Figure") -> None:
    """Escape invisible characters: titles, legends and tick labels may be those of a server or a data set."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    for text in fig.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(printable_lines(text.get_text()))
    for axis in (axis for axes in fig.axes for axis in (axes.xaxis, axes.yaxis)):
        words = axis.get_major_formatter()
        if isinstance(words, FuncFormatter):  # so matplotlib keeps words that were set
            axis.set_major_formatter(
                FuncFormatter(lambda place, number, formatter=words: printable_lines(formatter(place, number)))
            )
