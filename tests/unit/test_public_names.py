"""The names that others import stay where they are; the methods of the papers name them."""

import inspect
import re
from importlib import import_module

import pytest
from json_lines import cases

import robust_eval
from robust_eval.config.groups import PROJECT


@pytest.mark.parametrize("expected", cases(__file__, "a_public_name_takes_what_it_took"))
def test_a_public_name_takes_what_it_took(expected: str):
    """Parameters and defaults of public functions; others may follow."""
    name = expected.partition("(")[0]
    module, _, function = f"robust_eval.{name}".rpartition(".")
    signature = inspect.signature(getattr(import_module(module), function))
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    found = str(inspect.Signature(parameters))
    assert f"{name}{found[:-1]},".startswith(f"{expected[:-1]},")


def test_the_api_reference_has_every_public_name():
    page = (PROJECT / "docs" / "api.rst").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\.\. auto(?:class|data|function):: (?:robust_eval\.[\w.]+\.)?(\w+)$", page, re.M))
    assert documented == {*robust_eval.__all__} - {"__version__"}
