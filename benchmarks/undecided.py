"""Cost of a sweep with early stopping on a server (no answer beyond breaking temperatures), beside one that asks all.

    python benchmarks/undecided.py [--facts 203] [--seconds 0.2] [--quick] [--json FILE]

The server (benchmarks/support/stub_server.py, in a process of its own on this machine) answers each request after so
many seconds, once with one answer to a request and once with up to ten. Of each fact 10 answers at each of 10
temperatures are planned; which are right is drawn beforehand, from curves that fall where those of SmolLM2-135M do. The
breaking temperatures are compared, and must be the same.
"""

import argparse
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from support.command import Command, write_figures
from support.stub_server import stub_server

from robust_eval.answer import rows
from robust_eval.engine.local import Local
from robust_eval.model.base import Request
from robust_eval.model.served.openai import OpenAI
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.temperature_sweep import Waves
from robust_eval.stats.frs import breaking_temperature, settled
from robust_eval.store.sqlite import SqliteStore
from robust_eval.store.stored_model import StoredModel

GRID = tuple(round(0.2 * step, 1) for step in range(1, 11))
TRIALS = 10


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--facts", type=int, default=203)
    command.add_argument("--seconds", type=float, default=0.2, help="that the server takes to answer")
    options = command.options(facts=8, seconds=0.01)
    figures = measured(options)
    for name, value in figures.items():
        print(f"{name:60} {value:10.2f}")
    write_figures(options.json, figures)


def measured(options: argparse.Namespace) -> dict[str, float]:
    """The figures, flat."""
    requests = [
        Request(f"fact {k}", 0, Prompt("Be brief.", (), f"Name the capital of country {k}."), GRID, TRIALS, 8, 0)
        for k in range(options.facts)
    ]
    figures: dict[str, float] = {"facts": options.facts, "answers planned for a fact": len(GRID) * TRIALS}
    with stub_server(options.seconds, limit=10_000) as url:
        for choices in (1, TRIALS):
            of = f"{choices} to a request" if choices == 1 else f"up to {choices} to a request"
            whole, undecided = (asked(url, requests, choices, less) for less in (False, True))
            if not np.array_equal(whole[2], undecided[2]):
                raise RuntimeError("the breaking temperatures differ")
            figures |= {
                f"answers for a fact, {of}": undecided[1] / options.facts,
                f"seconds, all, {of}": whole[0],
                f"seconds, undecided, {of}": undecided[0],
                f"times as long, {of}": undecided[0] / whole[0],
            }
    return figures


def asked(url: str, requests: Sequence[Request], choices: int, less: bool) -> tuple[float, int, np.ndarray]:
    """Seconds, number of answers, and breaking temperatures."""
    settings = OpenAI(name="stub", model="stub", base_url=url, api_key_env=None)
    with tempfile.TemporaryDirectory() as folder, SqliteStore(folder).open() as entries:
        model = StoredModel(settings, Local(), entries, Stopwatch())
        model.check(requests)
        server = model._model()  # type: ignore[attr-defined]
        server._capabilities = replace(server._capabilities, choices=choices)
        start = time.perf_counter()
        if less:
            waves = Waves(requests, partial(settled, threshold=0.5), verdicts)
            table = model.adaptive_answers(waves, "answers").table
        else:
            table = model.answers(requests, "answers").table
        seconds = time.perf_counter() - start
    places = {request.question_id: place for place, request in enumerate(requests)}
    right, replies = (np.zeros((len(requests), len(GRID))) for _ in range(2))
    for (name, temperature), correct in zip(rows(table, "question_id", "temperature"), verdicts(table), strict=True):
        place = places[name], GRID.index(temperature)
        right[place] += correct
        replies[place] += 1
    with np.errstate(invalid="ignore"):
        return seconds, table.num_rows, breaking_temperature(right / replies, GRID)


def verdicts(table: pa.Table) -> list[bool]:
    """Return which answers are right: with a probability that falls with the temperature, to a half where a fact
    breaks.
    """
    found = []
    for name, temperature, trial in rows(table, "question_id", "temperature", "trial"):
        breaks = 0.5 + 1.2 * _uniform(name)
        found.append(_uniform(f"{name} {temperature} {trial}") < 1 / (1 + np.exp((temperature - breaks) / 0.15)))
    return found


def _uniform(text: str) -> float:
    return zlib.crc32(text.encode()) / 2**32


if __name__ == "__main__":
    main()
