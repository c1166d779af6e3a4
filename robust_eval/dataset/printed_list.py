"""Lists as programs print them into a cell: JSON, Python, numpy.

numpy puts white space between its texts, ``['Rome' 'Roma']``, which Python would read as one text.
"""

import ast
import re
import warnings
from typing import Any

from robust_eval.runtime.files import parsed_json

_TEXT = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ENTRY = rf"(?:{_TEXT}|[-+.\w]+)"
_OF_NUMPY = re.compile(rf"\[\s*{_ENTRY}(?:\s+{_ENTRY})+\s*\]", re.DOTALL)
_TEXT_BEFORE_TEXT = re.compile(rf"{_TEXT}(\s*['\"])?|['\"].*", re.DOTALL)
_BEGINNING = re.compile(r"""(?:[\w.]*array\(\s*)?\[\s*['"]""")
_WORD = re.compile(r"[^\W\d_]{2}")
_MISSING = ("nan", "NaN", "NaT")


class UnreadableListError(ValueError):
    """A text in the layout of a list whose entries are ambiguous or cut off."""


def printed_list(cell: str) -> list[Any] | None:
    """Return the entries of a printed list; None for a text that is no list.

    Raises UnreadableListError for a text in the layout of a list whose entries are ambiguous or cut off.

    >>> printed_list("['Rome' 'Roma']"), printed_list('["Rome", "Roma"]'), printed_list("[sic]")
    (['Rome', 'Roma'], ['Rome', 'Roma'], None)
    """
    cell = cell.strip()
    if not cell.startswith(("[", "(", "{", "array(", "np.array(", "numpy.array(")):
        return None
    entries = _entries(cell)
    if entries is None and _is_laid_out_as_list(cell):
        raise UnreadableListError(cell)
    return entries


def _is_laid_out_as_list(cell: str) -> bool:
    around = cell[0] + cell[-1]
    words = around == "[]" or (around == "{}" and _WORD.search(cell))  # {1, 2} is a set of mathematics
    return bool(_BEGINNING.match(cell) or ("," in cell and words))


def _entries(cell: str) -> list[Any] | None:
    if cell.startswith("["):
        try:
            document = parsed_json(cell)
            return document if isinstance(document, list) else None
        except ValueError:
            pass
    if _OF_NUMPY.fullmatch(cell):
        cell = f"[{', '.join(re.findall(_ENTRY, cell, re.DOTALL))}]"
    elif any(match.group(1) for match in _TEXT_BEFORE_TEXT.finditer(cell)):
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python would write in another way
            return _of_python(ast.parse(cell, mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        return None


def _of_python(node: ast.expr) -> list[Any] | None:
    match node:
        case ast.Call(func=function, args=[ast.List() as inner]) if ast.unparse(function).endswith("array"):
            return _of_python(inner)  # array([…], dtype=object)
        case ast.List(elts=elements):
            return [_entry(element) for element in elements]
        case ast.Tuple(elts=elements) | ast.Set(elts=elements) if all(_is_text(element) for element in elements):
            return [_entry(element) for element in elements]
    return None


def _entry(node: ast.expr) -> Any:
    """Return the value of an entry; ValueError where it has none, or stands for others that are left out (``...``)."""
    match node:
        case ast.Name(id=name) if name in _MISSING:
            return None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np")), args=[value]):  # np.str_('Rome')
            return _entry(value)
    value = ast.literal_eval(node)
    if value is Ellipsis:
        raise ValueError("entries are left out")
    return value


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
