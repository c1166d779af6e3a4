"""Cost of a server's faults for a run, in time and in lost answers.

    python benchmarks/faults.py [--answers 2000] [--rate 0.2] [--max-concurrency 16] [--quick] [--json FILE]

The model behind a real server (llama.cpp with the embedded SmolLM2-135M, on this machine) is asked for so many answers
twice, once directly and once through a proxy at which so many of the requests meet a fault, any of
tests/support/fault_proxy.py but the one that ends a run. Imposed waits are the seconds for which nothing was started
because the server had said so. Answers are compared by their text and outcome; those that a content filter took (a
fault, too) are counted apart.
With --quick the server has no model (benchmarks/support/stub_server.py).
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
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
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import NoStore
from robust_eval.store.stored_model import StoredModel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from api_server import SLOTS, api_server
from fault_proxy import FAULTS, INSTEAD, FaultProxy

TEMPERATURES = (0.5, 1.0)
TRIALS = 5
PLACE = ("question_id", "temperature", "trial")
ENDS = ("insufficient_quota",)


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--answers", type=int, default=2000, help="rounded up to tens")
    command.add_argument("--rate", type=float, default=0.2, help="share of requests that meet a fault")
    command.add_argument("--seed", type=int, default=1, help="of the plan of faults")
    command.add_argument(
        "--max-concurrency", type=int, default=16, help=f"requests in flight; the server has {SLOTS} slots"
    )
    command.add_argument("--timeout", type=float, default=10.0, help="after which a request is given up")
    options = command.options(answers=100, rate=0.3, timeout=2.0)
    figures = measured(options)
    for name, value in figures.items():
        print(f"{name:36} {value:10.2f}" if isinstance(value, float) else f"{name:36} {value!s:>10}")
    write_figures(options.json, figures)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """The figures, flat."""
    asked = requests(-(-options.answers // (len(TEMPERATURES) * TRIALS)))
    faults = [fault for fault in FAULTS if fault not in ENDS]
    with stub_server(seconds=0.0) if options.quick else api_server() as url:
        can = asyncio.run(settings(url, options).load()._probe(1.0))  # the plan of faults is for what is asked
        ask(url, options, can, requests(4))  # the server's first answers are slow
        seconds, free, _ = ask(url, options, can, asked)
        with FaultProxy(url, faults=faults, rate=options.rate, seed=options.seed) as proxy:
            faulty_seconds, faulty, description = ask(proxy.base_url, options, can, asked)
            log = proxy.log
    expected = [(request.question_id, t, k) for request in asked for t in TEMPERATURES for k in range(TRIALS)]
    outcomes = Counter(faulty["outcome"].to_pylist())
    filtered = outcomes["filtered_prompt"] + outcomes["filtered_reply"]
    pairs = zip(rows(free, "text", "outcome"), rows(faulty, "text", "outcome"), strict=True)
    met = Counter(entry.fault for entry in log)
    imposed = description["pace.paused_seconds"]
    return {
        "answers": len(expected),
        "seconds without faults": seconds,
        "seconds with faults": faulty_seconds,
        "imposed waits (s)": float(imposed),
        "ratio": faulty_seconds / seconds,
        "ratio without imposed waits": (faulty_seconds - imposed) / seconds,
        "answers accounted for": faulty.num_rows if list(rows(faulty, *PLACE)) == expected else -1,
        "filtered by a fault": filtered,
        "errors": outcomes["error"],
        "equal answers, of those not filtered": sum(
            before == after for before, after in pairs if not after[1].startswith("filtered")
        ),
        "requests": len(log),
        "requests that met a fault": len(log) - met[None],
        "requests that reached the server": sum(1 for entry in log if entry.fault not in (*INSTEAD, "hang")),
        **{f"fault {fault}": met[fault] for fault in faults},
    }


def requests(questions: int) -> list[Request]:
    return [
        Request(f"question {number}", 0, Prompt("", (), f"Name animal number {number}."), TEMPERATURES, TRIALS, 8, 0)
        for number in range(questions)
    ]


def settings(url: str, options: argparse.Namespace) -> OpenAI:
    return OpenAI(
        name="m",
        model="m",
        base_url=url,
        api_key_env=None,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
    )


def ask(
    url: str, options: argparse.Namespace, can: Capabilities, asked: Sequence[Request]
) -> tuple[float, pa.Table, dict[str, Any]]:
    """Seconds, answers, and what the model says of itself."""
    with NoStore().open() as entries:
        model = StoredModel(settings(url, options), Local(), entries, Stopwatch())
        model._model()._capabilities = can  # type: ignore[attr-defined]
        start = time.perf_counter()
        table = model.answers(asked, "answers").table
        return time.perf_counter() - start, table, model.description()


if __name__ == "__main__":
    main()
