"""Server of a local page on which a person labels replies, by keys or by buttons.

The page has a secret address, answers only to local host names, and runs no script but its own: a reply is shown as
text, whatever its content.
"""

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from robust_eval.labels.label_records import LABEL_VALUES
from robust_eval.labels.labelling import LabelItem, Labelling
from robust_eval.question import LETTERS, Question
from robust_eval.report.page import template
from robust_eval.runtime.text import printable, printable_lines

ENOUGH = "All replies are labelled, and everything is saved: you may close this page."
STOPPED = "Everything is saved, and labelling has stopped: you may close this page."
CHANGED = "Another window has labelled that reply in the meantime. Its label stays; change it with Back in that window."
MAX_BODY = 2**16
"""Maximum bytes of a request."""


@contextmanager
def label_server(labelling: Labelling, name: str) -> Iterator[tuple[str, threading.Event]]:
    """Serve the labelling page within the context; yield its address, and an event that is set when all replies are
    labelled or the person stops.
    """
    ended = threading.Event()
    secret = secrets.token_urlsafe(16)

    class Handler(_RequestHandler):
        pages = _LabelPages(labelling, name, secret, ended)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/{secret}/", ended
        finally:
            server.shutdown()
            thread.join()


def references(question: Question) -> list[str]:
    """Return the references for a person who labels: accepted answers, or all choices with the right one marked."""
    if question.choices:
        return [
            printable(f"{LETTERS[place]}) {choice}{' (right)' if place == question.correct else ''}")
            for place, choice in enumerate(question.choices)
        ]
    return [printable(answer) for answer in question.answers] or ["the data set has none"]


class _LabelPages:
    """Responses to the requests of the labelling page."""

    def __init__(self, labelling: Labelling, name: str, secret: str, ended: threading.Event) -> None:
        self.labelling, self.name, self.secret, self.ended = labelling, name, secret, ended
        self.actions: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "next": lambda body: self._state(self.labelling.next(body["tab"])),
            "back": lambda body: self._state(self.labelling.back(body["tab"]) or self.labelling.next(body["tab"])),
            "label": self._label,
            "stop": self._stop,
        }

    def page(self, nonce: str) -> str:
        """Return the labelling page, whose script has this nonce."""
        return template("label.html.jinja").render(name=self.name, nonce=nonce)

    def _label(self, body: Mapping[str, Any]) -> dict[str, Any]:
        number, label, previous = body["number"], body["label"], body["seen"]
        if type(number) is not int or label not in LABEL_VALUES or previous not in (None, *LABEL_VALUES):
            raise ValueError("no label")
        saved = self.labelling.label(number, label, previous)
        return self._state(self.labelling.next(body["tab"]), "" if saved else CHANGED)

    def _stop(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.ended.set()
        return self._state(None, STOPPED)

    def _state(self, item: LabelItem | None, notice: str = "") -> dict[str, Any]:
        if item is None and not notice:
            notice = ENOUGH
        if self.labelling.done == len(self.labelling):
            self.ended.set()
        item_data = item and {
            "number": item.number,
            "question": printable_lines(item.question.title),
            "references": references(item.question),
            "reply": printable_lines(item.text) or "(an empty reply)",
            "label": item.label,
        }
        state = {
            "done": self.labelling.done,
            "all": len(self.labelling),
            "labeller": printable(self.labelling.labeller),
        }
        return {**state, "item": item_data, "notice": notice}


class _RequestHandler(BaseHTTPRequestHandler):
    pages: _LabelPages
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send the labelling page to whoever knows its address."""
        if not self._names_this_machine() or self.path != f"/{self.pages.secret}/":
            self._answer(HTTPStatus.NOT_FOUND, b"", "text/plain")
            return
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        page = self.pages.page(nonce).encode("utf-8")
        self._answer(HTTPStatus.OK, page, "text/html; charset=utf-8", policy)

    def do_POST(self) -> None:
        """Perform an action of the labelling page, and send its new state."""
        action = self.path.removeprefix(f"/{self.pages.secret}/")
        length = self.headers.get("Content-Length", "")
        is_valid = (
            self.headers.get_content_type() == "application/json" and length.isdigit() and int(length) <= MAX_BODY
        )
        if not self._names_this_machine() or action not in self.pages.actions or not is_valid:
            self.close_connection = True  # what it sent is not read
            self._answer(HTTPStatus.NOT_FOUND, b"", "text/plain")
            return
        try:
            body = json.loads(self.rfile.read(int(length)))
            if not isinstance(body.get("tab"), str):
                raise ValueError("no tab")
            answer = self.pages.actions[action](body)
        except (ValueError, KeyError, AttributeError, RecursionError):
            self._answer(HTTPStatus.BAD_REQUEST, b"", "text/plain")
            return
        self._answer(HTTPStatus.OK, json.dumps(answer).encode("utf-8"), "application/json")

    def _names_this_machine(self) -> bool:
        """Return True if a request's Host header is local, which prevents DNS rebinding."""
        return self.headers.get("Host", "").rpartition(":")[0] in ("127.0.0.1", "localhost")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Suppress the label server's log of requests, because a person uses the terminal."""
