"""The names of the package itself: each leads somewhere, type checkers know the same, and nothing heavy is imported."""

import ast
import subprocess
import sys
from types import FunctionType, ModuleType

import pytest

import robust_eval
from robust_eval.config.schema import PROJECT


def test_every_public_name_leads_to_what_is_called_so():
    for name in robust_eval.__all__:
        found = getattr(robust_eval, name)
        if isinstance(found, type | ModuleType | FunctionType):
            assert found.__name__.rpartition(".")[2] in (name, "tuple")  # Item is a name for a tuple
    assert set(dir(robust_eval)) == set(robust_eval.__all__)


def test_type_checkers_know_the_same_names_from_the_same_modules():
    stub = ast.parse((PROJECT / "robust_eval" / "__init__.pyi").read_text())
    told = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert told == robust_eval._MODULES
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert functions == set(robust_eval._DECORATORS)


def test_an_unknown_name_is_said_as_python_says_it():
    with pytest.raises(AttributeError, match="module 'robust_eval' has no attribute 'evaluate'"):
        robust_eval.evaluate  # noqa: B018


def test_importing_the_package_imports_no_library():
    said = (
        "import sys, robust_eval; print(sorted({'torch', 'mlflow', 'pandas', 'numpy', 'hydra'} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert ran.stdout == "[]\n"
