"""docs/glossary.md holds for the identifiers of the package."""

import ast
import re

from robust_eval.config.groups import PROJECT

PAGE = (PROJECT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", PAGE, re.M)[2:]]


def identifiers(tree: ast.AST) -> set[str]:
    """Names that a module gives to classes, functions, parameters, variables and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name.strip("_").lower() for name in names}


def test_no_identifier_is_a_word_that_the_glossary_replaces():
    replaced = {word.replace(" ", "_") for _, _, words in TERMS for word in re.findall(r"`([^`]+)`", words)}
    assert len(replaced) >= 15
    files = sorted((PROJECT / "robust_eval").rglob("*.py"))
    used = {file.name: identifiers(ast.parse(file.read_text(encoding="utf-8"))) & replaced for file in files}
    assert {name: words for name, words in used.items() if words} == {}
