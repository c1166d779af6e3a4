"""How much memory the answer tree takes: by questions in flight, by trials, and by questions asked.

    python benchmarks/memory.py [--json FILE]

Each measurement is a process of its own, with the default model on the CPU in float32: its largest resident memory
while it answers, less that before. Beside it stands what the program holds a question in flight to need at most, when
every answer differs from its first token on; it takes half of the free memory for as many as that allows.
"""

import argparse
import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from sampling import GRADER, Model, answered, setting, warm_up

from robust_eval.sampler.temperature_sweep import TemperatureSweep

CASES = ((10, 1, 48), (10, 4, 48), (10, 16, 48), (10, 16, 192), (10, 16, 384), (100, 1, 8), (100, 4, 8))
"""Trials, questions in flight, questions asked."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--case", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measured(*options.case)))
        return
    table = Table("trials", "in flight", "asked", "megabytes", "stated at most, a question in flight")
    rows = []
    for case in CASES:
        command = [sys.executable, __file__, "--case", *map(str, case)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        peak, stated = json.loads(output.splitlines()[-1])
        rows.append(
            dict(zip(("trials", "in_flight", "asked", "megabytes", "stated"), (*case, peak, stated), strict=True))
        )
        table.add_row(*map(str, case), f"{peak:.0f}", f"{stated:.0f}")
    Console(soft_wrap=True).print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def measured(trials: int, in_flight: int, asked: int) -> tuple[float, float]:
    """Megabytes that answering takes beyond what the loaded model does, and those stated for a question in flight."""
    settings, questions = setting(asked, "float32")
    model = Model(replace(settings, answers_at_once=in_flight * trials * len(TemperatureSweep().temperatures)))
    requests = [replace(r, matcher=None) for r in TemperatureSweep(trials=trials).requests(questions, GRADER, seed=0)]
    for _ in answered(model.loaded, warm_up(requests, model.tokenizer)):
        pass
    process = psutil.Process()
    before = peak = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in answered(model.loaded, requests):
        pass
    done.set()
    watcher.join()
    return (peak - before) / 2**20, model.loaded.description()["bytes_per_question_at_most"] / 2**20


if __name__ == "__main__":
    main()
