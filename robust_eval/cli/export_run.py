"""Write a finished run for other harnesses: ``robust-eval export RUN --to inspect|every-eval-ever|csv``."""

import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

from robust_eval.cli.arguments import add_output, add_tracker, command_parser, output_folder
from robust_eval.error import writing
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
    """Export the run; print its files and the command that opens them."""
    parser = command_parser("export", "Write a finished run for other harnesses, or as tables.")
    parser.add_argument("run", metavar="RUN", help="folder of a run, name of a baseline, or id in MLflow")
    parser.add_argument("--to", choices=list(WRITERS), required=True, help="output format")
    add_output(parser, "folder for the files")
    add_tracker(parser)
    arguments = parser.parse_args()
    configure_logging()
    folder = output_folder(arguments, "exports")
    with command(), tempfile.TemporaryDirectory() as scratch:
        tracked = TrackedRuns(arguments.uri, arguments.mlruns, Path(scratch))
        answers = FinishedAnswers.read(folder_of(arguments.run, arguments.mlruns, tracked))
        with writing("the run", folder):
            folder.mkdir(parents=True, exist_ok=True)
            files = WRITERS[arguments.to](answers, folder)
        lines = [str(file) for file in files]
        if arguments.to == "inspect":
            lines.append(f"open it: inspect view --log-dir {shlex.quote(str(folder))}")
        if arguments.to != "csv":
            lines.append(f"score it again: robust-eval import {shlex.quote(str(files[0].parent))}")
        else:
            lines.append("text that a spreadsheet would evaluate gets a leading apostrophe")
            if names := ", ".join(answers.metadata.early_stopping):
                lines.append(f"the trials of {names} stopped early, so their accuracies are biased")
        for line in lines:
            terminal().print(line, soft_wrap=True)
