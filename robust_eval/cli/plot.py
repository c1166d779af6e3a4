"""Figures of a finished run: ``robust-eval plot RUN``."""

import argparse
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.plot.registry import registered
from robust_eval.report.figures import save_entries
from robust_eval.runs.findings import read_findings
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command


def main() -> None:
    """Draw the figures of the run that the arguments name, and those of the method, and say where they lie."""
    parser = argparse.ArgumentParser(prog="robust-eval plot", description="All figures of a finished run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where they are written; by default RUN/figures")
    arguments = parser.parse_args()
    folder = arguments.output or arguments.run / "figures"
    with command():
        if arguments.output is None and any(path.is_symlink() for path in (folder, *folder.rglob("*"))):
            raise UserError(f"{folder} holds a link, and no folder is trusted to say where files go: name --output")
        run = read_findings(arguments.run)
        entries = [entry for entry in registered() if entry.allowed is None or entry.allowed(run)]
        try:
            save_entries(entries, run, folder)
        except OSError as problem:
            raise UserError(f"the figures cannot be written to {folder}: {first_line(problem)}") from problem
        Console().print(f"figures: {folder}")


if __name__ == "__main__":
    main()
