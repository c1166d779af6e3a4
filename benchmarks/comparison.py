"""Cost of a comparison of large runs: the time to read the runs, to compare them, and to write the page.

    python benchmarks/comparison.py [--runs 4] [--questions 100000] [--quick] [--json FILE]

One run of made-up answers (tests/support/recorded_run.py) goes through the whole program. The other runs are copies of
it under other names, in which another question has each value, so that all pairs differ in all questions.
"""

import shutil
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from experiments import without_figures
from recorded_run import recorded_run
from support.command import Command, write_figures

from robust_eval.report.comparison_page import write_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import DESCRIBING, read_run
from robust_eval.tracking.run_folder import CONFIG, QUESTIONS

MODEL = "made-up"
"""What recorded_run calls its model."""


def measure(runs: int, questions: int, folder: Path) -> dict[str, float]:
    """Seconds of each part."""
    with redirect_stdout(sys.stderr), without_figures():  # the run's own figures are not the benchmark's
        recorded_run(folder / "first", questions)
    first = folder / "first" / "run"
    folders = [first, *(_another(first, folder / f"other{place}", place) for place in range(1, runs))]
    start = time.perf_counter()
    found = [read_run(each) for each in folders]
    read = time.perf_counter()
    compared = compare(found)
    paired = time.perf_counter()
    write_comparison(compared, folder / "comparison")
    written = time.perf_counter()
    page = folder / "comparison" / "comparison.html"
    return {
        "seconds to read": read - start,
        "seconds to compare": paired - read,
        "seconds to write": written - paired,
        "seconds in all": written - start,
        "megabytes": page.stat().st_size / 1e6,
    }


def _another(first: Path, folder: Path, place: int) -> Path:
    """Copy a run under another name; each of its values is that of a question so many places further."""
    shutil.copytree(first, folder)
    settings = folder / CONFIG
    settings.write_text(settings.read_text(encoding="utf-8").replace(MODEL, f"{MODEL}-{place}"), encoding="utf-8")
    table = pq.read_table(folder / QUESTIONS)
    for column in set(table.column_names) - {*DESCRIBING}:
        values = table[column].combine_chunks()
        moved = pa.concat_arrays([values.slice(place), values.slice(0, place)])
        table = table.set_column(table.schema.get_field_index(column), table.schema.field(column), moved)
    pq.write_table(table, folder / QUESTIONS)
    return folder


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--runs", type=int, default=4)
    command.add_argument("--questions", type=int, default=100_000)
    options = command.options(runs=2, questions=40)
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(options.runs, options.questions, Path(scratch))
    print(f"{options.runs} runs of {options.questions:,} questions")
    for name, value in found.items():
        print(f"{name:24}{value:10,.2f}")
    write_figures(options.json, {"runs": options.runs, "questions": options.questions} | found)


if __name__ == "__main__":
    main()
