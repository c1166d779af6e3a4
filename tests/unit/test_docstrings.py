"""Public names have docstrings; the examples in docstrings run, and those of public names say what a caller needs."""

import ast
import doctest
import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import robust_eval
import robust_eval.stats
from robust_eval.runtime.registry import REGISTRY

PACKAGE = Path(robust_eval.__file__).parent
WITH_EXAMPLES = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]
SLOW = (".local.", ".api")
PUBLIC = {
    name: value
    for module, names in ((robust_eval, robust_eval.__all__), (robust_eval.stats, dir(robust_eval.stats)))
    for name in names
    if inspect.isclass(value := getattr(module, name)) or inspect.isfunction(value)
}


@pytest.fixture
def files_of_examples(tmp_path: Path) -> None:
    """Write the runs and the logs that the examples of robust_eval.api read."""
    questions = [{"id": "1", "question": "What is the capital of Italy?", "answers": ["Rome"]}]
    for name, text in (("first", "Rome"), ("second", "Milan")):
        answers = [{"question_id": "1", "text": text, "temperature": 1.0, "trial": trial} for trial in range(2)]
        robust_eval.score(answers, questions, folder=f"runs/{name}", tracking="none")
    (tmp_path / "logs").mkdir()
    message = {"role": "user", "content": "What is the capital of Italy?"}
    asked = {"custom_id": "q1", "body": {"model": "small", "messages": [message], "temperature": 0.7}}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Rome"}, "finish_reason": "stop"}
    answered = {"custom_id": "q1", "response": {"status_code": 200, "body": {"model": "small", "choices": [choice]}}}
    (tmp_path / "logs" / "requests.jsonl").write_text(json.dumps(asked))
    (tmp_path / "logs" / "outputs.jsonl").write_text(json.dumps(answered))


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=pytest.mark.slow if name.endswith(SLOW) else ()) for name in WITH_EXAMPLES]
)
def test_the_examples_of_a_module_give_what_it_says(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["robust-eval"])  # an example sets another one
    for group in REGISTRY:
        monkeypatch.setitem(REGISTRY, group, dict(REGISTRY[group]))
    if module == "robust_eval.api":
        request.getfixturevalue("files_of_examples")
    assert doctest.testmod(import_module(module), report=False).failed == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example_its_result_and_its_errors(name: str):
    value, text = PUBLIC[name], inspect.getdoc(PUBLIC[name]) or ""
    assert ">>> " in text
    assert "+SKIP" not in text
    if inspect.isfunction(value):
        assert value.__annotations__["return"] is None or re.search(r"[Rr]eturns?\b", text)
        assert [each for each in inspect.signature(value).parameters if each not in text] == []
    assert not raises(value) or re.search(r"\w+Error\b|SystemExit", text)


def raises(public: Any) -> bool:
    """Whether a function, its private helpers or the check of a class's fields raise an error."""
    checked = getattr(public, "__post_init__", None) if inspect.isclass(public) else public
    if checked is None:
        return False
    source = inspect.getsource(checked)
    helpers = [each for name, each in checked.__globals__.items() if name.startswith("_") and f" {name}(" in source]
    return any(" raise " in text for text in (source, *map(inspect.getsource, filter(inspect.isfunction, helpers))))


def test_a_public_constant_stands_in_an_example():
    constants = {*robust_eval.__all__} - {*PUBLIC} - {"__version__"}
    examples = "".join(line for value in PUBLIC.values() for line in re.findall(r">>> .*", value.__doc__ or ""))
    assert [name for name in sorted(constants) if name not in examples] == []


BARE = {"Protocol", "Generic", "NamedTuple", "StrEnum"}
BARE_PROPERTIES = ["prefixes.py: Logits.device", "prefixes.py: OutputHead.device"]
FORBIDDEN = ("What", "Which", "How", "Whether", "As far as")
MODULES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}
CLASSES = {
    node.name: node for module in MODULES.values() for node in ast.walk(module) if isinstance(node, ast.ClassDef)
}


def public(node: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str | None]]:
    """The public classes, functions and methods of a module, with their docstrings or those of their base classes."""
    for each in node.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
            own = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            yield own + each.name, inherited(node, each.name) if own else ast.get_docstring(each)
            if isinstance(each, ast.ClassDef):
                yield from public(each)


def inherited(cls: ast.ClassDef, method: str) -> str | None:
    """The docstring of a method, from the nearest class that has one; other packages have their own."""
    own = next((each for each in cls.body if getattr(each, "name", None) == method), None)
    if own is not None and (docstring := ast.get_docstring(own)):
        return docstring
    names = [ast.unparse(base).partition("[")[0] for base in cls.bases]
    of_bases = [
        inherited(CLASSES[name], method) if name in CLASSES else "Elsewhere." for name in names if name not in BARE
    ]
    return next(filter(None, of_bases), None)


def test_every_public_name_has_a_docstring_that_begins_with_a_noun_or_a_verb():
    docstrings = {f"{file.name}: {name}": text for file, tree in MODULES.items() for name, text in public(tree)}
    assert len(docstrings) > 1000
    assert [name for name, text in docstrings.items() if text is None or text.startswith(FORBIDDEN)] == BARE_PROPERTIES
