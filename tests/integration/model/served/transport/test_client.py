"""Servers that do not mean well: what they send is bounded, and nothing is sent to others."""

import asyncio
import bz2
import gzip
import json
import threading
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from scripted_server import Answer, ScriptedServer, scripted_server

from robust_eval.model.served.transport import client
from robust_eval.model.served.transport.service import Choice, Service, ServiceResponse, UnansweredError
from robust_eval.prompt.prompt import Prompt

PROMPT = Prompt("", (), "Capital of France?")
PARIS = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Paris"}}]}
ANSWERED = ServiceResponse([Choice("Paris", "stop", False, None)], 0, 0)
ZEROS = bytes(64 * 2**20)
TOO_LARGE = UnansweredError("garbled", "the server sent a response of more than 1 MB")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply may be of a megabyte."""
    monkeypatch.setattr(client, "MAX_RESPONSE", 2**20)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(lambda body: (200, {}, PARIS)) as server:
        yield server


def ask(url: str) -> ServiceResponse:
    async def asked() -> ServiceResponse:
        async with Service(url, "m", None, True, 2) as service:
            return await service.ask(PROMPT, True, {})

    return asyncio.run(asked())


def unanswered(url: str) -> UnansweredError:
    with pytest.raises(UnansweredError) as caught:
        ask(url)
    return caught.value


def replied(body: Any, status: int = 200, **headers: str) -> Answer:
    return lambda _: (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


# the size of a reply


def deflated(content: bytes) -> bytes:
    """Without the header that is part of it, as some servers send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


BOMBS: dict[str, tuple[bytes, dict[str, str]]] = {
    "gzip": (gzip.compress(ZEROS), {"content_encoding": "gzip"}),
    "deflate": (zlib.compress(ZEROS), {"content_encoding": "deflate"}),
    "deflate, bare": (deflated(ZEROS), {"content_encoding": "deflate"}),
    "gzip in gzip": (gzip.compress(gzip.compress(ZEROS)), {"content_encoding": "gzip, gzip"}),
    "a charset": (bz2.compress(ZEROS), {"content_type": "application/json; charset=bz2"}),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("status", [200, 307, 500])
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_takes_the_memory_of_a_reply_and_no_more(server: ScriptedServer, kind: str, status: int) -> None:
    content, headers = BOMBS[kind]
    server.answer = replied(content, status, location="/v1/chat/completions", **headers)
    tracemalloc.start()
    try:
        problem = unanswered(server.url)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if kind == "a charset":  # it is no text in UTF-8, and no more than what was sent
        assert problem.kind == ("lost" if status == 500 else "garbled")
    else:
        assert problem == TOO_LARGE
    assert peak < 8 * 2**20


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
def test_a_reply_of_the_largest_size_is_read_however_it_is_packed(server: ScriptedServer, encoding: str) -> None:
    content = json.dumps(PARIS).encode()
    content += b" " * (client.MAX_RESPONSE - len(content))
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[encoding]
    server.answer = replied(packed(content), content_encoding=encoding)
    assert ask(server.url) == ANSWERED
    server.answer = replied(packed(content + b" "), content_encoding=encoding)
    assert unanswered(server.url) == TOO_LARGE


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "nonsense"])
def test_what_is_packed_in_a_way_that_was_not_offered_cannot_be_read(server: ScriptedServer, encoding: str) -> None:
    server.answer = replied(gzip.compress(b"{}"), content_encoding=encoding)
    assert unanswered(server.url).kind == "garbled"


