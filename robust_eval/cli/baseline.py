"""Runs that others are gated by, by name: ``robust-eval baseline set NAME RUN``, ``list``, ``show NAME``."""

import argparse
import tempfile
from pathlib import Path

from robust_eval.error import OutageError, UserError
from robust_eval.gate.baselines import baseline_named, baselines, set_baseline
from robust_eval.gate.measured_run import read_measured
from robust_eval.report.terminal import terminal
from robust_eval.runs.mlflow_runs import TrackedRuns
from robust_eval.runtime.process import command


def main() -> None:
    """Do what the first word says; exit with 2 and a sentence after a mistake."""
    arguments = _parser().parse_args()
    mlruns = arguments.mlruns
    with command(mistake=2):
        if arguments.action == "set":
            _refuse_unusable(arguments.run, mlruns, arguments.uri)
            set_baseline(mlruns, arguments.name, arguments.run)
            terminal().print(f"baseline {arguments.name}: {arguments.run}")
        elif arguments.action == "show":
            found = baseline_named(mlruns, arguments.name)
            if found is None:
                there = ", ".join(baselines(mlruns)) or "none"
                raise UserError(f"there is no baseline {arguments.name} under {mlruns}; there are {there}")
            terminal().print(found)
        else:
            for name in baselines(mlruns):
                terminal().print(f"{name}: {baseline_named(mlruns, name)}")


def _refuse_unusable(run: str, mlruns: Path, uri: str | None) -> None:
    """Raise UserError where a run cannot be gated by."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            folder = Path(run) if Path(run).is_dir() else TrackedRuns(uri, mlruns, Path(scratch)).fetched(run)
            read_measured(folder, run)
        except OutageError as problem:
            raise UserError(f"no baseline: {problem}") from problem


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="robust-eval baseline", description="Call runs baselines, by name.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--mlruns", type=Path, default=Path("mlruns"), metavar="FOLDER", help="where runs are kept")
    shared.add_argument("--uri", help="of the MLflow server; by default the database in --mlruns")
    actions = parser.add_subparsers(dest="action", required=True)
    setting = actions.add_parser("set", parents=[shared], help="let a name stand for a run")
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("run", metavar="RUN", help="its folder, or its id in MLflow")
    actions.add_parser("list", parents=[shared], help="name all")
    actions.add_parser("show", parents=[shared], help="say which run a name stands for").add_argument(
        "name", metavar="NAME"
    )
    return parser


if __name__ == "__main__":
    main()
