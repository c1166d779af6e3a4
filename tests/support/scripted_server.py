"""A server whose replies are a function of the requests: what no server at hand says can be said by it.

with scripted_server(lambda body: (200, {}, {"choices": []})) as server:
    Service(server.url, …)
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Thread
from typing import Any, NamedTuple

from robust_eval.model.served.probe import WORDS

Body = dict[str, Any]
Scripted = tuple[int, Mapping[str, str], Any]
"""The status, the headers and the body of a reply: bytes as they are, anything else as JSON."""
Answer = Callable[[Body], Scripted]


def chat_reply(text: str, reasoning: str | None = None, thought: int = 0) -> Scripted:
    """A chat completion that says a text of two tokens, after so many tokens of reasoning."""
    message = {"role": "assistant", "content": text} | ({} if reasoning is None else {"reasoning_content": reasoning})
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage: Body = {"prompt_tokens": 9, "completion_tokens": thought + 2, "total_tokens": thought + 11}
    usage |= {"completion_tokens_details": {"reasoning_tokens": thought}}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return 200, {}, whole


def certain_choice(index: int, text: str) -> Body:
    """A choice whose text is one token, with log-probabilities of twenty."""
    top = [{"token": f"t{rank}", "logprob": -0.7 - rank, "bytes": None} for rank in range(20)]
    token = {"token": text, "logprob": -0.7, "bytes": list(text.encode()), "top_logprobs": top}
    message = {"role": "assistant", "content": text}
    return {"index": index, "finish_reason": "stop", "message": message, "logprobs": {"content": [token]}}


def certain_reply(text: str) -> Scripted:
    """A chat completion with one certain choice."""
    return 200, {}, {"choices": [certain_choice(0, text)], "usage": {"prompt_tokens": 20, "completion_tokens": 1}}


class Received(NamedTuple):
    """A request; names of headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: Body


@dataclass
class ScriptedServer:
    """``answer`` may be replaced at any time; ``received`` are the requests in order of arrival."""

    answer: Answer
    url: str = ""
    received: list[Received] = field(default_factory=list)

    @property
    def bodies(self) -> list[Body]:
        return [request.body for request in self.received]


SYLLABLES = ("ba", "de", "fi", "go", "lu", "me", "no", "pi", "ra", "su", "ti", "vo")


def words(seed: int | str) -> str:
    """Sixteen words that no other seed gives."""
    random = Random(seed)
    return " ".join("".join(random.choices(SYLLABLES, k=3)) for _ in range(16))


def asks_for_words(body: Body) -> bool:
    """Whether a request is one by which a server is asked how it draws."""
    said = body["messages"][-1]["content"] if body.get("messages") else body.get("prompt", "")
    return WORDS.question in str(said)


def drawn_honestly(body: Body, reply: Any) -> Any:
    """A reply to a request for words whose choices say words: the same at temperature 0, and else by their seeds."""
    reply = deepcopy(reply)
    for place, choice in enumerate(reply["choices"]):
        seed = body.get("seed")
        drawn = secrets.token_hex(8) if seed is None else f"{seed + place} {body.get('temperature')}"
        text = words("greedy" if body.get("temperature") == 0 else drawn)
        if "message" not in choice:
            choice["text"] = text
        elif choice["message"].get("content"):
            choice["message"]["content"] = text
    return reply


@contextmanager
def scripted_server(answer: Answer, honest: bool = True) -> Iterator[ScriptedServer]:
    """A server in a thread, each request over a connection of its own; every reply is over when the context is left.

    ``honest``: where it is asked for random words, it draws them, and what it answers says only how.
    """
    script = ScriptedServer(answer)
    # what a server can do is kept by its address for a day, and another test's may have had the same port
    own = f"/{secrets.token_hex(4)}"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.received.append(Received(self.path.removeprefix(own), headers, body))
            status, more, reply = script.answer(body)
            if honest and asks_for_words(body) and isinstance(reply, dict) and reply.get("choices"):
                reply = drawn_honestly(body, reply)
            content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            for name, value in ({"content-type": "application/json"} | dict(more)).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # so that they are joined
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}{own}/v1"
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
