"""The rooms of the package: who imports whom."""

import subprocess
import sys

from robust_eval.config.schema import PROJECT


def test_a_room_imports_only_rooms_below_it_and_nothing_goes_in_circles():
    """The order of the rooms is written in pyproject.toml; lazy imports count as well."""
    checked = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    # in a process of its own, because it sets the logging of the one that it runs in
    ran = subprocess.run([sys.executable, "-c", checked], cwd=PROJECT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_module_lies_beside_the_rooms_but_the_nouns_that_everybody_knows():
    beside = {file.stem for file in (PROJECT / "robust_eval").glob("*.py")}
    assert beside == {"__init__", "__main__", "question", "answer", "error", "normalization", "api"}
