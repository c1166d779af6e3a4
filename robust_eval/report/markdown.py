"""Markdown of texts and tables, with untrusted text escaped."""

import html
import re
from collections.abc import Iterable

from robust_eval.metric.presentation import Cell, Table
from robust_eval.runtime.text import printable


def escaped(text: str) -> str:
    """Return text on one line with Markdown, HTML and automatic links escaped."""
    plain = html.escape(printable(" ".join(text.split())), quote=False)
    plain = re.sub(r"([\\`*_|\[\]~#]|(?<=www)\.)", r"\\\1", plain, flags=re.IGNORECASE)
    return re.sub(r":(?=\S)|@", lambda sign: f"&#{ord(sign[0])};", plain)


def lines(table: Table) -> list[str]:
    """Return the lines of a table: header, rule, and rows."""
    rule = ["---"] * table.names + ["---:"] * (len(table.header) - table.names)
    return [_line(table.header), "| " + " | ".join(rule) + " |", *(_line(map(_words, row)) for row in table.rows)]


def section(table: Table) -> list[str]:
    """Return the paragraphs of a table under its title: the lines and, if any, the note."""
    text = "\n".join([f"## {escaped(table.title)}", "", *lines(table)])
    return [text, escaped(table.note)] if table.note else [text]


def _words(cell: Cell) -> str:
    value = f"{cell.value} ({cell.interval})" if cell.interval else cell.value
    return " ".join(filter(None, [value, cell.answer, cell.verdict]))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"
