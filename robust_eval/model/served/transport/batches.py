"""Batches of a service with OpenAI's protocol: files, lines, and notes in the store."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.error import UserError
from robust_eval.model.base import Call, KeyValueStore, Request
from robust_eval.model.served.transport.client import MAX_RESPONSE
from robust_eval.model.served.transport.service import Service, ServiceResponse, UnansweredError

MAX_REQUESTS = 50_000
MAX_BYTES = 200_000_000
"""Limits of one file, by the service's rules."""


def request_name(identity: Mapping[str, Any], request: Request) -> str:
    """Return a request's name in batches: a digest of all that determines its answers but temperatures and trials."""
    determinants = {
        "model": identity,
        "prompt": asdict(request.prompt),
        "item": request.item,
        "settings": [
            *(request.seed, request.max_new_tokens, request.top_logprobs, request.min_logprobs, request.first_line)
        ],
        **({} if request.reasoning is None else {"thought": asdict(request.reasoning)}),
    }
    return sha256(json.dumps(determinants, sort_keys=True).encode()).hexdigest()[:32]


def line_name(request: str, call: Call) -> str:
    """Return the ``custom_id`` of a call in a batch, of at most 64 characters; ``request`` is its request's name.

    It identifies the answers, also for another run.
    """
    return f"{request}:{call.temperature!r}:{call.trials[0]}:{len(call.trials)}"


def call_of(line: str, requests: Mapping[str, Request]) -> Call:
    """Return the call of a batch's line by its ``custom_id``; its request is among these, by their names."""
    name, temperature, first, number = line.split(":")
    at, start = float(temperature), int(first)
    return Call(requests[name], DEFAULT_TEMPERATURE if math.isnan(at) else at, tuple(range(start, start + int(number))))


def to_line(name: str, path: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of a batch file for one request."""
    line = {"custom_id": name, "method": "POST", "url": f"/v1{path}", "body": body}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class BatchResult(NamedTuple):
    """Line of a batch's results: the name of the line, and its response or error."""

    name: str
    outcome: ServiceResponse | UnansweredError


def read_line(line: bytes, service: Service) -> BatchResult | None:
    """Return a line of a batch's results or errors; None if it is broken. ``service`` parses the response in it."""
    try:
        data = json.loads(line)
        name, response, error = data["custom_id"], data.get("response"), data.get("error")
        status, body = (response["status_code"], response.get("body")) if response else (0, None)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str):
        return None
    try:
        if type(status) is int and status:
            return BatchResult(name, service.read(status, body))
        reason = service.clean(str(error.get("message")))[:300] if isinstance(error, Mapping) else "no reply"
        raise UnansweredError("lost", reason)
    except UnansweredError as problem:
        return BatchResult(name, problem)


def results_in(path: Path, service: Service) -> Iterator[BatchResult | None]:
    """Yield the results in a batch's file; None for a broken line, and for each piece of an overlong one."""
    with path.open("rb") as lines:
        while line := lines.readline(MAX_RESPONSE):
            if line.strip():
                yield read_line(line, service)


@dataclass
class SentBatch:
    """Batch in flight at a service.

    ``mark`` is in its metadata at the service, ``calls`` are those of the requests, by the names of their lines, and
    ``price`` is the maximum cost. ``batch`` is its id; None before the request to make it, and empty if it may exist
    although no id was received. ``progress`` is a status line.
    """

    mark: str
    batch: str | None
    calls: dict[str, Call]
    price: float = 0.0
    progress: str = ""


class BatchNotes:
    """Notes on batches in a store: for each request, by its name, its lines in batches in flight; for each batch, by
    its mark, the id.
    """

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def begin(self, sent: SentBatch) -> None:
        """Note the lines of a batch before it is sent; UserError without a store."""
        notes = self._of_requests(sent)
        of_requests = {key: json.dumps({**note, sent.mark: lines}).encode() for key, note, lines in notes}
        self._store.put(of_requests | _of_batch(sent))
        if not dict(self._store.get([_batch_key(sent.mark)])):
            raise UserError(
                "model.batch=true needs a store for the ids of batches: remove store=none, or set store.folder to a "
                "folder that is not read-only"
            )

    def name(self, sent: SentBatch) -> None:
        """Note the id of a batch."""
        self._store.put(_of_batch(sent))

    def end(self, sent: SentBatch) -> None:
        """Remove the lines of a batch from the notes of its requests; those of other requests stay."""
        left = {}
        for key, note, _ in self._of_requests(sent):
            left[key] = json.dumps({mark: lines for mark, lines in note.items() if mark != sent.mark}).encode()
        self._store.put(left)

    def in_flight(self, requests: Mapping[str, Request]) -> list[SentBatch]:
        """Return the batches in flight with lines of these requests, by their names."""
        calls: dict[str, dict[str, Call]] = {}
        for _, value in self._store.get([_request_key(name) for name in requests]):
            for mark, lines in json.loads(value).items():
                calls.setdefault(mark, {}).update((line, call_of(line, requests)) for line in lines)
        marks = {_batch_key(mark): mark for mark in calls}
        return [
            SentBatch(marks[key], json.loads(note)["batch"] or "", calls[marks[key]])
            for key, note in self._store.get(list(marks))
        ]

    def _of_requests(self, sent: SentBatch) -> Iterator[tuple[bytes, Mapping[str, list[str]], list[str]]]:
        """Yield for each request of a batch the key of its note, the note, and its lines in this batch."""
        lines: dict[bytes, list[str]] = {}
        for name in sent.calls:
            lines.setdefault(_request_key(name.partition(":")[0]), []).append(name)
        notes = {key: json.loads(value) for key, value in self._store.get(list(lines))}
        for key, names in lines.items():
            yield key, notes.get(key, {}), names


