"""Time of a run beside other work: with threads that sleep while they wait, threads that spin, and one thread.

    python benchmarks/busy_machine.py [--questions 6] [--busy 2] [--repeats 3] [--quick] [--json FILE]

Each case is a run of its own of the default model, with a new store, alone and then beside as many busy loops. The
cases take turns. *Sleep* is what the program sets, *spin* what libgomp does where nothing is set; both must give the
same answers.
"""

import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from support.command import Command, write_figures

from robust_eval.config.groups import PROJECT

CASES: dict[str, tuple[dict[str, str], list[str]]] = {
    "sleep": ({"OMP_WAIT_POLICY": "PASSIVE"}, []),
    "spin": ({"GOMP_SPINCOUNT": "300000"}, []),
    "one thread": ({"OMP_WAIT_POLICY": "PASSIVE"}, ["engine.threads=1"]),
}
"""The environment and the settings of each."""


def main() -> None:
    parser = Command(__doc__)
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--busy", type=int, default=2, help="busy loops")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.options(questions=1, busy=1, repeats=1)
    seconds: dict[tuple[str, int], list[float]] = {}
    digests = set()
    for _ in range(options.repeats):
        for loops in (0, options.busy):
            for name, (environment, settings) in CASES.items():
                with busy(loops):
                    took, digest = run(environment, [*settings, f"dataset.limit={options.questions}"])
                seconds.setdefault((name, loops), []).append(took)
                digests |= {digest} if not settings else set()  # one thread adds up in another order
    assert len(digests) == 1, "how threads wait has changed answers"
    table = Table("threads", "alone, s", f"beside {options.busy} busy loops, s", "vs one thread")
    figures: dict[str, float] = {"busy loops": options.busy}
    for name in CASES:
        alone, beside = (statistics.median(seconds[name, loops]) for loops in (0, options.busy))
        ratio = beside / statistics.median(seconds["one thread", options.busy])
        figures |= {f"{name}: alone": alone, f"{name}: beside": beside, f"{name}: of one": ratio}
        table.add_row(name, f"{alone:.1f}", f"{beside:.1f}", f"{ratio:.2f}")
    Console(soft_wrap=True).print(table)
    write_figures(options.json, figures)


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run this many busy loops meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def run(environment: dict[str, str], settings: list[str]) -> tuple[float, str]:
    """The seconds that a run takes, and a digest of its answers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    with tempfile.TemporaryDirectory() as folder:
        places = [f"paths.mlruns={folder}", f"hydra.run.dir={folder}/run", "tracking=none", "sampler.selection=none"]
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "run.py", *places, *settings],
            cwd=PROJECT,
            env=kept | environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        took = time.perf_counter() - start
        table = pq.read_table(Path(folder) / "run" / "graded.parquet", columns=["question_id", "temperature", "text"])
    return took, hashlib.sha256(str(table.to_pylist()).encode()).hexdigest()


if __name__ == "__main__":
    main()
