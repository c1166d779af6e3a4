"""A reverse proxy that injects faults by a seeded plan between a client and an OpenAI-compatible server.

    with FaultProxy("http://127.0.0.1:8000/v1", faults=["rate_limit_seconds", "reset"], rate=0.2, seed=1) as proxy:
        client = openai.AsyncOpenAI(base_url=proxy.base_url)

``FAULTS`` says what there is. Requests without a body, as for the list of models, are passed on and not counted.
"""

import asyncio
import hashlib
import json
import math
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

NOT_PASSED_ON = {"connection", "keep-alive", "host", "content-length", "transfer-encoding", "accept-encoding"}
TRICKLES = 50
"""Pieces of a body that trickles, at most."""

Body = dict[str, Any]


class Message(NamedTuple):
    """A request or an answer; ``start`` is the first line, and names of headers are in lower case."""

    start: str
    headers: dict[str, str]
    body: bytes

    def head(self, version: str = "1.1") -> bytes:
        """The first line and the headers, with the length of the body; ``version`` is that of a request."""
        start = self.start if self.start.startswith("HTTP/") else self.start.rpartition("/")[0] + f"/{version}"
        kept = {name: value for name, value in self.headers.items() if name not in NOT_PASSED_ON}
        lines = [start, *(f"{name}: {value}" for name, value in kept.items()), f"content-length: {len(self.body)}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Logged(NamedTuple):
    """A request: its number in order of arrival, the SHA-256 of its body, and the fault that it met."""

    number: int
    body: str
    fault: str | None


@dataclass
class Exchange:
    """A request that is being answered; ``fault`` becomes None where it turns out to change nothing."""

    number: int
    digest: str
    fault: str | None


async def _read(reader: asyncio.StreamReader) -> Message | None:
    """The next message on a connection; None if it ends. An answer without a length goes on to the end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head[:-4].split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "content-length" in headers:
            return Message(start, headers, await reader.readexactly(int(headers["content-length"])))
        return Message(start, headers, await reader.read() if start.startswith("HTTP/") else b"")
    except asyncio.IncompleteReadError:
        return None


def _answer(status: int, body: Body, **headers: str) -> Message:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    start = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return Message(start, {"content-type": "application/json", **names}, json.dumps(body).encode())


def _error(status: int, code: str, message: str, **headers: str) -> Message:
    return _answer(status, {"error": {"message": message, "type": code, "param": None, "code": code}}, **headers)


def _rate_limit(**headers: str) -> Message:
    return _error(429, "rate_limit_exceeded", "Rate limit reached for requests. Please try again later.", **headers)


def _prompt_filtered() -> Message:
    categories = ("hate", "self_harm", "sexual", "violence")
    result = {name: {"filtered": False, "severity": "safe"} for name in categories}
    result["violence"] = {"filtered": True, "severity": "medium"}
    error = {
        "message": "The response was filtered due to the prompt triggering the content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": result},
    }
    return _answer(400, {"error": error})


INSTEAD: Mapping[str, Callable[[float], Message]] = {
    "rate_limit": lambda seconds: _rate_limit(),
    "rate_limit_seconds": lambda seconds: _rate_limit(retry_after=f"{seconds:g}"),
    "rate_limit_date": lambda seconds: _rate_limit(
        retry_after=formatdate(math.ceil(time.time() + seconds), usegmt=True)
    ),
    "insufficient_quota": lambda seconds: _error(429, "insufficient_quota", "You exceeded your current quota."),
    "server_error": lambda seconds: _error(500, "server_error", "The server had an error. Sorry about that!"),
    "unavailable": lambda seconds: _error(503, "service_unavailable", "The engine is currently overloaded."),
    "prompt_filtered": lambda seconds: _prompt_filtered(),
}
"""Answers of the proxy itself, by name, to a client that shall wait for so many seconds."""


def _changed(change: Callable[[Body], None]) -> Callable[[bytes], bytes]:
    def changed(body: bytes) -> bytes:
        parsed = json.loads(body)
        before = json.dumps(parsed)
        change(parsed)
        return body if json.dumps(parsed) == before else json.dumps(parsed).encode()

    return changed


def _keep_first(body: Body) -> None:
    del body["choices"][1:]


def _keep_none(body: Body) -> None:
    body["choices"].clear()


def _filter_first(body: Body) -> None:
    choice = body["choices"][0]
    choice["finish_reason"] = "content_filter"
    choice.pop("logprobs", None)
    if "message" in choice:
        choice["message"]["content"] = ""
    else:
        choice["text"] = ""


def _break_off_first(body: Body) -> None:
    choice = body["choices"][0]
    choice |= {"finish_reason": "error", "error": {"code": 502, "message": "upstream lost"}}
    choice.pop("logprobs", None)
    holder, name = (choice["message"], "content") if "message" in choice else (choice, "text")
    holder[name] = holder[name][: len(holder[name]) // 2]


CHANGED: Mapping[str, Callable[[bytes], bytes]] = {
    "malformed_json": lambda body: body[: len(body) // 2],
    "fewer_choices": _changed(_keep_first),
    "no_choices": _changed(_keep_none),
    "reply_filtered": _changed(_filter_first),
    "broken_off": _changed(_break_off_first),
}
"""What becomes of the body of a good answer, by name."""


async def _send(answer: Message, writer: asyncio.StreamWriter, seconds: float) -> None:
    writer.write(answer.head() + answer.body)
    await writer.drain()


async def _reset(answer: Message, writer: asyncio.StreamWriter, seconds: float) -> None:
    writer.write(answer.head() + answer.body[: len(answer.body) // 2])
    await writer.drain()
    linger = struct.pack("ii", 1, 0)  # closing sends RST
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def _truncate(answer: Message, writer: asyncio.StreamWriter, seconds: float) -> None:
    writer.write(answer.head() + answer.body[: len(answer.body) // 2])
    await writer.drain()
    writer.close()


async def _trickle(answer: Message, writer: asyncio.StreamWriter, seconds: float) -> None:
    writer.write(answer.head())
    size = math.ceil(len(answer.body) / TRICKLES)
    starts = range(0, len(answer.body), size)
    for start in starts:
        await asyncio.sleep(seconds / len(starts))
        writer.write(answer.body[start : start + size])
        await writer.drain()


SENT: Mapping[str, Callable[[Message, asyncio.StreamWriter, float], Awaitable[None]]] = {
    "reset": _reset,
    "truncated": _truncate,
    "trickle": _trickle,
}
"""How a good answer is sent, by name; a body that trickles takes so many seconds."""

FAULTS = ("hang", *INSTEAD, *CHANGED, *SENT)
"""Each fault.

- hang: no answer until the client leaves
- rate_limit, rate_limit_seconds, rate_limit_date: 429 without ``Retry-After``, and with either form of it
- insufficient_quota: 429 that no waiting helps against
- server_error, unavailable: 500, 503
- prompt_filtered: 400 with the code ``content_filter``, as Azure sends it
- malformed_json: the first half of the body as if it were the whole
- fewer_choices, no_choices: the first choice only; none
- reply_filtered: the first choice has the finish_reason ``content_filter`` and no text
- broken_off: the first choice has half of its text, the finish_reason ``error``, and the error of a gateway
- reset: RST in the middle of the body
- truncated: half of the body, and the connection ends in order
- trickle: the whole body, a few bytes at a time
"""


class FaultProxy:
    """In front of the base URL ``upstream``, on an event loop in a thread of its own.

    A request meets one of the ``faults`` with probability ``rate``. The seed, its body, and how often that body was
    seen decide, so the order of arrival does not matter. The same body meets at most ``times`` faults in a row (None:
    no limit). What would change nothing (one choice of one; an error of the server's own) is no fault in the log.
    ``retry_after`` and ``slow`` are in seconds.
    """

    def __init__(
        self,
        upstream: str,
        faults: Sequence[str] = FAULTS,
        rate: float = 0.2,
        seed: int = 0,
        times: int | None = None,
        retry_after: float = 1,
        slow: float = 0.5,
    ) -> None:
        self._upstream = urlsplit(upstream)
        self._faults = list(faults)
        self._rate = rate
        self._seed = seed
        self._times = times
        self._retry_after = retry_after
        self._slow = slow
        self.clear()

    def clear(self) -> None:
        """Forget all requests; to be called while there is none."""
        self._exchanges: list[Exchange] = []
        self._seen: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()
        self._in_flight = 0
        self.most_in_flight = 0

    @property
    def log(self) -> list[Logged]:
        """All requests in order of arrival."""
        return [Logged(exchange.number, exchange.digest, exchange.fault) for exchange in self._exchanges]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._upstream.path}"

    def wait_until_left(self) -> None:
        """Wait until all who were connected have closed their connections and all that they sent has been read."""
        with socket.create_connection(("127.0.0.1", self._port)) as last:  # accepted after all others
            last.sendall(b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n")
            while last.recv(65536):
                pass
        while self._connections:
            time.sleep(0.01)

    def __enter__(self) -> Self:
        started: Future[int] = Future()
        self._thread = Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        self._port = started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self, started: "Future[int]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (request := await _read(reader)):
                if request.body:
                    await self._counted(request, reader, writer)
                else:
                    await _send(await self._ask(request), writer, 0)
                if request.headers.get("connection", "").lower() == "close":
                    break
        except ConnectionError:
            pass  # the client left
        finally:
            writer.close()

    async def _counted(self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            await self._exchange(request, reader, writer)
        finally:
            self._in_flight -= 1

    async def _exchange(self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = self._draw(request.body)
        if exchange.fault == "hang":
            await reader.read()
            writer.close()
            return
        answer = await self._answer(request, exchange)
        await SENT.get(exchange.fault or "", _send)(answer, writer, self._slow)

    async def _answer(self, request: Message, exchange: Exchange) -> Message:
        fault = exchange.fault or ""
        if fault in INSTEAD:
            return INSTEAD[fault](self._retry_after)
        answer = await self._ask(request)
        good = " 200 " in answer.start
        changed = answer._replace(body=CHANGED[fault](answer.body)) if good and fault in CHANGED else answer
        if not good or (fault in CHANGED and changed == answer):
            exchange.fault = None
        return changed

    def _draw(self, body: bytes) -> Exchange:
        digest = hashlib.sha256(body).hexdigest()
        chance = random.Random(f"{self._seed} {digest} {self._seen[digest]}")
        faulty = chance.random() < self._rate and (self._times is None or self._in_a_row[digest] < self._times)
        self._seen[digest] += 1
        self._in_a_row[digest] = self._in_a_row[digest] + 1 if faulty else 0
        exchange = Exchange(len(self._exchanges), digest, chance.choice(self._faults) if faulty else None)
        self._exchanges.append(exchange)
        return exchange

    async def _ask(self, request: Message) -> Message:
        """The server's answer, over a connection of its own; in HTTP/1.0 no server sends it in chunks."""
        try:
            reader, writer = await asyncio.open_connection(
                self._upstream.hostname, self._upstream.port, ssl=self._upstream.scheme == "https" or None
            )
            try:
                host = f"\r\nhost: {self._upstream.netloc}\r\n".encode()
                writer.write(request.head("1.0").replace(b"\r\n", host, 1) + request.body)
                answer = await _read(reader)
            finally:
                writer.close()
        except OSError as problem:
            return _error(502, "bad_gateway", str(problem))
        return answer or _error(502, "bad_gateway", "The server ended the connection.")
