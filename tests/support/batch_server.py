"""A service with files and batches, whose model is that of the stub server, and whose faults are planned.

with batch_server() as server:
    server.faults["upload"] = ["broken", None, "busy"]  # the first upload breaks, the third is refused for a moment
    server.plans = ["expired", "completed"]  # what becomes of the first batch, and of the second; then "completed"

A batch has ended when it was looked at ``looks`` times. ``received`` are all requests, ``lines`` the custom ids of all
that was answered, once for each time. ``done`` is called with the kind of each call that has worked, before the reply.
"""

import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.stub_server import answer

Body = dict[str, Any]
PLANS = ("completed", "expired", "cancelled", "token_limit", "partly_failed", "dirty", "empty", "refused")
"""What becomes of a batch: all is answered; half is, and it expires, or is cancelled; the queue is full; some requests
are refused for now; results are doubled, of unknown requests, or broken; nothing comes; the file is refused."""


@dataclass
class BatchServer:
    url: str = ""
    looks: int = 2
    faults: dict[str, list[str | None]] = field(default_factory=lambda: defaultdict(list))
    """By upload, create, look, download, list, cancel: what its next calls meet: busy, broken (no reply, but it is
    done), lost (no reply, and nothing is done), half (of a download), or gone."""
    plans: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, Body] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    bodies: list[Body] = field(default_factory=list)
    change: Callable[[Body], Body] = lambda reply: reply
    done: Callable[[str], object] = lambda kind: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def upload(self, body: bytes) -> Body:
        content = body.split(b'name="file"', 1)[1].split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0]
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return {"id": name, "object": "file", "purpose": "batch", "bytes": len(content)}

    def create(self, said: Body) -> Body:
        number = len(self.batches)
        batch = {
            "id": f"batch_{number}",
            "object": "batch",
            "status": "in_progress",
            "endpoint": said["endpoint"],
            "metadata": said.get("metadata"),
            "input_file_id": said["input_file_id"],
            "output_file_id": None,
            "error_file_id": None,
            "errors": None,
            "plan": self.plans[number] if number < len(self.plans) else "completed",
            "looks": 0,
            "request_counts": {"total": self.files[said["input_file_id"]].count(b"\n"), "completed": 0, "failed": 0},
        }
        self.batches[batch["id"]] = batch
        return batch

    def look(self, name: str) -> Body:
        batch = self.batches[name]
        batch["looks"] += 1
        if batch["status"] in ("in_progress", "cancelling") and batch["looks"] > self.looks:
            self._end(batch)
        return batch

    def cancel(self, name: str) -> Body:
        batch = self.batches[name]
        batch |= {"status": "cancelling", "plan": "cancelled"}
        return batch

    def _end(self, batch: Body) -> None:
        plan, asked = batch["plan"], self.files[batch["input_file_id"]].splitlines()
        if plan in ("token_limit", "refused"):
            code = "token_limit_exceeded" if plan == "token_limit" else "model_not_found"
            batch |= {"status": "failed", "errors": {"data": [{"code": code, "message": f"no: {code}"}]}}
            return
        half = plan in ("expired", "cancelled")
        results, errors = [], []
        for number, line in enumerate(asked):
            one = json.loads(line)
            assert one["url"] == batch["endpoint"]
            if half and number >= len(asked) // 2:
                error = {"code": f"batch_{plan}", "message": f"This batch was {plan}."}
                errors.append({"custom_id": one["custom_id"], "response": None, "error": error})
            elif plan == "empty" or (plan == "partly_failed" and number % 3 == 0):
                body = {"error": {"message": "try later", "type": "server_error", "code": None}}
                errors.append(
                    {"custom_id": one["custom_id"], "response": {"status_code": 500, "body": body}, "error": None}
                )
            else:
                self.lines[one["custom_id"]] += 1
                self.bodies.append(one["body"])
                reply = self.change(answer(one["body"], one["url"].endswith("/chat/completions")))
                response = {"status_code": 200, "request_id": "r", "body": reply}
                results.append({"id": "x", "custom_id": one["custom_id"], "response": response, "error": None})
        text = [json.dumps(each) for each in reversed(results)]
        if plan == "dirty":  # each third is broken, each third doubled with another answer, and some are of nobody
            strange = [json.dumps({**each, "custom_id": f"of nobody {n}"}) for n, each in enumerate(results[:3])]
            doubled = [line.replace("is the answer", "is another answer") for line in text[1::3]]
            cut = [line[: len(line) // 2] if number % 3 == 0 else line for number, line in enumerate(text)]
            text = [*cut, *doubled, *strange, "[]", "null", "", '{"custom_id": 7}']
        for kind, lines in (("output", text), ("error", [json.dumps(each) for each in errors])):
            if lines:
                name = batch[f"{kind}_file_id"] = f"file-{kind}-{batch['id']}"
                self.files[name] = ("\n".join(lines) + "\n").encode()
        batch["request_counts"] |= {"completed": len(results), "failed": len(errors)}
        batch["status"] = plan if half else "completed"


@contextmanager
def batch_server() -> Iterator[BatchServer]:
    """A service in a thread; plain questions are answered as well."""
    server = BatchServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with server.lock:
                kind, work = self._meant(body)
                server.calls[kind] += 1
                fault = server.faults[kind].pop(0) if server.faults[kind] else None
                if fault == "busy":
                    return self._reply(429, b'{"error": {"message": "slowly", "code": "rate_limit_exceeded"}}')
                if fault == "gone":
                    return self._reply(404, b'{"error": {"message": "no such thing", "code": "not_found"}}')
                if fault == "lost":
                    return self._drop()
                found = work()
            server.done(kind)
            if fault == "broken":
                return self._drop()
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            return self._reply(200, content, half=fault == "half")

        def _meant(self, body: bytes) -> tuple[str, Callable[[], Any]]:
            path = self.path.partition("?")[0].removeprefix("/v1")
            if path.endswith("/completions"):
                server.bodies.append(json.loads(body))
                return "ask", lambda: answer(json.loads(body), path.startswith("/chat"))
            if path == "/files":
                return "upload", lambda: server.upload(body)
            if found := re.fullmatch(r"/files/([^/]+)/content", path):
                return "download", lambda: server.files[found[1]]
            if path == "/batches" and body:
                return "create", lambda: server.create(json.loads(body))
            if path == "/batches":
                return "list", self._listed
            if found := re.fullmatch(r"/batches/([^/]+)/cancel", path):
                return "cancel", lambda: server.cancel(found[1])
            name = path.removeprefix("/batches/")
            return "look", lambda: server.look(name)

        def _listed(self) -> Body:
            """One a page, the newest first."""
            newest = [*reversed(server.batches.values())]
            after = re.search(r"after=([\w-]+)", self.path)
            names = [each["id"] for each in newest]
            start = names.index(after[1]) + 1 if after else 0
            return {"data": newest[start : start + 1], "has_more": start + 1 < len(newest)}

        def _drop(self) -> None:
            self.close_connection = True
            self.connection.close()

        def _reply(self, status: int, content: bytes, half: bool = False) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if half else content)
            if half:
                self._drop()

        def log_message(self, *_: Any) -> None: ...

        def finish(self) -> None:
            with suppress(OSError, ValueError):  # it was dropped
                super().finish()

    started = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=started.serve_forever, args=(0.01,))
    thread.start()
    server.url = f"http://127.0.0.1:{started.server_port}/v1"
    try:
        yield server
    finally:
        started.shutdown()
        thread.join()
        started.server_close()
