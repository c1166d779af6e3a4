"""What stands between the command line and an experiment: checks first, and one sentence where something is wrong."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape

from robust_eval.config import register, to_config
from robust_eval.error import UserError
from robust_eval.overrides import checked_overrides


def checked(arguments: Sequence[str]) -> list[str]:
    """The arguments for Hydra, with shorthands spelt out; exits with status 1 and a sentence where they are wrong."""
    register()
    parser = get_args_parser()
    known, _ = parser.parse_known_args(list(arguments))
    overrides = list(known.overrides)
    if known.help or known.hydra_help or known.info or known.config_name or known.config_path:
        return list(arguments)
    try:
        expanded = dict(zip(overrides, checked_overrides(overrides), strict=True))
    except UserError as problem:
        _stop(problem)
    return [expanded.get(argument, argument) for argument in arguments]


def run(composed: DictConfig, folder: str) -> None:
    """Run one experiment into ``folder``; exits with status 1 and a sentence where a user can mend what is wrong."""
    try:
        config = to_config(composed)
        from robust_eval import experiment

        experiment.run(config, composed, Path(folder))
    except UserError as problem:
        _stop(problem)


def _stop(problem: UserError) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(problem))}")
    sys.exit(1)
