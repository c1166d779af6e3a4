"""Record of a data set; wrong content makes it unusable, with a reason."""

import ast
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rapidfuzz.distance import OSA

from robust_eval.error import UserError
from robust_eval.question import LETTERS
from robust_eval.runtime.json_files import parsed_json

Record = Mapping[str, Any]
"""Values under the source's names; empty for an unreadable row."""

MAX_CHARACTERS = 100_000
"""Maximum number of characters of a text: a longer one is no question, but a fault of the data."""
NO_QUESTION = "no question"
NO_ANSWER = "no accepted answer"
UNANSWERABLE = "unanswerable"
NO_CHOICES = "no choices"
MALFORMED_CHOICES = "malformed choices"
TOO_MANY_CHOICES = f"more than {len(LETTERS)} choices"
NO_RIGHT_CHOICE = "no right choice"
NO_CONTEXT = "no context"
NO_WRONG_REFERENCE = "no wrong reference"
DUPLICATE_ID = "duplicate id"
MALFORMED = "malformed record"
NOT_UNICODE = "text that is not Unicode"
TOO_LONG = f"text of more than {MAX_CHARACTERS:,} characters"
_LISTED = 30
"""Maximum number of columns in a message."""


class Unusable(Exception):  # noqa: N818 - nothing is wrong with the program
    """Record without a valid question. ``reason`` is one of a few, which are counted.

    ``columns`` are those of the record, ``found`` is its wrong content.
    """

    def __init__(self, reason: str, columns: Iterable[Any] = (), found: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.columns = tuple(columns)
        self.found = found


def listed(columns: Iterable[Any]) -> str:
    """Return the names of a record's columns in one line; of very many, only the first ones."""
    names = [" ".join(str(name).encode("utf-8", "replace").decode().split()) for name in columns]
    return ", ".join(name[:40] for name in names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def as_found(value: Any) -> str:
    """Return the content of a record for a message."""
    return f"found {listed([repr(value)])}"


def missing_column(file: Path, column: str, meaning: str, columns: Iterable[Any], setting: str) -> UserError:
    """Return the error that a file has no column for a ``meaning``; ``setting`` maps meanings to columns."""
    columns = list(columns)
    if not columns:
        return UserError(f'{file}: a record has no named fields; write objects such as {{"{column}": …}}')
    return UserError(
        f"{file} has no column {column!r} for {meaning}; its columns are {listed(columns)}: set "
        f"'{setting}={{{meaning}: …}}'"
    )


def refuse_misspelt(
    file: Path, columns: Iterable[str], missing: Iterable[str], setting: str, otherwise: str = ""
) -> None:
    """Raise UserError if one of the unknown columns has nearly the name of a missing one."""
    for column, name in product(columns, missing):
        if OSA.distance(column.strip().casefold(), name) <= len(name) // 4:
            raise UserError(
                f"{file} has a column {column!r} but none named {name!r}: rename it, or set "
                f"{setting}={{{name}: {column}}}{otherwise.format(name)}"
            )


def text(value: Any, reason: str) -> str:
    """Return a record's value as text, as :func:`optional` does; Unusable with the reason if it shows nothing."""
    if not (shown_text := optional(value)):
        raise Unusable(reason)
    return shown_text


def optional(value: Any) -> str:
    """Return a record's value as text without white space around it, a number in its usual notation.

    The text is empty for a value without visible characters: None, NaN, white space, a list.
    """
    if isinstance(value, bool):
        return ""
    if isinstance(value, float):
        value = (str(int(value)) if value.is_integer() else repr(value)) if math.isfinite(value) else ""
    elif isinstance(value, int):
        value = str(value) if value.bit_length() < 1_000 else ""
    if not isinstance(value, str):
        return ""
    if len(value) > MAX_CHARACTERS:
        raise Unusable(TOO_LONG)
    value = value.strip()
    if value.isascii():
        return value if value.isprintable() or _shows(value) else ""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise Unusable(NOT_UNICODE) from problem
    return value if _shows(value) else ""


def _shows(value: str) -> bool:
    return any(character.isprintable() and not character.isspace() for character in value)


def items(value: Any) -> list[Any]:
    """Return a value as a list, also one that is printed as text (JSON, Python, numpy); empty for anything else."""
    if isinstance(value, str) and value.lstrip()[:1] == "[" and len(value) <= MAX_CHARACTERS:
        try:
            value = printed_list(value)
        except UnreadableListError:
            return []
    return list(value) if isinstance(value, list | tuple) else []


def several(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the texts among the values of a record, each once, in their order."""
    return tuple(dict.fromkeys(shown_text for value in values if (shown_text := optional(value))))


def answers(values: Iterable[Any]) -> tuple[str, ...]:
    """Return a record's accepted answers; Unusable if all are blank. Graders compare even a sign or an article."""
    accepted = several(values)
    if not accepted:
        raise Unusable(NO_ANSWER)
    return accepted


def choices(values: Sequence[Any]) -> tuple[str, ...]:
    """Return a record's choices, from 2 to the number of letters; Unusable otherwise, or for an empty one."""
    if not values:
        raise Unusable(NO_CHOICES)
    if len(values) > len(LETTERS):
        raise Unusable(TOO_MANY_CHOICES)
    texts = tuple(text(value, MALFORMED_CHOICES) for value in values)
    if len(texts) < 2:
        raise Unusable(MALFORMED_CHOICES)
    return texts


def position(value: Any, number: int, first: int = 0) -> int:
    """Return the index (from 0) of a record's right choice, one of ``number`` choices that are counted from ``first``;
    Unusable for any other value.
    """
    original = value
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 9:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value - first < number:
        raise Unusable(NO_RIGHT_CHOICE, found=as_found(original))
    return value - first


def letter_position(value: Any, labels: Sequence[str]) -> int:
    """Return the index of the right choice by its label (A, b, 3 …); Unusable unless exactly one choice has it."""
    label = optional(value).casefold()
    folded = [entry.casefold() for entry in labels]
    if folded.count(label) != 1:
        raise Unusable(NO_RIGHT_CHOICE, found=as_found(value))
    return folded.index(label)


_TEXT = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ENTRY = rf"(?:{_TEXT}|[-+.\w]+)"
_OF_NUMPY = re.compile(rf"\[\s*{_ENTRY}(?:\s+{_ENTRY})+\s*\]", re.DOTALL)
_TEXT_BEFORE_TEXT = re.compile(rf"{_TEXT}(\s*['\"])?|['\"].*", re.DOTALL)
_BEGINNING = re.compile(r"""(?:[\w.]*array\(\s*)?\[\s*['"]""")
_WORD = re.compile(r"[^\W\d_]{2}")
_MISSING = ("nan", "NaN", "NaT")


class UnreadableListError(ValueError):
    """Text of a record in the layout of a list whose entries are ambiguous or cut off."""


def printed_list(cell: str) -> list[Any] | None:
    """Return the entries of a list that is printed as text; None for a text that is no list.

    Raises UnreadableListError for a text in the layout of a list whose entries are ambiguous or cut off.

    >>> printed_list("['Rome' 'Roma']"), printed_list('["Rome", "Roma"]'), printed_list("[sic]")
    (['Rome', 'Roma'], ['Rome', 'Roma'], None)
    """
    cell = cell.strip()
    if not cell.startswith(("[", "(", "{", "array(", "np.array(", "numpy.array(")):
        return None
    entries = _entries(cell)
    if entries is None:
        brackets = cell[0] + cell[-1]
        has_words = brackets == "[]" or (brackets == "{}" and _WORD.search(cell))  # {1, 2} is a set of mathematics
        if _BEGINNING.match(cell) or ("," in cell and has_words):
            raise UnreadableListError(cell)
    return entries


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
        with warnings.catch_warnings(action="ignore"):  # of invalid escapes
            return _of_python(ast.parse(cell, mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError):
        return None


def _of_python(node: ast.expr) -> list[Any] | None:
    match node:
        case ast.Call(func=function, args=[ast.List() as inner]) if ast.unparse(function).endswith("array"):
            return _of_python(inner)  # array([…], dtype=object)
        case ast.List(elts=elements):
            return [_entry(element) for element in elements]
        case ast.Tuple(elts=elements) | ast.Set(elts=elements):
            if all(isinstance(element, ast.Constant) and isinstance(element.value, str) for element in elements):
                return [_entry(element) for element in elements]
    return None


def _entry(node: ast.expr) -> Any:
    """Return the value of a printed list's entry; ValueError unless it is a literal, and for an ellipsis (``...``)."""
    match node:
        case ast.Name(id=name) if name in _MISSING:
            return None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np")), args=[value]):  # np.str_('Rome')
            return _entry(value)
    value = ast.literal_eval(node)
    if value is Ellipsis:
        raise ValueError("an ellipsis replaces entries")
    return value
