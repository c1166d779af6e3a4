"""Batches: files of requests that a service answers within a day.

What must outlive this process is kept in the store before the service is sent anything: under the name of each request
the batches that ask it, and of each batch its id. A run that is killed finds them again, also a batch whose id was
never received: it carries a mark of its own.
"""

import logging
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from robust_eval.error import OutageError
from robust_eval.model.base import Call, Completion, KeyValueStore, Reply, Request
from robust_eval.model.served.background import run_sync
from robust_eval.model.served.completions import Intake, by_prefix, request_body, unanswered
from robust_eval.model.served.limits.rate_limiter import backoff
from robust_eval.model.served.limits.retries import Attempts
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.batches import (
    MOST_BYTES,
    MOST_REQUESTS,
    Batch,
    BatchNotes,
    BatchResult,
    BatchService,
    Condition,
    PendingRequest,
    SentBatch,
    conditions_of,
    line_name,
    named,
    request_name,
    results_in,
    to_line,
)
from robust_eval.model.served.transport.service import AGAIN, Service, UnansweredError
from robust_eval.model.spending import Spending
from robust_eval.model.workload import prompt_tokens

log = logging.getLogger(__name__)

POLL_RATIO = 60
"""Ratio of the longest to the first polling interval."""
BACKOFF_FACTOR = 1.5
"""Factor between successive polling intervals."""
CHUNK = 200
"""Replies yielded together."""
NOT_FOUND = 404

Found = TypeVar("Found")


