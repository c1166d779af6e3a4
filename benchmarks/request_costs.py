"""Where the processor time of a request to a server goes: the libraries, the official client, this program.

    python benchmarks/request_costs.py [--requests 2000] [--rounds 3] [--quick] [--json FILE]

Each row sends the same requests to a server without a model (benchmarks/support/stub_server.py) that answers at once,
50 at a time, with one layer more: what it takes more than the layer below is what it costs alone. A run does not use
the official client for questions, so that it is the layer of no other. Figures are processor milliseconds of this
process for each request, the least of the rounds; the server is another process.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import httpx2
import openai
from support.command import Command, write_figures
from support.stub_server import stub_server
from throughput import questions

from robust_eval.engine.local import Local
from robust_eval.model.base import Request
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.transport.client import BoundedClient
from robust_eval.model.served.transport.service import Service
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import NoStore, Store
from robust_eval.store.sqlite import SqliteStore
from robust_eval.store.stored_model import StoredModel

AT_ONCE = 50
BELOW = {
    "httpx2 over aiohttp": "aiohttp",
    "replies of a bounded size": "httpx2 over aiohttp",
    "the official client": "replies of a bounded size",
    "a request and its reply read": "replies of a bounded size",
    "pacing, repetitions, tables": "a request and its reply read",
    "the store": "pacing, repetitions, tables",
}
"""The layer that each is more than."""
Send = Callable[[Request], Awaitable[Any]]


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--requests", type=int, default=2000)
    command.add_argument("--rounds", type=int, default=3)
    options = command.options(requests=60, rounds=1)
    figures = measured(options)
    for name, value in figures.items():
        print(f"{name:52} {value:8.3f}")
    write_figures(options.json, figures)


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Processor milliseconds a request, by layer."""
    asked = questions(options.requests)
    found: dict[str, float] = {}
    with stub_server(seconds=0.0, limit=1000) as url:
        for _ in range(options.rounds):
            for name, seconds in once(url, asked).items():
                found[name] = min(found.get(name, seconds), seconds)
    whole = {name: 1000 * seconds / options.requests for name, seconds in found.items()}
    alone = {f"{name}, alone": value - whole.get(BELOW.get(name, ""), 0.0) for name, value in whole.items()}
    return whole | alone


def once(url: str, asked: Sequence[Request]) -> dict[str, float]:
    """Processor seconds of each layer."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "aiohttp": asyncio.run(by_aiohttp(url, asked)),
            "httpx2 over aiohttp": asyncio.run(by_httpx(url, asked)),
            "replies of a bounded size": asyncio.run(by_bounded_client(url, asked)),
            "the official client": asyncio.run(by_official_client(url, asked)),
            "a request and its reply read": asyncio.run(by_service(url, asked)),
            "pacing, repetitions, tables": by_program(url, asked, NoStore()),
            "the store": by_program(url, asked, SqliteStore(folder)),
        }


def body(request: Request) -> dict[str, Any]:
    return {"model": "stub", "messages": request.prompt.messages(), **settings(request)}


def settings(request: Request) -> dict[str, Any]:
    more = {"logprobs": True, "top_logprobs": 1} if request.top_logprobs else {}
    return {"temperature": 1.0, "seed": 0, "max_tokens": 8, **more}


async def timed(asked: Sequence[Request], send: Send) -> float:
    waiting = iter(asked)

    async def work() -> None:
        for request in waiting:
            await send(request)

    start = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.process_time() - start


async def by_aiohttp(url: str, asked: Sequence[Request]) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

        async def send(request: Request) -> None:
            async with session.post(f"{url}/chat/completions", json=body(request)) as reply:
                await reply.read()

        return await timed(asked, send)


async def by_httpx(url: str, asked: Sequence[Request]) -> float:
    bounds = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with openai.DefaultAioHttpClient(limits=bounds, timeout=None) as client:
        return await timed(asked, lambda request: client.post(f"{url}/chat/completions", json=body(request)))


async def by_bounded_client(url: str, asked: Sequence[Request]) -> float:
    bounds = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with BoundedClient(limits=bounds, timeout=None) as client:
        return await timed(asked, lambda request: client.post(f"{url}/chat/completions", json=body(request)))


async def by_official_client(url: str, asked: Sequence[Request]) -> float:
    bounds = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    http = BoundedClient(limits=bounds, timeout=None)
    async with openai.AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, timeout=None, http_client=http
    ) as client:

        async def send(request: Request) -> None:
            reply = await client.post("/chat/completions", body=body(request), cast_to=httpx2.Response)
            json.loads(reply.text)

        return await timed(asked, send)


async def by_service(url: str, asked: Sequence[Request]) -> float:
    async with Service(url, "stub", None, True, AT_ONCE) as service:
        return await timed(asked, lambda request: service.ask(request.prompt, True, settings(request)))


def by_program(url: str, asked: Sequence[Request], store: Store) -> float:
    model = OpenAI(name="stub", model="stub", base_url=url, api_key_env=None, max_concurrency=AT_ONCE)
    with store.open() as entries:
        stored = StoredModel(model, Local(), entries, Stopwatch())
        stored.check(asked)
        start = time.process_time()
        stored.answers(asked, "answers")
        return time.process_time() - start


if __name__ == "__main__":
    main()
