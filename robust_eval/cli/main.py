"""The command ``robust-eval``: ``robust-eval [COMMAND] …``, which is ``python run.py …`` in a clone."""

import re
import sys
from importlib import import_module
from typing import NamedTuple

from robust_eval.error import UserError
from robust_eval.runtime.console import silence_tqdm
from robust_eval.runtime.process import command


class Command(NamedTuple):
    """A module whose ``main()`` does it, and what ``--help`` says of it."""

    module: str
    says: str


COMMANDS = {
    "run": Command("robust_eval.cli.run", "measure a model, as without the name of a command"),
    "compare": Command("robust_eval.cli.compare", "compare finished runs"),
    "gate": Command("robust_eval.cli.gate", "may a candidate replace its baseline?"),
    "baseline": Command("robust_eval.cli.baseline", "name runs to gate by"),
    "ask": Command("robust_eval.cli.ask", "ask one question live, in several wordings"),
    "label": Command("robust_eval.cli.label", "say which answers are right, to correct the figures"),
    "grade": Command("robust_eval.cli.grade", "grade one reply, and show why it is right or wrong"),
    "graders": Command("robust_eval.cli.graders", "compare graders with what people say of answers"),
    "plot": Command("robust_eval.cli.plot", "draw every figure of a run on one page"),
    "import": Command("robust_eval.cli.import_logs", "score logs of other harnesses, or lists of letters"),
    "export": Command("robust_eval.cli.export_run", "write a run for other harnesses, or as CSV"),
    "train-question-types": Command("robust_eval.cli.train_question_types", "train a classifier of question types"),
    "help": Command("robust_eval.cli.help", "say what can be chosen and set: help model=recorded"),
    "completion": Command("robust_eval.cli.completion", "print what makes Tab work: completion bash, zsh or fish"),
    "version": Command("robust_eval.cli.version", "print the versions"),
}
"""Each command; its module is imported when it is wanted, as some take seconds."""


def main() -> None:
    """Do what the first argument names; without the name of a command, measure a model.

    Exits with status 1 and a sentence where the first argument is a word that is no command.
    """
    silence_tqdm()
    name = next(iter(sys.argv[1:]), "run")
    if name in ("--help", "-h", "--version"):
        sys.argv[1:] = []
        name = "version" if name == "--version" else "help"
    elif name in COMMANDS:
        sys.argv[1:2] = []
    elif re.fullmatch(r"\w[\w-]*", name):
        from robust_eval.config.composition_errors import nearest  # it takes a moment

        with command():
            commands = ", ".join(COMMANDS)
            raise UserError(
                f"{name} is no command{nearest(name, list(COMMANDS))}; there are {commands}, and settings are KEY=VALUE"
            )
    command_name = name if name in COMMANDS else "run"
    import_module(COMMANDS[command_name].module).main()
