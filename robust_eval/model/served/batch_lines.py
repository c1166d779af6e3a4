"""The lines of a batch: the requests in its file, each with a name, and what its results say of them."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from robust_eval.answer import OWN
from robust_eval.model.base import Request
from robust_eval.model.calls import Call, calls
from robust_eval.model.served.client import LARGEST_REPLY
from robust_eval.model.served.service import Answered, Service, UnansweredError

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
        yield from calls(replace(self.request, cached=frozenset(self.there | self.asked)), choices)


def request_name(identity: Mapping[str, Any], request: Request) -> str:
    """Return a name for a request, by all that determines its answers but temperatures and trials."""
    asked = {
        "model": identity,
        "prompt": asdict(request.prompt),
        "item": request.item,
        "settings": [
            *(request.seed, request.max_new_tokens, request.top_logprobs, request.least_logprobs, request.first_line)
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
