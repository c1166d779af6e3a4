"""The rooms of the package: who imports whom."""

import os
import subprocess
import sys

from robust_eval.config.groups import PROJECT


def test_a_room_imports_only_rooms_below_it_and_nothing_goes_in_circles():
    """The order of the rooms is written in pyproject.toml; lazy imports count as well."""
    checked = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    # in a process of its own, because it sets the logging of the one that it runs in
    ran = subprocess.run([sys.executable, "-c", checked], cwd=PROJECT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_run_imports_no_library_that_takes_long_before_it_needs_it():
    code = (
        "import sys; import robust_eval.cli.run, robust_eval.experiment.run\n"
        "slow = ('torch', 'scipy', 'matplotlib', 'mlflow', 'datasets', 'openai')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


def test_no_module_lies_beside_the_rooms_but_the_nouns_that_everybody_knows():
    beside = {file.stem for file in (PROJECT / "robust_eval").glob("*.py")}
    assert beside == {"__init__", "__main__", "question", "answer", "error", "normalization", "numerals", "api"}


def test_threads_of_openmp_sleep_while_they_wait_unless_the_user_has_said_otherwise():
    """OpenMP says what it has read when torch loads it."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    begun = "import os, sys; from robust_eval import main; sys.argv = ['run.py', 'version']; main(); "
    for own, rest, expected in (
        ({"OMP_DISPLAY_ENV": "TRUE"}, "import torch", "OMP_WAIT_POLICY = 'PASSIVE'"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "sys.stderr.write(os.environ['OMP_WAIT_POLICY'])", "ACTIVE"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", begun + rest], cwd=PROJECT, env=environment | own, capture_output=True, text=True
        )
        assert expected in ran.stderr
