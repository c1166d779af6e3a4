"""The notebook runs in a kernel of Jupyter from its first cell to its last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from robust_eval.config.groups import PROJECT

SMALL = """\
from robust_eval.plot.figure_registry import registered
from robust_eval.plot import figure_files
figure_files.registered = lambda: registered()[:1]
"""
"""To draw all figures of the run would take most of the time."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own parts
def test_the_notebook_runs_and_shows_figures_and_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    notebook = nbformat.read(PROJECT / "docs" / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = SMALL + first.source.replace('["experiment=smoke"]', '["experiment=smoke", "dataset.limit=6"]')
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[] for _ in cells]  # nothing generated is kept in the repository
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [
        "".join(output.get("data", {}).get("text/html", output.get("text", "")) for output in cell.outputs)
        for cell in cells
    ]
    run, figures, questions, report, own, error = shown
    assert "<p>smollm2-135m on facts: " in run
    assert "mean FRS (d = 1)" in run
    assert "frs.d1" in figures
    assert "Which" in questions or "What" in questions
    assert report.startswith('<div><iframe srcdoc="&lt;!doctype html&gt;')
    assert "traveller on local: 1 of 1 questions kept" in own
    assert error == (
        "there is no setting dataset.limti (did you mean dataset.limit?); dataset has name, limit, shuffle, "
        "shuffle_choices, seed, scenario, max_invalid_fraction, path\n"
    )
    warned = [output.text for cell in cells for output in cell.outputs if output.get("name") == "stderr"]
    assert warned == []
