"""The examples in docstrings run."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import robust_eval

PACKAGE = Path(robust_eval.__file__).parent
WITH_EXAMPLES = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=pytest.mark.slow if ".local." in name else ()) for name in WITH_EXAMPLES]
)
def test_the_examples_of_a_module_give_what_it_says(module: str):
    assert doctest.testmod(import_module(module), report=False).failed == 0
