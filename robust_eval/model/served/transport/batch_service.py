"""Files and batches of a service that speaks OpenAI's protocol: sent, looked at, cancelled, fetched."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from robust_eval.model.served.transport.service import Service, UnansweredError

MARK = "robust_eval"
"""Under this name in its metadata a batch has the mark by which it is found again."""
ENDED = ("completed", "expired", "cancelled", "failed")
"""Statuses in which a batch brings nothing more."""
PAGE = 100
PAGES = 20
"""Of the newest batches, among which one is looked for."""
_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}")


class Batch(NamedTuple):
    """What a service says of a batch. ``failures`` are pairs of a code and a sentence, of a file that it refuses."""

    id: str
    status: str
    total: int
    done: int
    files: tuple[str, ...]
    """The ids of those with its results and with its errors, as far as there are any."""
    failures: tuple[tuple[str, str], ...]

    @property
    def ended(self) -> bool:
        """Whether it brings nothing more."""
        return self.status in ENDED


class BatchService:
    """The part of an open :class:`Service` that has files and batches; each method raises UnansweredError."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def upload(self, lines: bytes, mark: str) -> str:
        """Send a file of requests, one a line; return its id."""
        file = (f"{mark}.jsonl", lines, "application/jsonl")
        said = await self._asked(
            lambda client: client.post(
                "/files",
                body={"purpose": "batch"},
                files=[("file", file)],
                options={"headers": {"Content-Type": "multipart/form-data"}},
                cast_to=httpx2.Response,
            )
        )
        return self._id(said.get("id"))

    async def create(self, file: str, mark: str) -> Batch:
        """Have the requests of a file answered."""
        body = {
            "input_file_id": file,
            "endpoint": f"/v1{self._service.path}",
            "completion_window": "24h",
            "metadata": {MARK: mark},
        }
        said = await self._asked(lambda client: client.post("/batches", body=body, cast_to=httpx2.Response))
        return self._batch(said)

    async def look(self, batch: str) -> Batch:
        """Return how far a batch is."""
        return self._batch(await self._asked(lambda client: client.get(f"/batches/{batch}", cast_to=httpx2.Response)))

    async def cancel(self, batch: str) -> Batch:
        """Have the service end a batch; what it has answered by then comes."""
        path = f"/batches/{batch}/cancel"
        return self._batch(await self._asked(lambda client: client.post(path, cast_to=httpx2.Response)))

    async def find(self, mark: str) -> Batch | None:
        """Return the batch with this mark; None where it is not among the newest ones."""
        after: dict[str, Any] = {}
        for _ in range(PAGES):
            options: Any = {"params": {"limit": PAGE, **after}}
            page = await self._asked(
                lambda client, options=options: client.get("/batches", options=options, cast_to=httpx2.Response)
            )
            listed = [each for each in _list(page.get("data")) if isinstance(each, Mapping)]
            for each in listed:
                metadata = each.get("metadata")
                if isinstance(metadata, Mapping) and metadata.get(MARK) == mark:
                    return self._batch(each)
            if not listed or page.get("has_more") is not True:
                return None
            after = {"after": self._id(listed[-1].get("id"))}
        return None

    async def download(self, file: str, into: Path) -> None:
        """Write a file of the service into one here; what was in it is gone."""
        client = self._service.client
        headers = self._service.headers()
        url = f"{str(client.base_url).rstrip('/')}/files/{file}/content"
        reply = await self._service.sent(lambda: self._service.http.save(url, headers, into))
        if reply.status_code != httpx2.codes.OK:
            try:
                body = reply.json()
            except ValueError:
                body = reply.text
            self._service.read(reply.status_code, body)
        elif reply.headers.get("content-encoding", "identity") != "identity":
            raise UnansweredError("lost", "the service sent a packed file, which was not offered")

    async def _asked(self, send: Any) -> Mapping[str, Any]:
        """Return the JSON object that comes."""
        reply: httpx2.Response = await self._service.sent(lambda: send(self._service.client))
        try:
            said = json.loads(reply.text)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, Mapping):
            raise UnansweredError("lost", f"the service sent no JSON object: {self._service.clean(reply.text)[:80]!r}")
        return said

    def _batch(self, said: Mapping[str, Any]) -> Batch:
        status = said.get("status")
        if not isinstance(status, str):
            raise UnansweredError("lost", "the service sent a batch without a status")
        counts, errors = _object(said.get("request_counts")), _list(_object(said.get("errors")).get("data"))
        files = [said.get(name) for name in ("output_file_id", "error_file_id")]
        return Batch(
            self._id(said.get("id")),
            status,
            _whole(counts.get("total")),
            _whole(counts.get("completed")) + _whole(counts.get("failed")),
            tuple(self._id(file) for file in files if file),
            tuple(
                (str(each.get("code")), self._service.clean(str(each.get("message")))[:300])
                for each in errors[:3]
                if isinstance(each, Mapping)
            ),
        )

    def _id(self, said: object) -> str:
        """Return an id that can stand in an address."""
        if not isinstance(said, str) or not _ID.fullmatch(said):
            raise UnansweredError("lost", f"the service sent no usable id: {self._service.clean(str(said))[:80]!r}")
        return said


def _object(said: object) -> Mapping[str, Any]:
    return said if isinstance(said, Mapping) else {}


def _list(said: object) -> list[Any]:
    return said if isinstance(said, list) else []


def _whole(said: object) -> int:
    return said if type(said) is int and said >= 0 else 0
