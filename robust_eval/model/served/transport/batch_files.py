"""The lines of a batch: the requests in its file, each with a name, and what its results say of them."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from robust_eval.answer import OWN
from robust_eval.error import UserError
from robust_eval.model.base import KeyValueStore, Request
from robust_eval.model.calls import Call, calls
from robust_eval.model.served.transport.client import LARGEST_REPLY
from robust_eval.model.served.transport.service import Answered, Service, UnansweredError

MOST_REQUESTS = 50_000
MOST_BYTES = 200_000_000
"""Of one file, by the service's rules."""

Condition = tuple[float, int]
"""Temperature and trial of an answer."""


@dataclass
class Wanted:
    """A request, the answers that are there, and those that batches under way ask for."""

    request: Request
    there: set[Condition]
    asked: set[Condition] = field(default_factory=set)

    def calls(self, choices: int) -> Iterator[Call]:
        """Yield what is still to be asked."""
        yield from calls(replace(self.request, known=frozenset(self.there | self.asked)), choices)


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
    return Named(request, OWN if math.isnan(at) else at, tuple(range(start, start + count)))


def to_line(name: str, path: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of a file that asks one request."""
    line = {"custom_id": name, "method": "POST", "url": f"/v1{path}", "body": body}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class Result(NamedTuple):
    """What a line of results says: of which request, and what came of it."""

    name: str
    came: Answered | UnansweredError


def read_line(line: bytes, service: Service) -> Result | None:
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
            return Result(name, service.read(status, body))
        reason = service.clean(str(error.get("message")))[:300] if isinstance(error, Mapping) else "no reply"
        raise UnansweredError("lost", reason)
    except UnansweredError as problem:
        return Result(name, problem)


def results_in(path: Path, service: Service) -> Iterator[Result | None]:
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
class Sent:
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

    def begin(self, sent: Sent) -> None:
        """Keep what a batch asks, before the service is sent anything; UserError where nothing is kept."""
        of_requests = {}
        for key, known, lines in self._of_requests(sent):
            of_requests[key] = json.dumps({**known, sent.mark: lines}).encode()
        self._store.put(of_requests | _of_batch(sent))
        if not dict(self._store.get([_batch_key(sent.mark)])):
            raise UserError("model.batch=true needs a store, which keeps the ids of batches: leave out store=none")

    def name(self, sent: Sent) -> None:
        """Keep the id of a batch."""
        self._store.put(_of_batch(sent))

    def end(self, sent: Sent) -> None:
        """Keep that nothing more comes of a batch to these requests; others may still take what they have in it."""
        left = {}
        for key, known, _ in self._of_requests(sent):
            left[key] = json.dumps({mark: lines for mark, lines in known.items() if mark != sent.mark}).encode()
        self._store.put(left)

    def under_way(self, requests: Iterable[str]) -> Sequence[Sent]:
        """Return the batches from which something is to come to the requests with these names."""
        names: dict[str, list[str]] = {}
        for _, value in self._store.get([_request_key(name) for name in requests]):
            for mark, lines in json.loads(value).items():
                names.setdefault(mark, []).extend(lines)
        marks = {_batch_key(mark): mark for mark in names}
        found = []
        for key, value in self._store.get(list(marks)):
            known, mine = json.loads(value), names[marks[key]]
            found.append(Sent(marks[key], known["batch"] or "", mine, others=known["lines"] - len(mine)))
        return found

    def _of_requests(self, sent: Sent) -> Iterator[tuple[bytes, Mapping[str, list[str]], list[str]]]:
        """Yield for each request of a batch the key of its note, what that says, and its lines in this batch."""
        lines: dict[bytes, list[str]] = {}
        for name in sent.names:
            lines.setdefault(_request_key(name.partition(":")[0]), []).append(name)
        known = {key: json.loads(value) for key, value in self._store.get(list(lines))}
        for key, mine in lines.items():
            yield key, known.get(key, {}), mine


def _of_batch(sent: Sent) -> dict[bytes, bytes]:
    note = {"batch": sent.batch or None, "lines": len(sent.names) + sent.others}
    return {_batch_key(sent.mark): json.dumps(note).encode()}


def _request_key(name: str) -> bytes:
    """Return the key under which it is kept which batches ask a request."""
    return sha256(f"batches of {name}".encode()).digest()


def _batch_key(mark: str) -> bytes:
    """Return the key under which a batch is kept."""
    return sha256(f"batch {mark}".encode()).digest()
