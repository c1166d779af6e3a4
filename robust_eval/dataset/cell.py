"""Cells of a table that hold several texts: as a printed list, or between separators."""

import logging
import re
from collections import Counter
from typing import Any

from robust_eval.dataset.printed_list import UnreadableListError, printed_list
from robust_eval.dataset.record import Unusable, as_found, optional
from robust_eval.error import UserError

log = logging.getLogger(__name__)

UNREADABLE_LIST = "a list that cannot be read"
NO_VALUE = "a sign for no value"
_NO_VALUE = frozenset(
    {
        *("#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!", "#ERROR!", "#SPILL!", "#CALC!"),
        *("NA", "<NA>", "nan", "NaN", "NaT", "NULL", r"\N"),
    }
)
"""Errors of spreadsheets, and a missing value as R, pandas and SQL write it."""
_LINE_BREAK = "\n"
_SEPARATORS = {
    **{sign: re.compile(re.escape(sign)) for sign in (";", "|", "；", "｜", "／")},
    "/": re.compile(r"\s/\s|[^\W\d_]{2}/[^\W\d_]{2}"),  # neither m/s nor 1/2
    _LINE_BREAK: re.compile(r"[\r\n]"),
}
"""Signs between several texts in a cell that hardly stand in a single text."""


def cell_texts(cell: Any, separator: str | None) -> list[Any]:
    """Return the texts of a cell: the entries of a list, the parts between separators, or the cell itself.

    A blank cell has none. Raises Unusable for a list that cannot be read, and for the error of a spreadsheet or another
    sign for no value.
    """
    if isinstance(cell, str) and cell.strip() in _NO_VALUE:
        raise Unusable(NO_VALUE, found=f'{as_found(cell)}; a text of these letters is written ["{cell.strip()}"]')
    texts = _texts(cell, separator)
    if not all(isinstance(text, str | int | float | None) for text in texts):
        raise _unreadable(cell)
    return texts


def _texts(cell: Any, separator: str | None) -> list[Any]:
    if isinstance(cell, list | tuple):
        return list(cell)
    if not optional(cell):
        return []
    if not isinstance(cell, str):
        return [cell]
    is_divided = separator is not None and separator.strip(" ") in cell
    try:
        entries = printed_list(cell)
    except UnreadableListError as problem:
        if not is_divided:
            raise _unreadable(cell) from problem
        entries = None
    if entries is not None:
        return entries
    return _parts(cell, separator) if separator is not None else [cell]


def _parts(cell: str, separator: str) -> list[str]:
    if separator == _LINE_BREAK:
        return cell.splitlines()
    return cell.removesuffix(separator.rstrip()).split(separator)


def _unreadable(cell: Any) -> Unusable:
    return Unusable(UNREADABLE_LIST, found=f'{as_found(cell)}; a list is written ["…", "…"]')


class Separators:
    """Counts of the cells in a column that are one text with a sign that may separate several texts."""

    def __init__(self) -> None:
        self._filled = 0
        self._holding: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, cell: Any, texts: list[Any]) -> None:
        """Count a cell with its texts."""
        self._filled += bool(texts)
        if isinstance(cell, str) and texts == [cell]:
            text = cell.strip()
            for separator, pattern in _SEPARATORS.items():
                if pattern.search(text):
                    self._holding[separator] += 1
                    self._examples.setdefault(separator, text[:40])

    def check(self, name: str, path: str) -> None:
        """Raise UserError where half of the cells look like several texts, or one holds a line break; warn of fewer."""
        for separator, cells in sorted(self._holding.items(), key=lambda item: (item[0] != _LINE_BREAK, -item[1])):
            sign = "line break" if separator == _LINE_BREAK else repr(separator)
            setting = r'"\n"' if separator == _LINE_BREAK else separator
            hold = (
                f"{cells:,} of the {self._filled:,} cells of {path} with {name} hold a {sign}, for example "
                f"{self._examples[separator]!r}"
            )
            if 2 * cells >= self._filled or separator == _LINE_BREAK:
                raise UserError(
                    f"{hold}: add 'dataset.separator={setting}' where it parts several {name}, or "
                    'write a cell that holds only one as a list, ["…"]'
                )
            log.warning("%s: each is one of the %s; 'dataset.separator=%s' would part it", hold, name, setting)