class BatchTransport:
    """Transport of requests in files: sends them, polls ever more seldom, and passes on the answers."""

    _notes: BatchNotes
    _capabilities: Capabilities
    _most_requests = MOST_REQUESTS
    _hold = 0
    _under_way: Sequence[SentBatch] = ()

    def __init__(
        self,
        settings: ServiceSettings,
        key: str | None,
        attempts: Attempts,
        spending: Spending,
        intake: Intake,
        poll_seconds: float,
    ) -> None:
        self.settings = settings
        self.spending = spending
        self.sent = 0
        self._key = key
        self._attempts = attempts
        self._intake = intake
        self._poll_seconds = poll_seconds

    def attach_store(self, store: KeyValueStore) -> None:
        """See LanguageModel."""
        self._notes = BatchNotes(store)

    def complete(self, requests: Sequence[Request], can: Capabilities) -> Iterator[list[Reply]]:
        """Answer requests to a server that ``can`` do so much. Whatever ends this, batches that were sent go on, and
        the same requests find them.
        """
        self._capabilities = can
        wanted = self._wanted(requests)
        under_way = self._under_way = self._resumed(wanted)
        self._tries: Counter[tuple[str, Condition]] = Counter()
        try:
            yield from self._all(wanted, under_way)
        except BaseException:
            if going_on := [sent for sent in under_way if sent.batch is not None]:
                log.warning(
                    "%s at %s: the same command goes on with what comes of it, and with cancel_batches=true cancels it",
                    _in_words(going_on),
                    self.settings.server,
                )
            raise
        if self._attempts.ended:
            raise self._attempts.ended

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """See LanguageModel."""
        said = []
        for sent in self._resumed(self._wanted(requests)):
            batch = self._repeated_until(partial(self._found, sent))
            if batch is not None and not batch.ended:
                batch = self._repeated_until(lambda service, batch=batch: service.cancel(batch.id))  # type: ignore[misc]
                said.append(f"batch {batch.id}: {batch.status}, {batch.done:,} of {batch.total:,} requests were done")
        return said

    def progress(self) -> list[str]:
        """Return the progress of each batch under way, for the progress bar."""
        return [sent.seen for sent in self._under_way]

    @cached_property
    def _reader(self) -> Service:
        """What writes requests and reads replies, and is never connected: making one takes a hundredth of a second."""
        return self.settings.openai_service(self._key)

    def _wanted(self, requests: Sequence[Request]) -> dict[str, PendingRequest]:
        identity = self.settings.identity()
        return {
            request_name(identity, each): PendingRequest(each, set(each.cached))
            for each in sorted(requests, key=by_prefix)
        }

    # ------------------------------------------------------------------------------------------------ the rounds

    def _all(self, wanted: dict[str, PendingRequest], under_way: list[SentBatch]) -> Iterator[list[Reply]]:
        """Yield the answers that batches bring, until nothing is wanted any more or the run must end."""
        shortest = self._poll_seconds / POLL_RATIO
        wait = outage = 0.0
        while True:
            if not self._hold or not under_way:
                while not self._attempts.ended and self._send(wanted, under_way):
                    wait = shortest
            if not under_way:
                return
            yield []  # the progress bar shows the status
            time.sleep(wait)
            wait = min(max(wait, shortest) * BACKOFF_FACTOR, self._poll_seconds)
            for sent in list(under_way):
                try:
                    batch = self._at_service(partial(self._found, sent))
                except UnansweredError as problem:
                    if problem.kind == "fatal":
                        raise OutageError(f"{self.settings.server} refuses to answer: {problem}") from None
                    outage = self._bear(problem, outage + wait)
                    wait = max(wait, problem.retry_after or 0)
                    continue
                outage = 0.0
                if batch is not None and not batch.ended:
                    sent.seen = f"batch {batch.id} {batch.status}: {batch.done:,} of {batch.total or len(sent.names):,}"
                    continue
                if batch is not None:
                    yield from self._brought(batch, sent, wanted)
                self._end_of(sent, under_way, wanted)

    def _bear(self, problem: UnansweredError, seconds: float) -> float:
        """Return for how long the service has not answered; UserError where that is too long."""
        if max(seconds, problem.retry_after or 0) > self.settings.total_timeout:
            raise OutageError(f"{self.settings.server} has not answered for {seconds:,.0f} s: {problem}")
        log.debug("%s", problem)
        return seconds

    def _end_of(self, sent: SentBatch, under_way: list[SentBatch], wanted: dict[str, PendingRequest]) -> None:
        """Note that nothing more comes of a batch; what it has not brought is asked again."""
        self._notes.end(sent)
        under_way.remove(sent)
        self.spending.reserved.remove(sent.price)
        for name, conditions in conditions_of(sent.names).items():
            if name in wanted:
                wanted[name].asked -= conditions

    # ---------------------------------------------------------------------------------------------- sending

    def _send(self, wanted: dict[str, PendingRequest], under_way: list[SentBatch]) -> bool:
        """Send what is not asked yet, as much as one file and the budget hold; tell whether there was any."""
        names, lines, price = self._file(wanted, bool(under_way))
        if not names:
            return False
        sent = SentBatch(uuid4().hex, None, names, price)
        self._notes.begin(sent)
        self._under_way = under_way
        under_way.append(sent)
        self.spending.reserved.append(price)
        for name, conditions in conditions_of(names).items():
            wanted[name].asked |= conditions
        file = self._repeated_until(lambda service: service.upload(lines, sent.mark))
        batch = self._repeated_until(partial(self._made, file, sent))
        sent.batch = batch.id
        self._notes.name(sent)
        self.sent += 1
        sent.seen = f"batch {batch.id} sent: {len(names):,} requests"
        log.info("batch %s: %s requests sent to %s", batch.id, f"{len(names):,}", self.settings.server)
        return True

    def _file(self, wanted: dict[str, PendingRequest], others: bool) -> tuple[list[str], bytes, float]:
        """Return the names of the lines of a new file, the file, and what it costs at most."""
        can = self._capabilities
        names: list[str] = []
        lines: list[bytes] = []
        size, whole = 0, 0.0
        service = self._reader
        for name, each in wanted.items():
            for call in each.calls(can.choices):
                price = self._most_price(call)
                if not self.spending.allows(whole + price):
                    if not names and not others:
                        self._attempts.end_over_budget(f"{self.spending.spent:.4f}")
                    return names, b"".join(lines), whole
                body = service.body(call.request.prompt, can.system_role, request_body(self.settings, can, call))
                line = to_line(line_name(name, call), service.path, body)
                if len(names) == self._most_requests or size + len(line) > MOST_BYTES:
                    return names, b"".join(lines), whole
                names.append(line_name(name, call))
                lines.append(line)
                size, whole = size + len(line), whole + price
        return names, b"".join(lines), whole

    def _most_tokens(self, call: Call) -> tuple[int, int]:
        about = prompt_tokens(call.request.prompt, self.settings.prompt_style == "chat")
        most = int(about * self._attempts.more_tokens) + 1
        return most, len(call.trials) * self.settings.reply_tokens(call.request.max_new_tokens)

    def _most_price(self, call: Call) -> float:
        return self.spending.price(*self._most_tokens(call))

    async def _made(self, file: str, sent: SentBatch, service: BatchService) -> Batch:
        """Make a batch; one that was made although no reply came is found by its mark."""
        if sent.batch == "":
            batch = await service.find(sent.mark)
            if batch is not None:
                return batch
        sent.batch = ""  # there may be one from now on
        return await service.create(file, sent.mark)

    async def _found(self, sent: SentBatch, service: BatchService) -> Batch | None:
        """Return a batch that was sent; None where the service has none: the run was killed before it was made, or it
        was removed there.
        """
        try:
            batch = await (service.look(sent.batch) if sent.batch else service.find(sent.mark))
        except UnansweredError as problem:
            if problem.status != NOT_FOUND:
                raise
            batch = None
        if batch is not None:
            sent.batch = batch.id
        elif sent.batch:
            log.warning("batch %s is not known at %s any more: it is asked again", sent.batch, self.settings.server)
        return batch

    # -------------------------------------------------------------------------------------------- collecting

    def _brought(self, batch: Batch, sent: SentBatch, wanted: dict[str, PendingRequest]) -> Iterator[list[Reply]]:
        """Yield what came of a batch that has ended; count what did not come."""
        if batch.status == "failed":
            self._refused(batch)
            return
        self._hold = 0
        self._most_requests = MOST_REQUESTS
        left, broken, strange = set(sent.names), 0, -sent.others
        given: list[Reply] = []
        for result in self._results(batch):
            if result is None:
                broken += 1
            elif result.name not in left:
                strange += 1
            else:
                left.discard(result.name)
                given += self._replies(result, wanted)
            if len(given) >= CHUNK:
                yield given
                given = []
        for name in left:
            billed = batch.status == "completed"
            given += self._lost(name, "the batch has no result", wanted, billed)
        if broken or strange > 0:
            log.warning("batch %s: %d lines are broken, %d are unknown or double", batch.id, broken, max(0, strange))
        came, asked = len(sent.names) - len(left), len(sent.names)
        log.info("batch %s %s: %s of %s requests have a result", batch.id, batch.status, f"{came:,}", f"{asked:,}")
        yield given

    def _results(self, batch: Batch) -> Iterator[BatchResult | None]:
        """Yield what the lines in the files of a batch say; None for one that is broken."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            for file in batch.files:
                if self._repeated_until(partial(self._fetched, file, path)):
                    yield from results_in(path, self._reader)

    async def _fetched(self, file: str, path: Path, service: BatchService) -> bool:
        """Write a file of the service into one here; False where the service has it no more."""
        try:
            await service.download(file, path)
        except UnansweredError as problem:
            if problem.status != NOT_FOUND:
                raise
            log.warning("%s has removed %s: what was in it is asked again", self.settings.server, file)
            return False
        return True

    def _replies(self, result: BatchResult, wanted: dict[str, PendingRequest]) -> list[Reply]:
        """Return what a line of results brings of what is still wanted."""
        call = self._call(result.name, wanted)
        if call is None:
            return []
        if isinstance(result.came, UnansweredError):
            return self._failed_call(result.name, result.came, wanted, billed=False)
        answered, request = result.came, call.request
        about, most = self._most_tokens(call)
        more = self._attempts.more_tokens
        self._attempts.more_tokens = max(more, more * answered.prompt_tokens / about)
        self._attempts.limiter.use(
            answered.prompt_tokens or about, answered.completion_tokens or most, answered.cached_tokens or 0
        )
        try:
            came = self._intake.completions(call, answered, min(request.min_logprobs, self._capabilities.top_logprobs))
        except UnansweredError as problem:
            return self._failed_call(result.name, problem, wanted, billed=False)
        return self._given(call, came, wanted)

    def _given(self, call: Call, came: list[Completion], wanted: dict[str, PendingRequest]) -> list[Reply]:
        each = wanted[request_name(self.settings.identity(), call.request)]
        new = [one for one in came if (one.temperature, one.trial) not in each.there]
        if not new:
            return []
        each.there |= {(one.temperature, one.trial) for one in new}
        return [self._intake.reply(call.request, new)]

    def _lost(self, name: str, reason: str, wanted: dict[str, PendingRequest], billed: bool) -> list[Reply]:
        return self._failed_call(name, UnansweredError("lost", reason), wanted, billed)

    def _failed_call(
        self, name: str, problem: UnansweredError, wanted: dict[str, PendingRequest], billed: bool
    ) -> list[Reply]:
        """Take note of a line that brought no answer: it is asked again, or an outcome of its own."""
        call = self._call(name, wanted)
        if call is None:
            return []
        if billed:
            self._attempts.limiter.use(*self._most_tokens(call))  # the service may have answered, and bills it
        if problem.kind == "fatal":
            self._attempts.end(f"{self.settings.server} refuses to answer: {problem}")
            return []
        attempt = (name.partition(":")[0], (call.temperature, call.trials[0]))
        self._tries[attempt] += 1
        if problem.kind in AGAIN and self._tries[attempt] <= self.settings.retries:
            self._attempts.repeated += 1
            return []
        outcome = self._intake.failure(call.request, problem)
        replies = self._given(call, [unanswered(call, trial, outcome) for trial in call.trials], wanted)
        if outcome == "error":
            self._intake.judge_totals(len(self._intake.answered), len(self._intake.failed), problem)
        return replies

    def _call(self, name: str, wanted: dict[str, PendingRequest]) -> Call | None:
        """Return the call that a line asks; None where nothing of it is wanted."""
        one = named(name)
        if one is None or one.request not in wanted:
            return None
        return Call(wanted[one.request].request, one.temperature, one.trials)

    def _refused(self, batch: Batch) -> None:
        """Send smaller files later where the service has too many tokens to do; else end the run."""
        said = "; ".join(dict.fromkeys(message for _, message in batch.failures)) or "it does not say why"
        self._hold += 1
        if any(code == "token_limit_exceeded" for code, _ in batch.failures) and self._hold <= self.settings.retries:
            self._most_requests = max(1, min(self._most_requests, batch.total or MOST_REQUESTS) // 2)
            log.warning("batch %s: %s; it is sent again in smaller files", batch.id, said)
            time.sleep(min(self._poll_seconds, self._poll_seconds / POLL_RATIO * 2**self._hold))
            return
        self._attempts.end(f"{self.settings.server} refuses batch {batch.id}: {said}")

    # ---------------------------------------------------------------------------------- the service, and the store

    def _at_service(self, ask: Callable[[BatchService], Awaitable[Found]]) -> Found:
        """Return what the service says; raises UnansweredError."""

        async def within() -> Found:
            async with self.settings.openai_service(self._key) as service:
                return await ask(BatchService(service))

        return run_sync(within)

    def _repeated_until(self, ask: Callable[[BatchService], Awaitable[Found]]) -> Found:
        """Return what the service says, asked again where it does not answer; UserError where it never does."""
        generator, outage, shortest = random.Random(0), 0.0, self._poll_seconds / POLL_RATIO
        for attempt in range(self.settings.retries + 1):
            try:
                return self._at_service(ask)
            except UnansweredError as problem:
                last = problem
                if problem.kind not in AGAIN:
                    break
                wait = min(backoff(attempt, problem.retry_after, generator), max(shortest, problem.retry_after or 0))
                outage = self._bear(problem, outage + wait)
                time.sleep(wait)
        raise OutageError(f"{self.settings.server} takes no batch: {last}; what was answered is in the store")

    def _resumed(self, wanted: dict[str, PendingRequest]) -> list[SentBatch]:
        """Return the batches under way that ask what is wanted."""
        found = [self._taken_up(sent, wanted) for sent in self._notes.under_way(wanted)]
        if found:
            log.info("%s: its answers are waited for", _in_words(found))
        return found

    def _taken_up(self, sent: SentBatch, wanted: dict[str, PendingRequest]) -> SentBatch:
        for name, conditions in conditions_of(sent.names).items():
            wanted[name].asked |= conditions
        sent.price = sum(self._most_price(call) for name in sent.names if (call := self._call(name, wanted)))
        self.spending.reserved.append(sent.price)
        return sent


def _in_words(under_way: Sequence[SentBatch]) -> str:
    ids = [sent.batch or "without an id" for sent in under_way]
    return f"{'batch' if len(ids) == 1 else 'batches'} {', '.join(ids)} {'goes' if len(ids) == 1 else 'go'} on"
