"""The command ``robust-eval``: ``robust-eval [COMMAND] …``, which is ``python run.py …`` in a clone."""

import platform
import re
import sys
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple

from robust_eval.cli.arguments import command_parser
from robust_eval.error import UserError
from robust_eval.runtime.console import Console, silence_tqdm
from robust_eval.runtime.process import command
from robust_eval.runtime.text import nearest


class Command(NamedTuple):
    """Command of ``robust-eval``: its function, with its module before a colon, and its line in ``--help``."""

    function: str
    purpose: str

    def run(self) -> None:
        """Run the command: import its module, which may take seconds, and call the function."""
        module, _, name = self.function.partition(":")
        getattr(import_module(f"robust_eval.cli.{module}"), name or "main")()


COMMANDS = {
    "run": Command("run", "evaluate a model (run may be omitted)"),
    "compare": Command("compare", "compare finished runs"),
    "gate": Command("gate", "decide whether a candidate may replace its baseline"),
    "baseline": Command("gate:baseline", "name a run as a baseline, or list baselines"),
    "ask": Command("ask", "ask one question live, in several wordings"),
    "label": Command("label", "label answers as right or wrong, to correct the metrics"),
    "grade": Command("graders:grade_one", "grade one reply and explain the verdict"),
    "graders": Command("graders", "compare graders with human labels"),
    "show": Command("compare:show", "print the metrics of a finished run"),
    "plot": Command("plot", "redraw all figures of a run"),
    "import": Command("import_logs", "score logs from other harnesses"),
    "export": Command("export_run", "write a run for other harnesses, or as CSV"),
    "train-question-types": Command("train_question_types", "train a classifier of question types"),
    "help": Command("help", "list options, explain settings: help model=recorded"),
    "completion": Command("completion", "print the Tab-completion script for bash, zsh or fish"),
    "version": Command("main:print_versions", "print the versions of robust_eval and its libraries"),
}
"""Every command by its name."""


def main(default: str = "help") -> None:
    """Run the command that the first argument names: ``run`` before settings, ``default`` without arguments.

    Raises SystemExit with status 1, after a sentence, if the first argument is a word that is no command.

    >>> sys.argv = ["robust-eval", "comapre"]
    >>> main()
    Traceback (most recent call last):
        ...
    SystemExit: 1
    """
    silence_tqdm()
    name = next(iter(sys.argv[1:]), default)
    if name in ("--help", "-h") or "--version" in sys.argv:
        name = "version" if "--version" in sys.argv else "help"
        sys.argv[1:] = []
    elif name in COMMANDS:
        sys.argv[1:2] = []
    elif re.fullmatch(r"\w[\w-]*", name):
        with command():
            raise UserError(
                f"{name} is not a command{nearest(name, list(COMMANDS))}; commands are {', '.join(COMMANDS)}, "
                "and settings are KEY=VALUE"
            )
    COMMANDS.get(name, COMMANDS["run"]).run()


def print_versions() -> None:
    """Print the versions of robust_eval and of the packages that determine its answers."""
    command_parser("version", "Print the versions that determine the answers.").parse_args()
    packages = ("robust_eval", "torch", "transformers", "openai")
    for name, number in (*((name, version(name)) for name in packages), ("Python", platform.python_version())):
        Console().print(f"{name} {number}")
