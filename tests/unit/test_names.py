"""Names of the package: a class name has one meaning, and a file name stands once."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import robust_eval

FILES = sorted(Path(robust_eval.__file__).parent.rglob("*.py"))
CLASSES = [
    node.name.lstrip("_")
    for file in FILES
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    if isinstance(node, ast.ClassDef)
]
NAMES = [file.name for file in FILES if file.name not in ("__init__.py", "__main__.py", "base.py")]
CLASSES_TWICE = ""
FILES_TWICE = "run.py"
"""Names that still stand twice: these lists may only shrink."""


@pytest.mark.parametrize(("names", "excused"), [(CLASSES, CLASSES_TWICE), (NAMES, FILES_TWICE)], ids=["class", "file"])
def test_no_name_stands_for_two_things(names: list[str], excused: str) -> None:
    assert {name for name, number in Counter(names).items() if number > 1} <= set(excused.split())
