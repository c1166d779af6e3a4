"""Command-line arguments that several commands share."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from robust_eval.runtime.process import timestamp


def command_parser(name: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Return the argument parser of a command of robust-eval."""
    return argparse.ArgumentParser(prog=f"robust-eval {name}", description=description, epilog=epilog)


def add_tracker(parser: argparse.ArgumentParser) -> None:
    """Add the arguments ``--mlruns`` and ``--uri``: the folder of runs, and the MLflow server."""
    parser.add_argument("--mlruns", type=Path, default=Path("mlruns"), metavar="FOLDER", help="folder of runs (mlruns)")
    parser.add_argument("--uri", help="URI of the MLflow server; default: the database in --mlruns")


def add_output(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the argument ``--output FOLDER``."""
    parser.add_argument("--output", type=Path, metavar="FOLDER", help=purpose)


def output_folder(arguments: argparse.Namespace, kind: str) -> Path:
    """Return the argument ``--output``; by default a new folder under ``--mlruns``, among those of its kind."""
    folder: Path = arguments.output or arguments.mlruns / kind / timestamp()
    return folder


def split_arguments(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the words that name files or folders, and those of the form ``KEY=VALUE``; a file may have such a name."""
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    return [Path(word) for word in words if word not in settings], settings