def _of_batch(sent: SentBatch) -> dict[bytes, bytes]:
    return {_batch_key(sent.mark): json.dumps({"batch": sent.batch or None}).encode()}


def _request_key(name: str) -> bytes:
    """Return the key of the note on batches of a request."""
    return sha256(f"batches of {name}".encode()).digest()


def _batch_key(mark: str) -> bytes:
    """Return the key of the note of a batch."""
    return sha256(f"batch {mark}".encode()).digest()


MARK = "robust_eval"
"""Name of the mark in the metadata of a batch."""
PAGE = 100
PAGES = 20
"""Size and number of the pages of newest batches that are searched for a mark."""
_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}")


class Batch(NamedTuple):
    """Status of a batch at a service. ``failures`` are pairs of a code and a sentence, for a refused file."""

    id: str
    status: str
    total: int
    done: int
    files: tuple[str, ...]
    """Ids of the files with its results and with its errors, if there are any."""
    failures: tuple[tuple[str, str], ...]

    @property
    def ended(self) -> bool:
        """True if the status of the batch is final."""
        return self.status in ("completed", "expired", "cancelled", "failed")


class BatchService:
    """Client for the files and batches of an open :class:`Service`; each method raises UnansweredError."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def upload(self, lines: bytes, mark: str) -> str:
        """Upload a batch file of requests, one a line; return its id."""
        data = await self._object(
            "POST",
            "/files",
            data={"purpose": "batch"},
            files={"file": (f"{mark}.jsonl", lines, "application/jsonl")},
            headers={"content-type": f"multipart/form-data; boundary={mark}"},
        )
        return self._id(data.get("id"))

    async def create(self, file: str, mark: str) -> Batch:
        """Create the batch of a file."""
        body = {
            "input_file_id": file,
            "endpoint": f"/v1{self._service.path}",
            "completion_window": "24h",
            "metadata": {MARK: mark},
        }
        return self._batch(await self._object("POST", "/batches", body=body))

    async def look(self, batch: str) -> Batch:
        """Return the status of a batch."""
        return self._batch(await self._object("GET", f"/batches/{batch}"))

    async def cancel(self, batch: str) -> Batch:
        """Cancel a batch; its answers so far are available."""
        return self._batch(await self._object("POST", f"/batches/{batch}/cancel"))

    async def find(self, mark: str) -> Batch | None:
        """Return the batch with this mark; None if it is not among the newest ones."""
        after: dict[str, Any] = {}
        for _ in range(PAGES):
            page = await self._object("GET", "/batches", params={"limit": PAGE, **after})
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
        """Download a batch file of the service, in place of an existing one."""
        url = f"{self._service.address}/files/{file}/content"
        reply = await self._service.send(self._service.http.save(url, self._service.headers, into))
        if reply.status_code != httpx2.codes.OK:
            raise self._service.refused(reply)
        if reply.headers.get("content-encoding", "identity") != "identity":
            raise UnansweredError("lost", "the service compressed a file, although asked not to")

    async def _object(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:
        """Return the JSON object of the batch service's response to a request."""
        text = await self._service.request(method, path, **options)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, Mapping):
            raise UnansweredError("lost", f"the service sent no JSON object: {self._service.clean(text)[:80]!r}")
        return data

    def _batch(self, data: Mapping[str, Any]) -> Batch:
        status = data.get("status")
        if not isinstance(status, str):
            raise UnansweredError("lost", "the service sent a batch without a status")
        counts, errors = _mapping(data.get("request_counts")), _list(_mapping(data.get("errors")).get("data"))
        files = [data.get(name) for name in ("output_file_id", "error_file_id")]
        return Batch(
            self._id(data.get("id")),
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

    def _id(self, data: object) -> str:
        """Return the id of a batch or file; raises UnansweredError unless it is valid in an address."""
        if not isinstance(data, str) or not _ID.fullmatch(data):
            raise UnansweredError("lost", f"the service sent no usable id: {self._service.clean(str(data))[:80]!r}")
        return data


def _mapping(data: object) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) else {}


def _list(data: object) -> list[Any]:
    return data if isinstance(data, list) else []


def _whole(data: object) -> int:
    return data if type(data) is int and data >= 0 else 0
