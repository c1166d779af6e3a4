"""Figures as files: PNG and SVG."""

import io
import re
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from robust_eval.plot.style import wrap_words
from robust_eval.runtime.text import printable_lines

_RULE = re.compile(
    r'<defs>\s*<style type="text/css">\*\{stroke-linejoin: round; stroke-linecap: butt\}</style>\s*</defs>'
)
_AS_EVERYWHERE = re.compile(r" font-family: 'DejaVu Sans', 'Verdana', sans-serif;| transform=\"rotate\(-0 [^\"]*\"")
_PLACE = re.compile(r' ([xy])="(-?\d+\.\d)\d*"')
_PATH = re.compile(r' (?:d|width|height|transform)="[^"]*"')
_BEYOND_A_HUNDREDTH = re.compile(r"(\.\d\d)\d+| (?=\n)")


def save(fig: Figure, path: Path, pdf: bool = False) -> Path:
    """Write a figure as PNG on white, as transparent SVG (:mod:`robust_eval.plot.style`), and with ``pdf`` as PDF;
    return the path of the SVG.

    Equal figures give equal files. Text of the SVG stays text, except in the style of a paper.
    """
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
    path.with_suffix(".svg").write_text(_lean(drawing.getvalue()), encoding="utf-8")
    return path.with_suffix(".svg")


def _make_printable(fig: Figure) -> None:
    """Escape invisible characters: titles, legends and tick labels may be those of a server or a data set."""
    for text in fig.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(printable_lines(text.get_text()))
    for axis in (axis for axes in fig.axes for axis in (axes.xaxis, axes.yaxis)):
        words = axis.get_major_formatter()
        if isinstance(words, FuncFormatter):  # so matplotlib keeps words that were set
            axis.set_major_formatter(
                FuncFormatter(lambda place, number, formatter=words: printable_lines(formatter(place, number)))
            )


def _lean(drawing: str) -> str:
    """Return a figure's SVG with places to a tenth of a point, paths to a hundredth, and common attributes at its root.

    That is half of what matplotlib writes. A rule for everything (``*``) would be one for the whole page besides.
    """
    head = "<svg stroke-linejoin=\"round\" font-family=\"'DejaVu Sans', 'Verdana', sans-serif\" "
    lean = re.sub(r"\n +(?=<)", "\n", _RULE.sub("", drawing).replace("<svg ", head, 1))
    return re.sub(r"<[^>]+>", lambda tag: _lean_tag(tag[0]), lean)  # what readers see stands between tags


def _lean_tag(tag: str) -> str:
    tag = _PLACE.sub(r' \1="\2"', _AS_EVERYWHERE.sub("", tag))
    return _PATH.sub(lambda attribute: _BEYOND_A_HUNDREDTH.sub(r"\1", attribute[0]), tag)
