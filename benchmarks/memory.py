"""Memory of the answer tree: by questions in flight, by trials, and by questions asked.

    python benchmarks/memory.py [--quick] [--json FILE]

Each measurement is a process of its own, with the default model on the CPU in float32: its largest resident memory
while it answers, less that before. Beside it stands what the program holds a question in flight to need at most, when
every answer differs from its first token on; it takes half of the free memory for as many as that allows.
"""

import argparse
import json
import threading
from dataclasses import replace

import psutil
from rich.console import Console
from rich.table import Table
from support.command import Command, of_its_own, write_figures
from support.counted_model import GRADER, CountedModel, answered, setting, warm_up

from robust_eval.sampler.temperature_sweep import TemperatureSweep

CASES = ((10, 1, 48), (10, 4, 48), (10, 16, 48), (10, 16, 192), (10, 16, 384), (100, 1, 8), (100, 4, 8))
"""Trials, questions in flight, questions asked."""
QUICK = ((2, 1, 2),)


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--case", type=int, nargs=3, help=argparse.SUPPRESS)
    options = command.options()
    if options.case:
        print(json.dumps(measured(*options.case)))
        return
    table = Table("trials", "in flight", "asked", "megabytes", "stated at most, a question in flight")
    figures: dict[str, float] = {}
    for case in QUICK if options.quick else CASES:
        peak, stated = of_its_own(__file__, *case)
        trials, in_flight, asked = case
        name = f"{trials} trials, {in_flight} in flight, {asked} asked"
        figures |= {f"{name}: megabytes": peak, f"{name}: stated megabytes": stated}
        table.add_row(*map(str, case), f"{peak:.0f}", f"{stated:.0f}")
    Console(soft_wrap=True).print(table)
    write_figures(options.json, figures)


def measured(trials: int, in_flight: int, asked: int) -> tuple[float, float]:
    """Megabytes that answering takes beyond what the loaded model does, and those stated for a question in flight."""
    settings, questions = setting("float32", f"dataset.limit={asked}")
    model = CountedModel(replace(settings, batch_size=in_flight * trials * len(TemperatureSweep().temperatures)))
    requests = TemperatureSweep(trials=trials).requests(questions, GRADER, seed=0)
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
    return (peak - before) / 2**20, model.loaded.bytes_per_question / 2**20


if __name__ == "__main__":
    main()
