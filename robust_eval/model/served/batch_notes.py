"""What is kept of batches beyond this process: which of them ask a request, and the id of each."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from robust_eval.error import UserError
from robust_eval.model.base import Memory


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

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def begin(self, sent: Sent) -> None:
        """Keep what a batch asks, before the service is sent anything; UserError where nothing is kept."""
        of_requests = {}
        for key, known, lines in self._of_requests(sent):
            of_requests[key] = json.dumps({**known, sent.mark: lines}).encode()
        self._memory.put(of_requests | _of_batch(sent))
        if not dict(self._memory.get([_batch_key(sent.mark)])):
            raise UserError("model.batch=true needs a store, which keeps the ids of batches: leave out store=none")

    def name(self, sent: Sent) -> None:
        """Keep the id of a batch."""
        self._memory.put(_of_batch(sent))

    def end(self, sent: Sent) -> None:
        """Keep that nothing more comes of a batch to these requests; others may still take what they have in it."""
        left = {}
        for key, known, _ in self._of_requests(sent):
            left[key] = json.dumps({mark: lines for mark, lines in known.items() if mark != sent.mark}).encode()
        self._memory.put(left)

    def under_way(self, requests: Iterable[str]) -> Sequence[Sent]:
        """Return the batches from which something is to come to the requests with these names."""
        names: dict[str, list[str]] = {}
        for _, value in self._memory.get([_request_key(name) for name in requests]):
            for mark, lines in json.loads(value).items():
                names.setdefault(mark, []).extend(lines)
        marks = {_batch_key(mark): mark for mark in names}
        found = []
        for key, value in self._memory.get(list(marks)):
            known, mine = json.loads(value), names[marks[key]]
            found.append(Sent(marks[key], known["batch"] or "", mine, others=known["lines"] - len(mine)))
        return found

    def _of_requests(self, sent: Sent) -> Iterator[tuple[bytes, Mapping[str, list[str]], list[str]]]:
        """Yield for each request of a batch the key of its note, what that says, and its lines in this batch."""
        lines: dict[bytes, list[str]] = {}
        for name in sent.names:
            lines.setdefault(_request_key(name.partition(":")[0]), []).append(name)
        known = {key: json.loads(value) for key, value in self._memory.get(list(lines))}
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
