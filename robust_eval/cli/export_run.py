"""Write a finished run for other harnesses: ``robust-eval export RUN --to inspect|every-eval-ever|csv``."""

import argparse
import shlex
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from robust_eval.cli.arguments import add_output, add_tracker, command_parser
from robust_eval.error import UserError, first_line
from robust_eval.gate.baselines import folder_of
from robust_eval.interop.csv_writer import write_csv
from robust_eval.interop.every_eval_ever import write_every_eval_ever
from robust_eval.interop.finished_answers import FinishedAnswers
from robust_eval.interop.inspect_log import write_inspect
from robust_eval.report.terminal import terminal
from robust_eval.runs.mlflow_runs import TrackedRuns
from robust_eval.runtime.console import configure_logging
from robust_eval.runtime.process import command

WRITERS: dict[str, Callable[[FinishedAnswers, Path], list[Path]]] = {
    "inspect": write_inspect,
    "every-eval-ever": write_every_eval_ever,
    "csv": write_csv,
}
"""Writer of each format; each returns the files."""


def main() -> None:
    """Write the run, and say where it lies and how it is opened; exit with 1 and a sentence after a mistake."""
    arguments = _parser().parse_args()
    configure_logging()
    now = datetime.now().strftime("%Y-%m-%d/%H-%M-%S-%f")
    folder = arguments.output or arguments.mlruns / "exports" / now
    with command(), tempfile.TemporaryDirectory() as scratch:
        tracked = TrackedRuns(arguments.uri, arguments.mlruns, Path(scratch))
        answers = FinishedAnswers.read(folder_of(arguments.run, arguments.mlruns, tracked))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files = WRITERS[arguments.to](answers, folder)
        except OSError as problem:
            raise UserError(f"the run cannot be written to {folder}: {first_line(problem)}") from problem
        for line in _said(arguments.to, answers, files, folder):
            terminal().print(line, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("export", "Write a finished run for other harnesses, or as tables.")
    parser.add_argument("run", metavar="RUN", help="folder of a run, name of a baseline, or id in MLflow")
    parser.add_argument("--to", choices=list(WRITERS), required=True, help="the format")
    add_output(parser, "where it is written")
    add_tracker(parser)
    return parser


def _said(to: str, answers: FinishedAnswers, written: list[Path], folder: Path) -> list[str]:
    """Return where the files lie, and how they are opened."""
    quoted = shlex.quote(str(folder))
    lines = [str(file) for file in written]
    if to == "inspect":
        lines.append(f"open it: inspect view --log-dir {quoted}")
    if to != "csv":
        return [*lines, f"score it again: robust-eval import {shlex.quote(str(written[0].parent))}"]
    lines.append("a text that a spreadsheet would evaluate gets a leading apostrophe")
    if answers.metadata.early_stopping:
        names = ", ".join(answers.metadata.early_stopping)
        lines.append(f"the trials of {names} stopped early, so their accuracies are biased")
    return lines
