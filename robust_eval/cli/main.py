"""The command ``robust-eval``: ``robust-eval [COMMAND] …``, which is ``python run.py …`` in a clone."""

import sys
from importlib import import_module

from robust_eval.error import UserError
from robust_eval.runtime.command import command

COMMANDS = {
    "run": "robust_eval.cli.run",
    "compare": "robust_eval.cli.compare",
    "ask": "robust_eval.cli.ask",
    "plot": "robust_eval.cli.plot",
    "train-question-types": "robust_eval.cli.train_question_types",
    "import": "robust_eval.cli.answer_lists",
    "version": "robust_eval.cli.version",
}
"""Each command, with the module whose ``main()`` does it; it is imported when it is wanted, as some take seconds."""


def main() -> None:
    """Do what the first argument names; without the name of a command, measure a model.

    Exits with status 1 and a sentence where the first argument is a word that is no command.
    """
    name = next(iter(sys.argv[1:]), "run")
    if name in COMMANDS:
        sys.argv[1:2] = []
    elif name.isidentifier():
        with command():
            raise UserError(f"{name} is no command; there are {', '.join(COMMANDS)}, and settings are KEY=VALUE")
    import_module(COMMANDS.get(name, COMMANDS["run"])).main()
