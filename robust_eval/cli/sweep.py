"""Many runs from one command (``-m``): one that fails stops no other, and the tracker shows them under one parent."""

import shutil
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from robust_eval.config.config import Config
from robust_eval.error import UserError, first_line
from robust_eval.record.run_folder import COMPARISON, CONFIG, ERROR, finished_jobs
from robust_eval.record.tracking import Run, Tracking
from robust_eval.runtime.printable import printable, printable_lines


def run_sweep(launch: Callable[[], None], config: Config, swept: Sequence[str], jobs: int, folder: Path) -> None:
    """Run the jobs that ``launch`` starts, each in a folder of its own under ``folder``.

    ``config`` is that of any one job, ``swept`` what differs between them. UserError where a job failed, once all the
    others are done. A sweep of which no job has asked anything leaves nothing, neither here nor in the tracker.
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
    """When each job of the sweep has begun that has."""
    return {file: file.stat().st_mtime_ns for file in folder.glob(f"*/{CONFIG}")}


def _reasons(folder: Path) -> str:
    """Why jobs failed, each reason after the numbers of those that it stopped."""
    failed: dict[str, list[str]] = {}
    for file in sorted(folder.glob(f"*/{ERROR}")):
        failed.setdefault(file.read_text(encoding="utf-8").splitlines()[0], []).append(file.parent.name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in failed.items()) or "without a word"


def _compare(jobs: Sequence[Path], folder: Path, record: Run) -> None:
    """Write down how the runs in these folders compare, in the tracker as well, and show the main figures."""
    from robust_eval.report.comparison import compare
    from robust_eval.report.comparison_page import write_comparison
    from robust_eval.report.finished_runs import read_run
    from robust_eval.report.mlflow_tables import comparison_note, comparison_tables
    from robust_eval.report.terminal import print_comparison

    compared = compare([read_run(job) for job in jobs])
    write_comparison(compared, folder)
    record.folder(folder)
    record.note(comparison_note(compared))
    record.tables(comparison_tables(compared))
    print_comparison(compared, folder)


def write_error(problem: Exception, folder: Path) -> None:
    """Leave the reason in the folder of a job that failed, and under it where it came from."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(traceback.format_exception(problem))
    (folder / ERROR).write_text(f"{printable(first_line(problem))}\n\n{printable_lines(lines)}", encoding="utf-8")
