"""Lost interrupts (Ctrl-C) and their cost to a store, at any moment of a run.

    python benchmarks/interrupts.py [--interrupts 10000] [--seed 0] [--quick] [--json FILE]

A server without a model (support/stub_server.py) is asked for the same answers again and again, each time in a new
store, and an interrupt comes at a random moment. It is lost where the run goes on as if it had not come. What follows
goes on with the store that it left; once all answers are there, they are compared with those of an undisturbed run.
"""

import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.command import Command, write_figures
from support.stub_server import stub_server

from robust_eval.answer import rows
from robust_eval.engine.local import Local
from robust_eval.model.base import Request
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import RESEND_DELAY, Stopwatch, resend_lost_interrupts
from robust_eval.store.base import NoStore, Store
from robust_eval.store.sqlite import SqliteStore
from robust_eval.store.stored_model import StoredModel

QUESTIONS = 3
TWO = Capabilities("max_tokens", True, True, {}, 2.0, 20, False, choices=2, seed=True)
"""What the server can do, as far as it is asked: two answers to a request."""


def main() -> None:
    parser = Command(__doc__)
    parser.add_argument("--interrupts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.options(interrupts=20)
    start = time.perf_counter()
    with stub_server(seconds=0.0) as url, tempfile.TemporaryDirectory() as folder:
        figures = interrupted(url, Path(folder), options.interrupts, options.seed)
    figures["seconds"] = round(time.perf_counter() - start)
    for name, value in figures.items():
        print(f"{name:36} {value:>10}")
    write_figures(options.json, figures)


def interrupted(url: str, folder: Path, interrupts: int, seed: int) -> dict[str, int]:
    """What becomes of so many interrupts, and of the stores in the folder, flat."""
    requests = [
        Request(f"question {number}", 0, Prompt("", (), f"Name animal number {number}."), (0.5, 1.0), 2, 8, 0)
        for number in range(QUESTIONS)
    ]
    expected = _asked(url, NoStore(), requests)
    seconds = []
    for number in range(3):  # the first takes longer
        began = time.perf_counter()
        _asked(url, SqliteStore(str(folder / f"undisturbed{number}")), requests)
        seconds.append(time.perf_counter() - began)
    longest = 1.2 * min(seconds)
    generator, counts, removed = random.Random(seed), Counter[str](), 0
    with _thrown_away() as ignored, resend_lost_interrupts():
        for _ in range(interrupts):
            came = False
            for number in range(removed, counts["runs that ended"]):
                shutil.rmtree(folder / str(number))
            removed = counts["runs that ended"]

            def interrupt(*_: Any) -> None:
                nonlocal came
                came = True
                raise KeyboardInterrupt

            for number in (signal.SIGALRM, signal.SIGINT):
                signal.signal(number, interrupt)
            try:
                signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-4, longest))
                while not came:
                    store = folder / str(counts["runs that ended"])
                    table = _asked(url, SqliteStore(str(store)), requests)
                    counts["with other answers"] += list(_answers(table)) != list(_answers(expected))
                    counts["set aside"] += len(list(store.glob("damaged-*")))
                    counts["runs that ended"] += 1
                time.sleep(4 * RESEND_DELAY)  # one that was thrown away comes again
                counts["lost"] += 1
            except KeyboardInterrupt:
                counts["raised"] += 1
    names = ("raised", "lost", "runs that ended", "with other answers", "set aside")
    return {name: counts[name] for name in names} | {f"thrown away in {place}": n for place, n in ignored.items()}


@contextmanager
def _thrown_away() -> Iterator[Counter[str]]:
    """Where Python throws away exceptions other than interrupts, and says so."""
    found = Counter[str]()
    before = sys.unraisablehook
    sys.unraisablehook = lambda thrown: found.update([getattr(thrown.object, "__qualname__", repr(thrown.object)[:60])])
    try:
        yield found
    finally:
        sys.unraisablehook = before


def _answers(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return rows(table, "question_id", "temperature", "trial", "text", "outcome")


def _asked(url: str, store: Store, requests: Sequence[Request]) -> pa.Table:
    settings = OpenAI(name="m", model="m", base_url=url, api_key_env=None, max_concurrency=4)
    with store.open() as entries:
        model = StoredModel(settings, Local(), entries, Stopwatch())
        model._model()._capabilities = TWO  # type: ignore[attr-defined]
        return model.answers(requests, "answers").table


if __name__ == "__main__":
    main()
