"""Batches: files of requests that a service answers within a day.

Before a batch is sent, the store gets the batches of each request and the id of each batch. So a killed run finds them
again, also a batch whose id was never received: it has a mark.
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
from robust_eval.model.base import Call, Completion, KeyValueStore, Reply, Request, TrialKey
from robust_eval.model.served.background import run_sync
from robust_eval.model.served.completions import Intake, by_prefix, request_body, unanswered
from robust_eval.model.served.limits.rate_limiter import backoff
from robust_eval.model.served.limits.retries import Attempts
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.batches import (
    MAX_BYTES,
    MAX_REQUESTS,
    Batch,
    BatchNotes,
    BatchResult,
    BatchService,
    PendingRequest,
    SentBatch,
    conditions_of,
    line_name,
    parse_line_name,
    request_name,
    results_in,
    to_line,
)
from robust_eval.model.served.transport.service import AGAIN, Service, UnansweredError
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
    _max_requests = MAX_REQUESTS
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

    def complete(self, requests: Sequence[Request], capabilities: Capabilities) -> Iterator[list[Reply]]:
        """Yield the replies to requests. Batches in flight outlive an early end, and the same requests find them."""
        self._capabilities = capabilities
        pending = self._pending(requests)
        under_way = self._under_way = self._resumed(pending)
        self._tries: Counter[tuple[str, TrialKey]] = Counter()
        try:
            yield from self._all(pending, under_way)
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
        cancelled = []
        for sent in self._resumed(self._pending(requests)):
            batch = self._repeated_until(partial(self._status, sent))
            if batch is not None and not batch.ended:
                batch = self._repeated_until(lambda service, batch=batch: service.cancel(batch.id))  # type: ignore[misc]
                cancelled.append(
                    f"batch {batch.id}: {batch.status}, {batch.done:,} of {batch.total:,} requests were done"
                )
        return cancelled

    def progress(self) -> list[str]:
        """Return the progress of each batch under way, for the progress bar."""
        return [sent.progress for sent in self._under_way]

    @cached_property
    def _reader(self) -> Service:
        """Writer of requests and parser of responses, never connected; it takes a hundredth of a second to make."""
        return self.settings.openai_service(self._key)

    def _pending(self, requests: Sequence[Request]) -> dict[str, PendingRequest]:
        identity = self.settings.identity()
        return {
            request_name(identity, each): PendingRequest(each, set(each.cached))
            for each in sorted(requests, key=by_prefix)
        }

    # ------------------------------------------------------------------------------------------------ the rounds

    def _all(self, pending: dict[str, PendingRequest], under_way: list[SentBatch]) -> Iterator[list[Reply]]:
        """Yield the answers of batches, until all requests are answered or the run ends."""
        shortest = self._poll_seconds / POLL_RATIO
        wait = outage = 0.0
        while True:
            if not self._hold or not under_way:
                while not self._attempts.ended and self._send(pending, under_way):
                    wait = shortest
            if not under_way:
                return
            yield []  # the progress bar shows the status
            time.sleep(wait)
            wait = min(max(wait, shortest) * BACKOFF_FACTOR, self._poll_seconds)
            for sent in list(under_way):
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
                        f"batch {batch.id} {batch.status}: {batch.done:,} of {batch.total or len(sent.names):,}"
                    )
                    continue
                if batch is not None:
                    yield from self._results_of(batch, sent, pending)
                self._end_of(sent, under_way, pending)

    def _outage(self, problem: UnansweredError, seconds: float) -> float:
        """Return the duration of the outage; raises OutageError above the timeout."""
        if max(seconds, problem.retry_after or 0) > self.settings.total_timeout:
            raise OutageError(f"{self.settings.server} has not answered for {seconds:,.0f} s: {problem}")
        log.debug("%s", problem)
        return seconds

    def _end_of(self, sent: SentBatch, under_way: list[SentBatch], pending: dict[str, PendingRequest]) -> None:
        """Remove a batch; its missing answers are requested again."""
        self._notes.end(sent)
        under_way.remove(sent)
        self.spending.reserved.remove(sent.price)
        for name, conditions in conditions_of(sent.names).items():
            if name in pending:
                pending[name].in_flight -= conditions

    # ---------------------------------------------------------------------------------------------- sending

    def _send(self, pending: dict[str, PendingRequest], under_way: list[SentBatch]) -> bool:
        """Send the pending requests that fit into one file and the budget; return whether there were any."""
        names, lines, price = self._file(pending, bool(under_way))
        if not names:
            return False
        sent = SentBatch(uuid4().hex, None, names, price)
        self._notes.begin(sent)
        self._under_way = under_way
        under_way.append(sent)
        self.spending.reserved.append(price)
        for name, conditions in conditions_of(names).items():
            pending[name].in_flight |= conditions
        file = self._repeated_until(lambda service: service.upload(lines, sent.mark))
        batch = self._repeated_until(partial(self._made, file, sent))
        sent.batch = batch.id
        self._notes.name(sent)
        self.sent += 1
        sent.progress = f"batch {batch.id} sent: {len(names):,} requests"
        log.info("batch %s: %s requests sent to %s", batch.id, f"{len(names):,}", self.settings.server)
        return True

    def _file(self, pending: dict[str, PendingRequest], has_batches: bool) -> tuple[list[str], bytes, float]:
        """Return the names of the lines of a new file, the file, and its maximum cost."""
        capabilities = self._capabilities
        names: list[str] = []
        lines: list[bytes] = []
        size, whole = 0, 0.0
        service = self._reader
        for name, each in pending.items():
            for call in each.calls(capabilities.choices):
                price = self._max_price(call)
                if not self.spending.allows(whole + price):
                    if not names and not has_batches:
                        self._attempts.end_over_budget(f"{self.spending.spent:.4f} USD")
                    return names, b"".join(lines), whole
                body = service.body(
                    call.request.prompt, capabilities.system_role, request_body(self.settings, capabilities, call)
                )
                line = to_line(line_name(name, call), service.path, body)
                if len(names) == self._max_requests or size + len(line) > MAX_BYTES:
                    return names, b"".join(lines), whole
                names.append(line_name(name, call))
                lines.append(line)
                size, whole = size + len(line), whole + price
        return names, b"".join(lines), whole

    def _max_tokens(self, call: Call) -> tuple[int, int]:
        about = prompt_tokens(call.request.prompt, self.settings.prompt_style == "chat")
        maximum = int(about * self._attempts.more_tokens) + 1
        return maximum, len(call.trials) * self.settings.reply_tokens(call.request.max_new_tokens)

    def _max_price(self, call: Call) -> float:
        return self.spending.price(*self._max_tokens(call))

    async def _made(self, file: str, sent: SentBatch, service: BatchService) -> Batch:
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
            log.warning("batch %s is not known at %s any more: it is asked again", sent.batch, self.settings.server)
        return batch

    # -------------------------------------------------------------------------------------------- collecting

    def _results_of(self, batch: Batch, sent: SentBatch, pending: dict[str, PendingRequest]) -> Iterator[list[Reply]]:
        """Yield the replies of a finished batch; count its missing lines."""
        if batch.status == "failed":
            self._refused(batch)
            return
        self._hold = 0
        self._max_requests = MAX_REQUESTS
        left, broken, unknown = set(sent.names), 0, -sent.other_lines
        replies: list[Reply] = []
        for result in self._results(batch):
            if result is None:
                broken += 1
            elif result.name not in left:
                unknown += 1
            else:
                left.discard(result.name)
                replies += self._replies(result, pending)
            if len(replies) >= CHUNK:
                yield replies
                replies = []
        for name in left:
            billed = batch.status == "completed"
            replies += self._failed_call(name, UnansweredError("lost", "the batch has no result"), pending, billed)
        if broken or unknown > 0:
            log.warning("batch %s: %d lines are broken, %d are unknown or double", batch.id, broken, max(0, unknown))
        results, requested = len(sent.names) - len(left), len(sent.names)
        log.info(
            "batch %s %s: %s of %s requests have a result", batch.id, batch.status, f"{results:,}", f"{requested:,}"
        )
        yield replies

    def _results(self, batch: Batch) -> Iterator[BatchResult | None]:
        """Yield the results in the files of a batch; None for a broken line."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            for file in batch.files:
                if self._repeated_until(partial(self._fetched, file, path)):
                    yield from results_in(path, self._reader)

    async def _fetched(self, file: str, path: Path, service: BatchService) -> bool:
        """Download a file of the service; return False if the service has removed it."""
        try:
            await service.download(file, path)
        except UnansweredError as problem:
            if problem.status != NOT_FOUND:
                raise
            log.warning("%s has removed %s: what was in it is asked again", self.settings.server, file)
            return False
        return True

    def _replies(self, result: BatchResult, pending: dict[str, PendingRequest]) -> list[Reply]:
        """Return the replies in a line of results that are still pending."""
        call = self._call(result.name, pending)
        if call is None:
            return []
        if isinstance(result.outcome, UnansweredError):
            return self._failed_call(result.name, result.outcome, pending, billed=False)
        response, request = result.outcome, call.request
        about, maximum = self._max_tokens(call)
        more = self._attempts.more_tokens
        self._attempts.more_tokens = max(more, more * response.prompt_tokens / about)
        self._attempts.limiter.use(
            response.prompt_tokens or about, response.completion_tokens or maximum, response.cached_tokens or 0
        )
        try:
            results = self._intake.completions(
                call, response, min(request.min_logprobs, self._capabilities.top_logprobs)
            )
        except UnansweredError as problem:
            return self._failed_call(result.name, problem, pending, billed=False)
        return self._new_replies(call, results, pending)

    def _new_replies(self, call: Call, results: list[Completion], pending: dict[str, PendingRequest]) -> list[Reply]:
        each = pending[request_name(self.settings.identity(), call.request)]
        new = [one for one in results if (one.temperature, one.trial) not in each.received]
        if not new:
            return []
        each.received |= {(one.temperature, one.trial) for one in new}
        return [self._intake.reply(call.request, new)]

    def _failed_call(
        self, name: str, problem: UnansweredError, pending: dict[str, PendingRequest], billed: bool
    ) -> list[Reply]:
        """Record a line without an answer: it is requested again, or gets its own outcome."""
        call = self._call(name, pending)
        if call is None:
            return []
        if billed:
            self._attempts.limiter.use(*self._max_tokens(call))  # the service may bill it
        if problem.kind == "fatal":
            self._attempts.end(f"{self.settings.server} refuses to answer: {problem}")
            return []
        attempt = (name.partition(":")[0], (call.temperature, call.trials[0]))
        self._tries[attempt] += 1
        if problem.kind in AGAIN and self._tries[attempt] <= self.settings.retries:
            self._attempts.repeated += 1
            return []
        outcome = self._intake.failure(call.request, problem)
        replies = self._new_replies(call, [unanswered(call, trial, outcome) for trial in call.trials], pending)
        if outcome == "error":
            self._intake.check_totals(len(self._intake.answered), len(self._intake.failed), problem)
        return replies

    def _call(self, name: str, pending: dict[str, PendingRequest]) -> Call | None:
        """Return the call of a line; None if it is of no pending request."""
        one = parse_line_name(name)
        if one is None or one.request not in pending:
            return None
        return Call(pending[one.request].request, one.temperature, one.trials)

    def _refused(self, batch: Batch) -> None:
        """Send smaller files later if the service has too many tokens in its queue; else end the run."""
        cancelled = "; ".join(dict.fromkeys(message for _, message in batch.failures)) or "it does not say why"
        self._hold += 1
        if any(code == "token_limit_exceeded" for code, _ in batch.failures) and self._hold <= self.settings.retries:
            self._max_requests = max(1, min(self._max_requests, batch.total or MAX_REQUESTS) // 2)
            log.warning("batch %s: %s; it is sent again in smaller files", batch.id, cancelled)
            time.sleep(min(self._poll_seconds, self._poll_seconds / POLL_RATIO * 2**self._hold))
            return
        self._attempts.end(f"{self.settings.server} refuses batch {batch.id}: {cancelled}")

    # ---------------------------------------------------------------------------------- the service, and the store

    def _at_service(self, ask: Callable[[BatchService], Awaitable[Result]]) -> Result:
        """Return the result of a call of the service; raises UnansweredError."""

        async def within() -> Result:
            async with self.settings.openai_service(self._key) as service:
                return await ask(BatchService(service))

        return run_sync(within)

    def _repeated_until(self, ask: Callable[[BatchService], Awaitable[Result]]) -> Result:
        """Return the result of a call of the service after retries; raises OutageError if they are used up."""
        generator, outage, shortest = random.Random(0), 0.0, self._poll_seconds / POLL_RATIO
        for attempt in range(self.settings.retries + 1):
            try:
                return self._at_service(ask)
            except UnansweredError as problem:
                last = problem
                if problem.kind not in AGAIN:
                    break
                wait = min(backoff(attempt, problem.retry_after, generator), max(shortest, problem.retry_after or 0))
                outage = self._outage(problem, outage + wait)
                time.sleep(wait)
        raise OutageError(f"{self.settings.server} takes no batch: {last}; what was answered is in the store")

    def _resumed(self, pending: dict[str, PendingRequest]) -> list[SentBatch]:
        """Return the batches in flight with pending requests."""
        resumed = [self._taken_up(sent, pending) for sent in self._notes.under_way(pending)]
        if resumed:
            log.info("%s: its answers are waited for", _in_words(resumed))
        return resumed

    def _taken_up(self, sent: SentBatch, pending: dict[str, PendingRequest]) -> SentBatch:
        for name, conditions in conditions_of(sent.names).items():
            pending[name].in_flight |= conditions
        sent.price = sum(self._max_price(call) for name in sent.names if (call := self._call(name, pending)))
        self.spending.reserved.append(sent.price)
        return sent


def _in_words(under_way: Sequence[SentBatch]) -> str:
    ids = [sent.batch or "without an id" for sent in under_way]
    return f"{'batch' if len(ids) == 1 else 'batches'} {', '.join(ids)} {'goes' if len(ids) == 1 else 'go'} on"
