"""Sweeps (``-m``): a job that fails stops no other, and the tracker shows all jobs under one parent run."""

import shutil
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from robust_eval.config.config import Config
from robust_eval.error import UserError, first_line
from robust_eval.runtime.text import printable, printable_lines
from robust_eval.tracking.base import Run, Tracking
from robust_eval.tracking.run_folder import COMPARISON, CONFIG, ERROR, finished_jobs


def run_sweep(launch: Callable[[], None], config: Config, swept: Sequence[str], jobs: int, folder: Path) -> None:
    """Run the jobs that ``launch`` starts, each in a folder of its own under ``folder``.

    ``config`` is the configuration of any one job, ``swept`` the overrides that differ between jobs. Raises UserError
    where a job failed, after all others are done. A sweep whose jobs asked nothing leaves no folder and nothing in the
    tracker.
    """
    tracking: Tracking = config.tracking
    name = f"sweep over {', '.join(swept)}" if swept else "sweep"
    fresh, before = not folder.exists(), _begun(folder)
    with tracking.sweep(name, Path(config.paths.mlruns), folder) as record:
        try:
            launch()
            finished = finished_jobs(folder)
            if finished:
                _compare(finished, folder / COMPARISON, record)
            if len(finished) < jobs:
                where = f", in {folder}" if _begun(folder) != before else " before anything was asked"
                raise UserError(f"{jobs - len(finished)} of {jobs} jobs failed{where}: {_reasons(folder)}")
        finally:
            if _begun(folder) == before:
                record.discard()
                if fresh:
                    shutil.rmtree(folder, ignore_errors=True)


def _begun(folder: Path) -> dict[Path, int]:
    """Return when each job of the sweep wrote its configuration, for those that did."""
    return {file: file.stat().st_mtime_ns for file in folder.glob(f"*/{CONFIG}")}


def _reasons(folder: Path) -> str:
    """Format why jobs failed: each reason, after the numbers of the jobs that it stopped."""
    failed: dict[str, list[str]] = {}
    for file in sorted(folder.glob(f"*/{ERROR}")):
        failed.setdefault(file.read_text(encoding="utf-8").splitlines()[0], []).append(file.parent.name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in failed.items()) or "without a word"


def _compare(jobs: Sequence[Path], folder: Path, record: Run) -> None:
    """Compare the runs in these folders: write it to ``folder`` and the tracker, and print the main figures."""
    from robust_eval.report.comparison_page import write_comparison
    from robust_eval.report.mlflow_tables import best_and_range, comparison_note, comparison_tables
    from robust_eval.report.terminal import print_comparison
    from robust_eval.runs.comparison import compare
    from robust_eval.runs.finished_runs import read_run

    compared = compare([read_run(job) for job in jobs])
    write_comparison(compared, folder)
    record.folder(folder)
    figures, best = best_and_range(compared)
    record.scores([], figures)
    record.tags(best)
    record.note(comparison_note(compared))
    record.tables(comparison_tables(compared))
    print_comparison(compared, folder)


def write_error(problem: Exception, folder: Path) -> None:
    """Write the reason and the traceback into the folder of a job that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(traceback.format_exception(problem))
    (folder / ERROR).write_text(f"{printable(first_line(problem))}\n\n{printable_lines(lines)}", encoding="utf-8")