# replies without an end

Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def talking(talk: Talk) -> Iterator[tuple[str, threading.Event]]:
    """A server that says anything but an answer until the client has left, which sets the event."""
    left, started, ready = threading.Event(), threading.Event(), {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            while True:
                await talk(writer)
                await writer.drain()
        except ConnectionError:
            left.set()
        finally:
            writer.close()

    async def serve() -> None:
        listening = await asyncio.start_server(connected, "127.0.0.1", 0)
        ready["port"] = listening.sockets[0].getsockname()[1]
        ready["end"], ready["loop"] = asyncio.Event(), asyncio.get_running_loop()
        started.set()
        await ready["end"].wait()
        listening.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{ready['port']}/v1", left
    finally:
        ready["loop"].call_soon_threadsafe(ready["end"].set)
        thread.join()


def saying(first: bytes, again: bytes) -> Talk:
    said: set[asyncio.StreamWriter] = set()

    async def talk(writer: asyncio.StreamWriter) -> None:
        if writer not in said:
            said.add(writer)
            writer.write(first)
        writer.write(again)

    return talk


OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS: Mapping[str, tuple[Talk, str]] = {
    "chunks": (
        saying(OK + b"transfer-encoding: chunked\r\n\r\n", b"4000\r\n" + b" " * 0x4000 + b"\r\n"),
        "more than 1 MB",
    ),
    "no length": (saying(OK + b"\r\n", b" " * 0x4000), "more than 1 MB"),
    "packed nothing": (
        saying(OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"{}"), b" " * 0x4000),
        "more than 1 MB",
    ),
    "headers": (saying(OK, b"x-more: and more\r\n" * 100), ""),
    "one header": (saying(OK + b"x-more: ", b"more" * 1000), ""),
    "a status": (saying(b"HTTP/1.1 200 ", b"OK" * 1000), ""),
    "no HTTP": (saying(b"", b"\x00\xff" * 1000), ""),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_reply_without_an_end_is_lost_and_its_connection_closed(kind: str) -> None:
    talk, said = ENDLESS[kind]
    with talking(talk) as (url, left):
        problem = unanswered(url)
        assert problem.kind == ("garbled" if said else "lost")
        assert said in str(problem)
        assert left.wait(timeout=60)


# where prompts go


@pytest.fixture
def other() -> Iterator[ScriptedServer]:
    with scripted_server(replied(PARIS)) as other:
        yield other


@pytest.mark.parametrize(
    ("status", "place", "origin"),
    [
        *((status, "http://{there}/v1/chat/completions", "http://{there}") for status in (301, 302, 303, 307, 308)),
        (307, "//{there}/v1", "http://{there}"),
        (307, "http://localhost:{port}/v1", "http://localhost:{port}"),
        (307, "https://127.0.0.1:{port}/v1", "https://127.0.0.1:{port}"),
        (307, "ftp://{here}/", "ftp://{here}"),
    ],
)
def test_a_redirect_to_another_place_is_not_followed(
    server: ScriptedServer, other: ScriptedServer, status: int, place: str, origin: str
) -> None:
    here, there = (one.url.split("/")[2] for one in (server, other))
    places = {"here": here, "there": there, "port": here.split(":")[1]}
    server.received.clear()
    server.answer = replied({}, status, location=place.format(**places))
    origin = origin.format(**places)
    assert unanswered(server.url) == UnansweredError(
        "fatal", f"the server redirects to {origin}: set model.base_url to that address if you trust it"
    )
    assert (len(server.received), other.received) == (1, [])


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("location", ["/v1/there", "there", "{url}/there"])
def test_a_redirect_to_the_same_place_is_followed(server: ScriptedServer, location: str, status: int) -> None:
    server.received.clear()

    def answer(_: Any) -> tuple[int, Mapping[str, str], Any]:
        moved = server.received[-1].path.endswith("there")
        return (200, {}, PARIS) if moved else (status, {"location": location.format(url=server.url)}, {})

    server.answer = answer
    assert ask(server.url) == ANSWERED
    assert len({json.dumps(body) for body in server.bodies}) == 1


@pytest.mark.parametrize("location", ["/v1/chat/completions", "?again"])
def test_a_server_that_sends_round_in_circles_cannot_be_read(server: ScriptedServer, location: str) -> None:
    server.answer = replied({}, 307, location=location)
    assert unanswered(server.url) == UnansweredError("garbled", "the server sent more than 5 redirects")


NOWHERE = ["", " ", "http://", "http://[::1", "http://a:b/", "http://a:99999/", "javascript:1", "\xff", "mailto:a@b"]


@pytest.mark.parametrize("location", [*NOWHERE, "http://\xff/"])
def test_a_redirect_to_nowhere_is_no_answer(server: ScriptedServer, location: str) -> None:
    server.answer = replied({}, 307, location=location)
    unanswered(server.url)
