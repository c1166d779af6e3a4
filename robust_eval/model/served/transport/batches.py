"""Batches of a service that speaks OpenAI's protocol: their files, lines and notes in the store."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.error import UserError
from robust_eval.model.base import Call, KeyValueStore, Request, calls
from robust_eval.model.served.transport.client import LARGEST_REPLY
from robust_eval.model.served.transport.service import Service, ServiceResponse, UnansweredError

MOST_REQUESTS = 50_000
MOST_BYTES = 200_000_000
"""Of one file, by the service's rules."""

Condition = tuple[float, int]
"""Temperature and trial of an answer."""


@dataclass
class PendingRequest:
    """A request, the answers that are there, and those that batches under way ask for."""

    request: Request
    there: set[Condition]
    asked: set[Condition] = field(default_factory=set)

    def calls(self, choices: int) -> Iterator[Call]:
        """Yield what is still to be asked."""
        yield from calls(replace(self.request, cached=frozenset(self.there | self.asked)), choices)


def request_name(identity: Mapping[str, Any], request: Request) -> str:
    """Return a name for a request, by all that determines its answers but temperatures and trials."""
    asked = {
        "model": identity,
        "prompt": asdict(request.prompt),
        "item": request.item,
        "settings": [
            *(request.seed, request.max_new_tokens, request.top_logprobs, request.min_logprobs, request.first_line)
        ],
        **({} if request.thought is None else {"thought": asdict(request.thought)}),
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def line_name(request: str, call: Call) -> str:
    """Return the ``custom_id`` of a call, of at most 64 signs; ``request`` is the name of its request.

    It says which answers are asked for, so that they are known again whoever asked for them.
    """
    return f"{request}:{call.temperature!r}:{call.trials[0]}:{len(call.trials)}"


class Named(NamedTuple):
    """What a ``custom_id`` says: the name of a request, the temperature, and the trials."""

    request: str
    temperature: float
    trials: tuple[int, ...]

    @property
    def conditions(self) -> list[Condition]:
        """Temperature and trial of each answer."""
        return [(self.temperature, trial) for trial in self.trials]


def named(custom_id: object) -> Named | None:
    """Read a ``custom_id``; None where it is none of ours."""
    try:
        request, temperature, first, number = str(custom_id).split(":")
        at, start, count = float(temperature), int(first), int(number)
    except ValueError:
        return None
    if not (start >= 0 and 1 <= count <= MOST_REQUESTS):
        return None
    return Named(request, DEFAULT_TEMPERATURE if math.isnan(at) else at, tuple(range(start, start + count)))


def to_line(name: str, path: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of a file that asks one request."""
    line = {"custom_id": name, "method": "POST", "url": f"/v1{path}", "body": body}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class BatchResult(NamedTuple):
    """What a line of results says: of which request, and what came of it."""

    name: str
    came: ServiceResponse | UnansweredError


def read_line(line: bytes, service: Service) -> BatchResult | None:
    """Read a line of results or of errors; None where it is broken. ``service`` reads the reply in it."""
    try:
        said = json.loads(line)
        name, response, error = said["custom_id"], said.get("response"), said.get("error")
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
    """Yield what each line of a file says; None where it is broken, and for each piece of one that no reply fills."""
    with path.open("rb") as lines:
        while line := lines.readline(LARGEST_REPLY):
            if line.strip():
                yield read_line(line, service)


def conditions_of(names: Iterable[str]) -> dict[str, set[Condition]]:
    """Return the answers that lines ask for, by the name of the request."""
    found: dict[str, set[Condition]] = {}
    for name in names:
        if one := named(name):
            found.setdefault(one.request, set()).update(one.conditions)
    return found


@dataclass
class SentBatch:
    """A batch under way.

    ``mark`` is in its metadata at the service, ``names`` are those of its lines that are wanted, beside ``others``, and
    ``price`` is what they cost at most. ``batch`` is its id; None before the service is asked to make it, and empty
    where it may have been made although no id came. ``seen`` says how far it was.
    """

    mark: str
    batch: str | None
    names: list[str]
    price: float = 0.0
    others: int = 0
    seen: str = ""


class BatchNotes:
    """Notes in a store: of each request, by its name, the lines of batches that ask it and have not come; of each
    batch, by its mark, the id and the number of lines.
    """

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def begin(self, sent: SentBatch) -> None:
        """Keep what a batch asks, before the service is sent anything; UserError where nothing is kept."""
        of_requests = {}
        for key, known, lines in self._of_requests(sent):
            of_requests[key] = json.dumps({**known, sent.mark: lines}).encode()
        self._store.put(of_requests | _of_batch(sent))
        if not dict(self._store.get([_batch_key(sent.mark)])):
            raise UserError("model.batch=true needs a store, which keeps the ids of batches: leave out store=none")

    def name(self, sent: SentBatch) -> None:
        """Keep the id of a batch."""
        self._store.put(_of_batch(sent))

    def end(self, sent: SentBatch) -> None:
        """Keep that nothing more comes of a batch to these requests; others may still take what they have in it."""
        left = {}
        for key, known, _ in self._of_requests(sent):
            left[key] = json.dumps({mark: lines for mark, lines in known.items() if mark != sent.mark}).encode()
        self._store.put(left)

    def under_way(self, requests: Iterable[str]) -> Sequence[SentBatch]:
        """Return the batches from which something is to come to the requests with these names."""
        names: dict[str, list[str]] = {}
        for _, value in self._store.get([_request_key(name) for name in requests]):
            for mark, lines in json.loads(value).items():
                names.setdefault(mark, []).extend(lines)
        marks = {_batch_key(mark): mark for mark in names}
        found = []
        for key, value in self._store.get(list(marks)):
            known, mine = json.loads(value), names[marks[key]]
            found.append(SentBatch(marks[key], known["batch"] or "", mine, others=known["lines"] - len(mine)))
        return found

    def _of_requests(self, sent: SentBatch) -> Iterator[tuple[bytes, Mapping[str, list[str]], list[str]]]:
        """Yield for each request of a batch the key of its note, what that says, and its lines in this batch."""
        lines: dict[bytes, list[str]] = {}
        for name in sent.names:
            lines.setdefault(_request_key(name.partition(":")[0]), []).append(name)
        known = {key: json.loads(value) for key, value in self._store.get(list(lines))}
        for key, mine in lines.items():
            yield key, known.get(key, {}), mine


def _of_batch(sent: SentBatch) -> dict[bytes, bytes]:
    note = {"batch": sent.batch or None, "lines": len(sent.names) + sent.others}
    return {_batch_key(sent.mark): json.dumps(note).encode()}


def _request_key(name: str) -> bytes:
    """Return the key under which it is kept which batches ask a request."""
    return sha256(f"batches of {name}".encode()).digest()


def _batch_key(mark: str) -> bytes:
    """Return the key under which a batch is kept."""
    return sha256(f"batch {mark}".encode()).digest()


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
