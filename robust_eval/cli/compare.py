"""Compare finished runs: ``robust-eval compare --experiment NAME``, or run ids, or folders."""

import argparse
import tempfile
from datetime import datetime
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.report.comparison_page import write_comparison
from robust_eval.report.terminal import print_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import FinishedRun, read_run
from robust_eval.runs.mlflow_runs import TrackedRuns
from robust_eval.runtime.process import command
from robust_eval.tracking.run_folder import finished_jobs


def main() -> None:
    """Read the runs that the arguments name, compare them, and say where the comparison lies."""
    arguments = _parser().parse_args()
    now = datetime.now().strftime("%Y-%m-%d/%H-%M-%S-%f")
    folder = arguments.output or arguments.mlruns / "comparisons" / now
    with command():
        if not arguments.runs and not arguments.experiment:
            raise UserError("name runs (folders, run ids, sweeps) or an --experiment; see --help")
        compared = compare(_runs(arguments))
        try:
            write_comparison(compared, folder)
        except OSError as problem:
            raise UserError(f"the comparison cannot be written to {folder}: {first_line(problem)}") from problem
        print_comparison(compared, folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="robust-eval compare", description="Compare finished runs.")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folder of a run or of a sweep, or its id in MLflow")
    parser.add_argument("--experiment", metavar="NAME", help="all finished runs of this MLflow experiment")
    parser.add_argument("--uri", help="of the MLflow server; by default the database in --mlruns")
    parser.add_argument("--mlruns", type=Path, default=Path("mlruns"), metavar="FOLDER", help="where runs are kept")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where the comparison is written")
    return parser


def _runs(arguments: argparse.Namespace) -> list[FinishedRun]:
    """Read the runs in the order in which they are named; those of an experiment in the order in which they started."""
    runs: list[FinishedRun] = []
    with tempfile.TemporaryDirectory() as scratch:
        tracked = TrackedRuns(arguments.uri, arguments.mlruns, Path(scratch))
        for name in arguments.runs:
            folder = Path(name)
            if folder.is_dir():
                runs += [read_run(each) for each in finished_jobs(folder) or [folder]]
            else:
                runs += tracked.named(name)
        if arguments.experiment:
            runs += tracked.of_experiment(arguments.experiment)
    return runs


if __name__ == "__main__":
    main()
