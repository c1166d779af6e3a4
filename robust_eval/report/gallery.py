"""All figures of a finished run on one page, each with the lines that draw it."""

import ast
import inspect
import json
import textwrap
from pathlib import Path

from robust_eval.report import catalogue
from robust_eval.report.catalogue import CATALOGUE, Entry
from robust_eval.report.figures import save_entries
from robust_eval.report.page import inlined, template
from robust_eval.runs.findings import Findings, read_findings

GALLERY = "gallery.html"
"""The page, in its folder."""


def write_gallery(run_folder: Path, folder: Path) -> Path:
    """Write the page and ``figures/`` (PNG and SVG) into a folder; the path of the page.

    Shown are the figures that the run allows, then those of the method. UserError where the run has not finished, or a
    file of it is damaged.
    """
    run = read_findings(run_folder)
    entries = [entry for entry in CATALOGUE if entry.allowed is None or entry.allowed(run)]
    saved = save_entries(entries, run, folder / "figures")
    drawings = inlined({figure.entry.caption: figure.svg for figure in saved})
    page = template("gallery.html.jinja").render(
        name=_name(run),
        figures=[
            {"entry": entry, "drawing": drawings[entry.caption], "code": snippet(entry, run_folder)}
            for entry in entries
        ],
    )
    (folder / GALLERY).write_text(page, encoding="utf-8")
    return folder / GALLERY


def snippet(entry: Entry, run_folder: Path) -> str:
    """Return the lines that draw a figure of the catalogue in a notebook, from the folder of a run."""
    source = inspect.getsource(catalogue)
    module = ast.parse(source)
    (function,) = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == entry.name)
    _, *body = function.body  # the docstring
    used = {node.id for line in body for node in ast.walk(line) if isinstance(node, ast.Name)}
    imports = ["import matplotlib.pyplot as plt", *_imports(module, used)]
    start = ["drawn = plt.figure()"] if entry.whole else ['drawn, axes = plt.subplots(layout="constrained")']
    if "run" in used:
        imports.append(f"from {read_findings.__module__} import {read_findings.__name__}")
        start.insert(0, f"run = read_findings({json.dumps(str(run_folder))})")
    lines = source.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
    plain = sorted(imports, key=lambda line: (line.startswith("from robust_eval"), line.startswith("from"), line))
    return "\n".join([*plain, "", *start, textwrap.dedent("\n".join(lines))])


def _imports(module: ast.Module, used: set[str]) -> list[str]:
    """Return the imports of a module that bring what is used."""
    found = []
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if (alias.asname or alias.name) in used]
            if node.names:
                found.append(ast.unparse(node))
    return found


def _name(run: Findings) -> str:
    return f"{run.settings['model.name']} on {run.settings['dataset.name']}"
