"""Metrics of finished runs: ``robust-eval compare RUN RUN …`` and ``robust-eval show RUN``."""

import argparse
import tempfile
from pathlib import Path

from robust_eval.cli.arguments import add_output, add_tracker, command_parser, output_folder
from robust_eval.error import UserError, writing
from robust_eval.report.comparison_page import write_comparison
from robust_eval.report.run_summary import rows_of_finished
from robust_eval.report.terminal import print_comparison, print_metrics, terminal
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import FinishedRun, read_run
from robust_eval.runs.mlflow_runs import TrackedRuns
from robust_eval.runtime.process import command
from robust_eval.tracking.run_folder import finished_jobs


def main() -> None:
    """Compare finished runs; print the metrics and the folder of the comparison."""
    parser = command_parser("compare", "Compare finished runs.")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folder of a run or of a sweep, or its id in MLflow")
    parser.add_argument("--experiment", metavar="NAME", help="all finished runs of this MLflow experiment")
    parser.add_argument("--all", action="store_true", help="print all runs and metrics, not only the main ones")
    add_tracker(parser)
    add_output(parser, "folder for the comparison")
    arguments = parser.parse_args()
    folder = output_folder(arguments, "comparisons")
    with command():
        if not arguments.runs and not arguments.experiment:
            raise UserError("name runs (folders, run ids, sweeps) or an --experiment; see --help")
        with tempfile.TemporaryDirectory() as scratch:
            compared = compare(_runs(arguments, Path(scratch)))
            with writing("the comparison", folder):
                write_comparison(compared, folder)
        print_comparison(compared, folder, arguments.all)


def _runs(arguments: argparse.Namespace, scratch: Path) -> list[FinishedRun]:
    """Read the runs to compare, in the order of the arguments; those of an experiment in the order in which they
    started. Files of tracked runs are downloaded into ``scratch``.
    """
    runs: list[FinishedRun] = []
    tracked = TrackedRuns(arguments.uri, arguments.mlruns, scratch)
    for name in arguments.runs:
        folder = Path(name)
        if folder.is_dir():
            runs += [read_run(each) for each in finished_jobs(folder) or [folder]]
        else:
            runs += tracked.named(name)
    if arguments.experiment:
        runs += tracked.of_experiment(arguments.experiment)
    return runs


def show() -> None:
    """Print the main metrics of one run (``show RUN``); with ``--all``, all of its headline metrics."""
    parser = command_parser("show", "Print the metrics of a finished run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--all", action="store_true", help="all metrics, not only the main ones")
    arguments = parser.parse_args()
    with command():
        run = read_run(arguments.run)
        print_metrics(run.title, rows_of_finished(run), arguments.run, terminal(), arguments.all)
