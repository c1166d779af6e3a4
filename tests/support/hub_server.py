"""A hub with one data set, rajpurkar/squad, that answers what ``datasets`` asks of the real one.

Run as a program, it loads from itself what its arguments name, SUBSET/SPLIT each, and prints a JSON list of what came.
The address of the hub is read when ``huggingface_hub`` is imported, hence a process of its own.
"""

import io
import json
import os
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "rajpurkar/squad"


def parquet(*ids: str) -> bytes:
    """A file of questions with these ids, with the columns of SQuAD."""
    spans = {"text": ["1832"], "answer_start": [3]}
    records = [{"id": name, "title": "Mills", "context": "", "question": f"{name}?", "answers": spans} for name in ids]
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), content)
    return content.getvalue()


FILES = {
    "plain_text/validation/0000.parquet": parquet("a", "b"),
    "plain_text/validation/0001.parquet": parquet("c"),
    "plain_text/train/0000.parquet": parquet("d"),
    "other/validation/0000.parquet": parquet("e"),
}


class Hub(BaseHTTPRequestHandler):
    """The branch refs/convert/parquet of the repository, at the one commit."""

    def do_GET(self) -> None:
        path = unquote(self.path).partition("?")[0]
        api, tree = f"/api/datasets/{NAME}", f"/api/datasets/{NAME}/tree/{COMMIT}"
        file = path.removeprefix(f"/datasets/{NAME}/resolve/{COMMIT}/")
        if path in (f"{api}/revision/refs/convert/parquet", f"{api}/revision/{COMMIT}"):
            self._say({"id": NAME, "sha": COMMIT, "siblings": [], "private": False})
        elif path.startswith(tree) and (entries := _entries(path.removeprefix(tree).strip("/"))):
            self._say(entries)
        elif file in FILES:
            self._answer(200, FILES[file], {"ETag": f'"{file}"', "X-Repo-Commit": COMMIT})
        else:
            self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""

    def _say(self, content: Any) -> None:
        self._answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _entries(folder: str) -> list[dict[str, Any]]:
    """What stands in a folder of the repository, not in those below."""
    prefix = f"{folder}/" if folder else ""
    below = {file.removeprefix(prefix): content for file, content in FILES.items() if file.startswith(prefix)}
    folders = {name.partition("/")[0] for name in below if "/" in name}
    found = [{"type": "directory", "path": prefix + name, "oid": "0", "size": 0} for name in sorted(folders)]
    files = {name: content for name, content in below.items() if "/" not in name}
    return found + [
        {"type": "file", "path": prefix + name, "oid": name, "size": len(content)} for name, content in files.items()
    ]


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
    }
    from robust_eval.dataset.published import Published
    from robust_eval.error import UserError

    for argument in sys.argv[1:]:
        subset, split = argument.split("/")
        try:
            loaded = Published(name="squad", layout="squad", hub=NAME, subsets=[subset], split=split).load()
            print(json.dumps([loaded.edition, *(question.id for question in loaded)]))
        except UserError as problem:
            print(json.dumps([str(problem).partition(":")[0]]))


if __name__ == "__main__":
    main()
