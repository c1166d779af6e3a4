"""Throughput of answers from a server, as a share of its maximum, and the memory of the process.

    python benchmarks/throughput.py [--requests 20000] [--seconds 0.2] [--limit 200] [--max-concurrency 256] [--quick]
                                    [--json FILE]

The server (benchmarks/support/stub_server.py, in a process of its own on this machine) has no model: it answers each
request after so many seconds and refuses what is beyond its limit with 429, so that it could give limit / seconds
answers a second. The program is not told the limit. Each question is a request of one answer of three words; half of
the answers come with log-probabilities. Everything is as in a run: found in the store or not, asked, kept in the store.

For comparison a bare client (the same library for HTTP, the same requests, ``limit`` at once, replies not read) says
what this machine could do at best. Memory is that of this process when a tenth of the answers is there and at the end;
the table of answers, which a run holds, is part of it and shown beside.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import httpx2
import openai
import psutil
from support.command import Command, write_figures
from support.stub_server import stub_server

from robust_eval.engine.local import Local
from robust_eval.model.base import LanguageModel, Reply, Request
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.served.openai import OpenAI
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.sqlite import SqliteStore
from robust_eval.store.stored_model import StoredModel


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--requests", type=int, default=20_000)
    command.add_argument("--seconds", type=float, default=0.2, help="that the server takes to answer")
    command.add_argument("--limit", type=int, default=200, help="requests that the server answers at once")
    command.add_argument(
        "--max-concurrency", type=int, default=256, help="requests that the program sends at once at most"
    )
    options = command.options(requests=100, seconds=0.01, limit=20, max_concurrency=16)
    columns = measured(options)
    print(f"{'':44} {'bare client':>12} {'here':>12}")
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        cells = [f"{column[name]:12.2f}" if name in column else " " * 12 for column in columns.values()]
        print(f"{name:44} {' '.join(cells)}")
    flat = {f"{column}: {name}": value for column, found in columns.items() for name, value in found.items()}
    write_figures(options.json, flat)


def measured(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The figures of the bare client, and of the program."""
    possible = options.limit / options.seconds
    with stub_server(options.seconds, options.limit) as url:
        asked = questions(options.requests)
        bare = options.requests / asyncio.run(bare_client(url, asked, options.limit))
        client = {"answers a second": bare, "share of what the server could give": bare / possible}
        return {"bare client": client, "here": figures_of(program(url, asked, options.max_concurrency), possible, bare)}


class Ran(NamedTuple):
    """Seconds, processor seconds, memory as answers come, the size of their table, and the description of the model."""

    answers: int
    seconds: float
    processor: float
    memory: list[int]
    table: int
    stats: dict[str, Any]


def figures_of(ran: Ran, possible: float, bare: float) -> dict[str, float]:
    rate = ran.answers / ran.seconds
    return {
        "answers a second": rate,
        "share of what the server could give": rate / possible,
        "share of the bare client": rate / bare,
        "processor milliseconds for an answer": 1000 * ran.processor / ran.answers,
        "most in flight": ran.stats["pace.most_in_flight"],
        "refused": ran.stats["pace.refusals"],
        "memory after a tenth (MB)": ran.memory[len(ran.memory) // 10] / 1e6,
        "memory at the end (MB)": ran.memory[-1] / 1e6,
        "of these the table of answers (MB)": ran.table / 1e6,
    }


def questions(number: int) -> list[Request]:
    """Requests of one answer each, with a prompt of their own."""
    return [
        Request(
            f"question {k}", 0, Prompt("Be brief.", (), f"Name the capital of country {k}."), (1.0,), 1, 8, 0, k % 2
        )
        for k in range(number)
    ]


def program(url: str, asked: Sequence[Request], max_concurrency: int) -> Ran:
    """The cost of all answers but the first, with which connections begin."""
    settings = OpenAI(name="stub", model="stub", base_url=url, api_key_env=None, max_concurrency=max_concurrency)
    watching = Watching()
    with tempfile.TemporaryDirectory() as folder, SqliteStore(folder).open() as entries, watching.open():
        model = StoredModel(settings, watching, entries, Stopwatch())
        model.check(asked)
        model.answers(asked[:1], "begin")
        watching.memory.clear()
        before, start = time.process_time(), time.perf_counter()
        table = model.answers(asked[1:], "answers").table
        seconds, processor = time.perf_counter() - start, time.process_time() - before
        if table["outcome"].to_pylist() != ["ok"] * (len(asked) - 1):
            raise RuntimeError("not every request was answered")
        return Ran(len(asked) - 1, seconds, processor, watching.memory, table.nbytes, model.description())


class Watching(Local):
    """Notes how much memory is in use as replies come."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: list[int] = []

    def load(self, config: ModelConfig) -> LanguageModel:
        model, process = config.load(), psutil.Process()
        complete = model.complete

        def watched(requests: Sequence[Request], missing: Any) -> Iterator[list[Reply]]:
            for block in complete(requests, missing):
                self.memory += [process.memory_info().rss] * len(block)
                yield block

        model.complete = watched  # type: ignore[method-assign, assignment]
        return model


async def bare_client(url: str, asked: Sequence[Request], limit: int) -> float:
    """Seconds in which the same requests are answered by a client that only sends and waits."""
    waiting = iter(asked)
    bounds = httpx2.Limits(max_connections=limit, max_keepalive_connections=limit)
    async with openai.DefaultAioHttpClient(limits=bounds, timeout=None) as client:

        async def work() -> None:
            for request in waiting:
                body = {"model": "stub", "messages": request.prompt.messages(), "seed": 0, "max_tokens": 8}
                if request.top_logprobs:
                    body |= {"logprobs": True, "top_logprobs": 1}
                reply = await client.post(f"{url}/chat/completions", json=body)
                reply.raise_for_status()

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(limit)))
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
