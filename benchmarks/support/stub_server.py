"""An OpenAI-compatible server without a model: what a client costs, and whether it keeps to a limit.

    python benchmarks/support/stub_server.py [--seconds 0.2] [--limit 200] [--retry-after 1]

prints the base URL on one line and serves until stdin closes. Each request is answered after the given time with texts
that depend on its prompt, its temperature, its seed and the number of the choice alone, and at temperature 0 on its
prompt, as a llama.cpp server's would; what is beyond ``limit`` in flight gets 429 at once. ``GET /stats`` (beside
``/v1``) counts requests, the most that were in flight at once, and 429s, since the start or since the last
``DELETE /stats``.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

Body = dict[str, Any]

CAPITALS = ("Paris", "Rome", "Vienna", "Madrid", "Lisbon", "Athens", "Dublin", "Oslo")
MODELS = {"object": "list", "data": [{"id": "stub", "object": "model", "created": 0, "owned_by": "robust_eval"}]}


@contextmanager
def stub_server(seconds: float = 0.2, limit: int = 200, retry_after: float | None = None) -> Iterator[str]:
    """The base URL of a server in a process of its own, which ends with the context or with this process."""
    command = [sys.executable, __file__, "--seconds", str(seconds), "--limit", str(limit)]
    if retry_after is not None:
        command += ["--retry-after", str(retry_after)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _tokens(text: str, top: int) -> list[Body]:
    """The log-probabilities of each word, as a token, and of ``top`` alternatives."""
    content = []
    for place, word in enumerate(text.split(" ")):
        token = word if place == 0 else f" {word}"
        likely = [(token, -0.1), *((f" other{k}", -3.0 - k) for k in range(1, top))][:top]
        described = [{"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in likely]
        content.append({"token": token, "logprob": -0.1, "bytes": list(token.encode()), "top_logprobs": described})
    return content


def answer(request: Body, chat: bool) -> Body:
    """The whole reply to a request; the same one to the same request."""
    prompt = json.dumps(request["messages"]) if chat else str(request["prompt"])
    seed, n, words = request.get("seed") or 0, request.get("n") or 1, 0
    wanted, top = request.get("logprobs"), request.get("top_logprobs") or 0
    choices = []
    for index in range(n):
        drawn = (
            f"{prompt} {request.get('temperature', 1.0)} {seed + index}" if request.get("temperature") != 0 else prompt
        )
        text = f"{_capital(drawn)} is the answer"
        if "random words" in prompt:
            text = " ".join(_capital(f"{drawn} {place}") for place in range(16))
        choice = {"index": index, "finish_reason": "stop", "logprobs": None}
        if chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
            if wanted:
                choice["logprobs"] = {"content": _tokens(text, top), "refusal": None}
        else:
            choice["text"] = text
            if wanted:
                choice["logprobs"] = _plain(_tokens(text, int(wanted)))
        choices.append(choice)
        words += len(text.split(" "))
    count = len(prompt.split())
    return {
        "id": f"stub-{zlib.crc32(prompt.encode()):08x}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": request.get("model", "stub"),
        "choices": choices,
        "usage": {"prompt_tokens": count, "completion_tokens": words, "total_tokens": count + words},
    }


def _capital(drawn: str) -> str:
    return CAPITALS[zlib.crc32(drawn.encode()) % len(CAPITALS)]


def _plain(content: list[Body]) -> Body:
    """The format of plain completions."""
    offsets, end = [], 0
    for entry in content:
        offsets.append(end)
        end += len(entry["token"])
    return {
        "tokens": [entry["token"] for entry in content],
        "token_logprobs": [entry["logprob"] for entry in content],
        "top_logprobs": [{one["token"]: one["logprob"] for one in entry["top_logprobs"]} for entry in content],
        "text_offset": offsets,
    }


class Stub:
    """What all connections share."""

    def __init__(self, seconds: float, limit: int, retry_after: float | None) -> None:
        self.seconds = seconds
        self.limit = limit
        self.retry_after = retry_after
        self.in_flight = 0
        self.forget()

    def forget(self) -> None:
        self.requests = self.refused = 0
        self.most_in_flight = self.in_flight

    def stats(self) -> Body:
        return {"requests": self.requests, "most_in_flight": self.most_in_flight, "refused": self.refused}


class Connection(asyncio.Protocol):
    """One request after another; by hand, since the server must not be what is measured."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._received = b""
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._next()

    def _next(self) -> None:
        if self._busy:
            return
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._received[:end].lower()
        _, found, length = head.partition(b"\r\ncontent-length:")
        stop = end + 4 + (int(length.partition(b"\r\n")[0]) if found else 0)
        if len(self._received) < stop:
            return
        method, path, _ = self._received[:end].split(b" ", 2)
        body, self._received = self._received[end + 4 : stop], self._received[stop:]
        self._answer(method, path.removeprefix(b"/v1"), body)

    def _answer(self, method: bytes, path: bytes, body: bytes) -> None:
        if method == b"POST" and path in (b"/chat/completions", b"/completions"):
            self._complete(body, chat=path == b"/chat/completions")
        elif path == b"/models":
            self._send(200, MODELS)
        elif path == b"/stats":
            stats = self._stub.stats()
            if method == b"DELETE":
                self._stub.forget()
            self._send(200, stats)
        else:
            self._refuse(404, "not_found", "no such path")

    def _complete(self, body: bytes, chat: bool) -> None:
        stub = self._stub
        stub.requests += 1
        if stub.in_flight >= stub.limit:
            stub.refused += 1
            wait = "" if stub.retry_after is None else f"retry-after: {stub.retry_after:g}\r\n"
            self._refuse(429, "rate_limit_exceeded", f"more than {stub.limit} requests at once", wait)
            return
        stub.in_flight += 1
        stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
        if stub.seconds:
            self._busy = True
            asyncio.get_running_loop().call_later(stub.seconds, self._finish, body, chat)
        else:
            self._finish(body, chat)

    def _finish(self, body: bytes, chat: bool) -> None:
        self._busy = False
        self._stub.in_flight -= 1
        try:
            reply = answer(json.loads(body), chat)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            self._refuse(400, "invalid_request_error", repr(problem))
        else:
            self._send(200, reply)

    def _refuse(self, status: int, code: str, message: str, headers: str = "") -> None:
        self._send(status, {"error": {"message": message, "type": code, "param": None, "code": code}}, headers)

    def _send(self, status: int, body: Body, headers: str = "") -> None:
        content = json.dumps(body, separators=(",", ":")).encode()
        start = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n{headers}"
        self._transport.write(f"{start}content-length: {len(content)}\r\n\r\n".encode() + content)
        if self._received:
            self._next()


async def serve(stub: Stub) -> None:
    """Print the base URL and serve until stdin closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(stub), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2, help="from a request to its answer")
    parser.add_argument("--limit", type=int, default=200, help="requests in flight")
    parser.add_argument("--retry-after", type=float, help="seconds, with 429; without it there is no such header")
    arguments = parser.parse_args()
    asyncio.run(serve(Stub(arguments.seconds, arguments.limit, arguments.retry_after)))


if __name__ == "__main__":
    main()
