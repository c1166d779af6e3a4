"""Transport in batches: files of requests that a service answers within a day.

Before a batch is sent, the store gets the batches of each request and the id of each batch, by which a killed run finds
them again. A batch whose id was never received has a mark.
"""

import logging
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from robust_eval.error import OutageError
from robust_eval.model.base import Call, Completion, Item, KeyValueStore, Reply, Request, TrialKey, calls
from robust_eval.model.served.background import run_sync
from robust_eval.model.served.completions import Intake, by_prefix, request_body, unanswered
from robust_eval.model.served.limits.retries import Attempts, backoff
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.batches import (
    MAX_BYTES,
    MAX_REQUESTS,
    Batch,
    BatchNotes,
    BatchResult,
    BatchService,
    SentBatch,
    line_name,
    request_name,
    results_in,
    to_line,
)
from robust_eval.model.served.transport.service import AGAIN, Service, ServiceResponse, UnansweredError
from robust_eval.model.workload import Spending, prompt_tokens

log = logging.getLogger(__name__)

POLL_RATIO = 60
"""Ratio of the longest to the first polling interval."""
BACKOFF_FACTOR = 1.5
"""Factor between successive polling intervals."""
CHUNK = 200
"""Number of replies that are yielded together."""
NOT_FOUND = 404

Result = TypeVar("Result")


class BatchTransport:
    """Transport of requests in batch files, with increasing polling intervals."""

    _notes: BatchNotes
    _capabilities: Capabilities

    def __init__(
        self,
        settings: ServiceSettings,
        connect: Callable[[], Service],
        attempts: Attempts,
        spending: Spending,
        intake: Intake,
        poll_seconds: float,
    ) -> None:
        self.settings = settings
        self.spending = spending
        self.sent = 0
        self._connect = connect
        self._poll_seconds = poll_seconds
        self._attempts = attempts
        self._intake = intake
        self._pending: dict[str, Request] = {}
        self._received: dict[Item, set[TrialKey]] = {}
        self._in_flight: list[SentBatch] = []
        self._tries: Counter[tuple[Item, TrialKey]] = Counter()
        self._max_requests = MAX_REQUESTS
        self._hold = 0

    def attach_store(self, store: KeyValueStore) -> None:
        """Use the store for notes of batches; see LanguageModel."""
        self._notes = BatchNotes(store)

    def complete(self, requests: Sequence[Request], capabilities: Capabilities) -> Iterator[list[Reply]]:
        """Yield replies to requests in batches. Batches in flight outlive an early end; the same requests find them."""
        self._capabilities = capabilities
        self._resume(requests)
        self._tries.clear()
        try:
            yield from self._all()
        except BaseException:
            if in_progress := [sent for sent in self._in_flight if sent.batch is not None]:
                log.warning(
                    "%s at %s: rerun the command to collect the answers, or add cancel_batches=true to cancel",
                    _in_words(in_progress),
                    self.settings.server,
                )
            raise
        if self._attempts.ended:
            raise self._attempts.ended

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """Cancel the batches in flight that contain these requests; see LanguageModel."""
        cancelled = []
        self._resume(requests)
        for sent in self._in_flight:
            batch = self._until_answered(partial(self._status, sent))
            if batch is not None and not batch.ended:
                batch = self._until_answered(lambda service, batch=batch: service.cancel(batch.id))  # type: ignore[misc]
                cancelled.append(
                    f"batch {batch.id}: {batch.status}, {batch.done:,} of {batch.total:,} requests completed"
                )
        return cancelled

    def progress(self) -> list[str]:
        """Return the progress of each batch in flight, for the progress bar."""
        return [sent.progress for sent in self._in_flight]

    @cached_property
    def _service(self) -> Service:
        """Writer of requests in batch files and parser of responses, never connected; it takes 10 ms to make."""
        return self._connect()

    def _resume(self, requests: Sequence[Request]) -> None:
        """Set the pending requests and the batches in flight that contain some of them."""
        identity = self.settings.identity()
        self._pending = {request_name(identity, each): each for each in sorted(requests, key=by_prefix)}
        self._received = {each.item: set(each.cached) for each in requests}
        self._in_flight = self._notes.in_flight(self._pending)
        for sent in self._in_flight:
            self._reserve(sent)
        if self._in_flight:
            log.info("%s: waiting for the answers", _in_words(self._in_flight))

    def _reserve(self, sent: SentBatch) -> None:
        sent.price = sum(map(self._max_price, sent.calls.values()))
        self.spending.reserved.append(sent.price)

    # ------------------------------------------------------------------------------------------------ the rounds

    def _all(self) -> Iterator[list[Reply]]:
        """Yield the answers of batches, until all requests are answered or the run ends."""
        shortest = self._poll_seconds / POLL_RATIO
        wait = outage = 0.0
        while True:
            if not self._hold or not self._in_flight:
                while not self._attempts.ended and self._send():
                    wait = shortest
            if not self._in_flight:
                return
            yield []  # the progress bar shows the status
            time.sleep(wait)
            wait = min(max(wait, shortest) * BACKOFF_FACTOR, self._poll_seconds)
            for sent in list(self._in_flight):
                try:
                    batch = self._at_service(partial(self._status, sent))
                except UnansweredError as problem:
                    if problem.kind == "fatal":
                        raise OutageError(f"{self.settings.server} refuses to answer: {problem}") from None
                    outage = self._outage(problem, outage + wait)
                    wait = max(wait, problem.retry_after or 0)
                    continue
                outage = 0.0
                if batch is not None and not batch.ended:
                    sent.progress = (
                        f"batch {batch.id} {batch.status}: {batch.done:,} of {batch.total or len(sent.calls):,}"
                    )
                    continue
                if batch is not None:
                    yield from self._results_of(batch, sent)
                self._remove(sent)

    def _outage(self, problem: UnansweredError, seconds: float) -> float:
        """Return the duration of the outage of the batch service; raises OutageError above the timeout."""
        if max(seconds, problem.retry_after or 0) > self.settings.total_timeout:
            raise OutageError(f"{self.settings.server} has not answered for {seconds:,.0f} s: {problem}")
        log.debug("%s", problem)
        return seconds

    def _remove(self, sent: SentBatch) -> None:
        """Remove a batch; its missing answers are requested again."""
        self._notes.end(sent)
        self._in_flight.remove(sent)
        self.spending.reserved.remove(sent.price)

    # ---------------------------------------------------------------------------------------------- sending

    def _send(self) -> bool:
        """Send a batch of the pending requests that fit into one file and the budget; return True if there were any."""
        sent, lines = self._file()
        if not sent.calls:
            return False
        self._notes.begin(sent)
        self._in_flight.append(sent)
        self._reserve(sent)
        file = self._until_answered(lambda service: service.upload(lines, sent.mark))
        batch = self._until_answered(partial(self._create, file, sent))
        sent.batch = batch.id
        self._notes.name(sent)
        self.sent += 1
        sent.progress = f"batch {batch.id} sent: {len(sent.calls):,} requests"
        log.info("batch %s: %s requests sent to %s", batch.id, f"{len(sent.calls):,}", self.settings.server)
        return True

    def _file(self) -> tuple[SentBatch, bytes]:
        """Return a new batch of pending requests, and its file."""
        capabilities, service = self._capabilities, self._service
        sent, lines = SentBatch(uuid4().hex, None, {}), list[bytes]()
        size, price = 0, 0.0
        for name, call in self._new_calls():
            price += self._max_price(call)
            if not self.spending.allows(price):
                if not lines and not self._in_flight:
                    self._attempts.end_over_budget(f"{self.spending.spent:.4f} USD")
                break
            settings = request_body(self.settings, capabilities, call)
            body = service.body(call.request.prompt, capabilities.system_role, settings)
            line = to_line(name, service.path, body)
            size += len(line)
            if len(lines) == self._max_requests or size > MAX_BYTES:
                break
            sent.calls[name] = call
            lines.append(line)
        return sent, b"".join(lines)

    def _new_calls(self) -> Iterator[tuple[str, Call]]:
        """Yield the calls for the answers that are neither received nor in flight, with the names of their lines."""
        taken = {item: set(received) for item, received in self._received.items()}
        for sent in self._in_flight:
            for call in sent.calls.values():
                taken[call.request.item].update((call.temperature, trial) for trial in call.trials)
        for name, request in self._pending.items():
            for call in calls(replace(request, cached=frozenset(taken[request.item])), self._capabilities.choices):
                yield line_name(name, call), call._replace(request=request)

    def _max_tokens(self, call: Call) -> tuple[int, int]:
        about = prompt_tokens(call.request.prompt, self.settings.chat)
        maximum = int(about * self._attempts.token_ratio) + 1
        return maximum, len(call.trials) * self.settings.reply_tokens(call.request.max_new_tokens)

    def _max_price(self, call: Call) -> float:
        return self.spending.price(*self._max_tokens(call))

    async def _create(self, file: str, sent: SentBatch, service: BatchService) -> Batch:
        """Create a batch, or find by its mark one that was created without a response."""
        if sent.batch == "":
            batch = await service.find(sent.mark)
            if batch is not None:
                return batch
        sent.batch = ""  # it may exist from now on
        return await service.create(file, sent.mark)

    async def _status(self, sent: SentBatch, service: BatchService) -> Batch | None:
        """Return the status of a batch; None if the service has none: it was never created, or was removed."""
        try:
            batch = await (service.look(sent.batch) if sent.batch else service.find(sent.mark))
        except UnansweredError as problem:
            if problem.status != NOT_FOUND:
                raise
            batch = None
        if batch is not None:
            sent.batch = batch.id
        elif sent.batch:
            log.warning("%s no longer has batch %s: its requests are sent again", self.settings.server, sent.batch)
        return batch

    # -------------------------------------------------------------------------------------------- collecting

    def _results_of(self, batch: Batch, sent: SentBatch) -> Iterator[list[Reply]]:
        """Yield the replies of a finished batch; count its missing lines."""
        if batch.status == "failed":
            self._refused(batch)
            return
        self._hold = 0
        self._max_requests = MAX_REQUESTS
        left, broken = dict(sent.calls), 0
        replies: list[Reply] = []
        for result in self._results(batch):
            if result is None:
                broken += 1
            elif (call := left.pop(result.name, None)) is not None:
                replies += self._replies(call, result.outcome)
            if len(replies) >= CHUNK:
                yield replies
                replies = []
        for call in left.values():
            if batch.status == "completed":
                self._attempts.limiter.use(*self._max_tokens(call))  # the service may bill it
            replies += self._failed_call(call, UnansweredError("lost", "the batch has no result"))
        if broken:
            log.warning("batch %s: %d unreadable lines", batch.id, broken)
        results, requested = len(sent.calls) - len(left), len(sent.calls)
        log.info(
            "batch %s %s: %s of %s requests have a result", batch.id, batch.status, f"{results:,}", f"{requested:,}"
        )
        yield replies

    def _results(self, batch: Batch) -> Iterator[BatchResult | None]:
        """Yield the results in the files of a batch; None for a broken line."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            for file in batch.files:
                if self._until_answered(partial(self._download, file, path)):
                    yield from results_in(path, self._service)

    async def _download(self, file: str, path: Path, service: BatchService) -> bool:
        """Download a file of a batch; return False if the service has removed it."""
        try:
            await service.download(file, path)
        except UnansweredError as problem:
            if problem.status != NOT_FOUND:
                raise
            log.warning("%s has removed file %s: its requests are sent again", self.settings.server, file)
            return False
        return True

    def _replies(self, call: Call, response: ServiceResponse | UnansweredError) -> list[Reply]:
        """Return the replies in the response to a call of a batch that are still pending."""
        if isinstance(response, UnansweredError):
            return self._failed_call(call, response)
        about, maximum = self._max_tokens(call)
        more = self._attempts.token_ratio
        self._attempts.token_ratio = max(more, more * response.prompt_tokens / about)
        self._attempts.limiter.use(
            response.prompt_tokens or about, response.completion_tokens or maximum, response.cached_tokens or 0
        )
        needed = min(call.request.min_logprobs, self._capabilities.top_logprobs)
        try:
            return self._new_replies(call, self._intake.completions(call, response, needed))
        except UnansweredError as problem:
            return self._failed_call(call, problem)

    def _new_replies(self, call: Call, results: list[Completion]) -> list[Reply]:
        received = self._received[call.request.item]
        new = [one for one in results if (one.temperature, one.trial) not in received]
        received.update((one.temperature, one.trial) for one in new)
        return [self._intake.reply(call.request, new)] if new else []

    def _failed_call(self, call: Call, problem: UnansweredError) -> list[Reply]:
        """Record a call of a batch without an answer: it is requested again, or gets its own outcome."""
        if problem.kind == "fatal":
            self._attempts.end(f"{self.settings.server} refuses to answer: {problem}")
            return []
        attempt = call.request.item, (call.temperature, call.trials[0])
        self._tries[attempt] += 1
        if problem.kind in AGAIN and self._tries[attempt] <= self.settings.retries:
            self._attempts.repeated += 1
            return []
        outcome = self._intake.failure(call.request, problem)
        replies = self._new_replies(call, [unanswered(call, trial, outcome) for trial in call.trials])
        if outcome == "error":
            self._intake.check_totals(len(self._intake.answered), len(self._intake.failed), problem)
        return replies

    def _refused(self, batch: Batch) -> None:
        """Send smaller batch files later if the service has too many tokens in its queue; else end the run."""
        reasons = "; ".join(dict.fromkeys(message for _, message in batch.failures)) or "no reason given"
        self._hold += 1
        if any(code == "token_limit_exceeded" for code, _ in batch.failures) and self._hold <= self.settings.retries:
            self._max_requests = max(1, min(self._max_requests, batch.total or MAX_REQUESTS) // 2)
            log.warning("batch %s: %s; its requests are sent again in smaller files", batch.id, reasons)
            time.sleep(min(self._poll_seconds, self._poll_seconds / POLL_RATIO * 2**self._hold))
            return
        self._attempts.end(f"{self.settings.server} refuses batch {batch.id}: {reasons}")

    # ---------------------------------------------------------------------------------- the service, and the store

    def _at_service(self, ask: Callable[[BatchService], Awaitable[Result]]) -> Result:
        """Return the result of a call of the batch service; raises UnansweredError."""

        async def within() -> Result:
            async with self._connect() as service:
                return await ask(BatchService(service))

        return run_sync(within)

    def _until_answered(self, ask: Callable[[BatchService], Awaitable[Result]]) -> Result:
        """Return the result of a call of the batch service after retries; raises OutageError if they are used up."""
        outage, shortest = 0.0, self._poll_seconds / POLL_RATIO
        for attempt in range(self.settings.retries + 1):
            try:
                return self._at_service(ask)
            except UnansweredError as problem:
                last = problem
                if problem.kind not in AGAIN:
                    break
                wait = min(backoff(attempt, problem.retry_after), max(shortest, problem.retry_after or 0))
                outage = self._outage(problem, outage + wait)
                time.sleep(wait)
        raise OutageError(
            f"a request to the batch service of {self.settings.server} failed: {last}; "
            "the answers so far are in the store"
        )


def _in_words(batches: Sequence[SentBatch]) -> str:
    ids = [sent.batch or "without an id" for sent in batches]
    return f"{'batch' if len(ids) == 1 else 'batches'} {', '.join(ids)} {'is' if len(ids) == 1 else 'are'} in progress"
