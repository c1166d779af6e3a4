"""Retries of requests to a service: in a run, until it ends; in a probe, within one timeout for all."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from robust_eval.error import OutageError, UserError
from robust_eval.model.served.limits.rate_limiter import EndedError, OverBudgetError, RateLimiter
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.service import AGAIN, ServiceResponse, UnansweredError

Result = TypeVar("Result")
FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 60.0
"""Maximum back-off, in seconds, before the first retry and before any retry."""
_queued: ContextVar[float] = ContextVar("queued", default=0.0)
"""Seconds for which a task has waited for permits."""


class Attempts:
    """Attempts at the requests of one run, with permits, timeouts and retries.

    ``ended`` is the reason why the run has ended, None before; ``repeated`` the number of retries; ``token_ratio`` the
    largest ratio so far of a prompt's tokens to their estimate.
    """

    def __init__(self, settings: ServiceSettings, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.ended: UserError | None = None
        self.repeated = 0
        self.token_ratio = 1.5
        self._settings = settings
        self._idle: set[asyncio.Task[Any]] = set()  # tasks that wait for a permit or a retry

    async def until_answered(self, once: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of a request after retries; raises UnansweredError after the last one or if a retry is
        useless, and EndedError if the run ends before. The wait for permits does not count towards the time limit.
        """
        attempt, queued, began = 0, _queued.get(), time.monotonic()
        while True:
            if self.ended:
                raise EndedError(str(self.ended))
            try:
                return await once()
            except UnansweredError as problem:
                if problem.kind == "fatal":
                    self.end(f"{self._settings.server} refuses to answer: {problem}")
                if self.ended and problem.kind != "filtered":
                    raise EndedError(str(self.ended)) from None
                wait = backoff(attempt, problem.retry_after, problem.longest_wait)
                seconds = time.monotonic() - began - (_queued.get() - queued) + wait
                late = not self._settings.batch and seconds > self._settings.total_timeout
                if problem.kind not in AGAIN or attempt >= self._settings.retries or late:
                    raise
            attempt += 1
            self.repeated += 1
            with self._interruptible():
                await asyncio.sleep(wait)

    async def in_turn(
        self, about: int, completion_tokens: int, ask: Callable[[], Coroutine[Any, Any, ServiceResponse]]
    ) -> ServiceResponse:
        """Send a request of ``about`` (estimated) prompt tokens once it has a permit; raises UnansweredError, or
        EndedError if the run ends before.
        """
        maximum, requested_at = int(about * self.token_ratio) + 1, time.monotonic()
        async with AsyncExitStack() as stack:
            try:
                with self._interruptible():
                    permit = await stack.enter_async_context(self.limiter.permit(maximum, completion_tokens))
            except OverBudgetError as spent:
                self.end_over_budget(str(spent))
            except EndedError as reason:
                self.end_here(OutageError(str(reason)))
            _queued.set(_queued.get() + time.monotonic() - requested_at)
            if self.ended:
                raise EndedError(str(self.ended))
            try:
                response = await self.in_time(ask(), self._settings.answer_timeout)
            except UnansweredError as problem:
                if (problem.retry_after or 0) > self._settings.total_timeout:
                    self.end(f"{self._settings.server} requests a back-off of {problem.retry_after:.0f} s: {problem}")
                elif problem.kind == "busy":
                    permit.refused(problem.retry_after)
                elif problem.kind in ("lost", "garbled") and problem.status is None and problem.sent:
                    self.limiter.use(maximum, completion_tokens)  # the server may have answered, and bills it
                raise
            permit.succeeded()
            self.token_ratio = max(self.token_ratio, response.prompt_tokens / about)
            used = response.prompt_tokens or about, response.completion_tokens or completion_tokens
            self.limiter.use(*used, response.cached_tokens or 0)  # some servers do not count
            permit.used(sum(used))
            return response

    async def in_time(self, request: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """Return the result of an attempt within so many seconds (default: its timeout); raises UnansweredError."""
        seconds = self._settings.timeout if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError:
            raise UnansweredError("lost", f"no answer within {seconds:.3g} s") from None

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Cancel the wait in this context when the run ends."""
        if self.ended:
            raise EndedError(str(self.ended))
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            yield
        finally:
            self._idle.discard(task)

    def end_over_budget(self, spent: str) -> None:
        """End the run, whose budget is used up; ``spent`` is the cost so far."""
        self.end(
            f"the next request could exceed model.budget={self._settings.budget:g} USD ({spent} so far): raise "
            "model.budget and rerun the command to resume"
        )

    def end(self, reason: str) -> None:
        """End the run, also in other processes with the same service; a later run resumes it."""
        self.end_here(OutageError(f"{reason}; the answers so far are in the store"))
        self.limiter.end(str(self.ended))

    def end_here(self, reason: UserError) -> None:
        """End the run in this process: send no request, and cancel those that wait for a permit or a retry."""
        self.ended = self.ended or reason
        for task in self._idle:
            task.cancel()


log = logging.getLogger(__name__)

PROBE_RETRIES = 3
"""Maximum number of retries of a probe's request: a wrong address should be reported soon."""
MIN_PATIENCE = 40.0
"""Minimum time limit, in seconds, of a probe's failed requests and back-offs; otherwise a third of ``timeout``."""
MIN_TIMEOUT = 10.0
"""Minimum timeout of a probe's request, in seconds."""


class Patience:
    """Retries of the requests of a probe, at most :data:`PROBE_RETRIES` each, within one time limit for all of them.

    Only failed requests and back-offs count towards the limit.
    """

    def __init__(self, settings: ServiceSettings, attempts: Attempts) -> None:
        self._settings = settings
        self._retries = min(settings.retries, PROBE_RETRIES)
        self._attempts = attempts
        self._limit = max(MIN_PATIENCE, settings.timeout / 3)
        self._spent = 0.0

    async def answer(self, ask: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of a probe's request after retries, which are logged; raises UnansweredError."""
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                seconds = min(self._settings.timeout, max(self._limit - self._spent, MIN_TIMEOUT))
                return await self._attempts.in_time(ask(), seconds)
            except UnansweredError as problem:
                wait = backoff(attempt, problem.retry_after, problem.longest_wait)
                if problem.kind != "busy":
                    self._spent += time.monotonic() - began + wait
                if problem.kind not in AGAIN or attempt >= self._retries:
                    raise
                late = f"the server requests a back-off of {wait:.0f} s" if wait > self._settings.timeout else ""
                if not late and self._spent >= self._limit:
                    late = f"for a longer wait set model.timeout above {3 * self._limit:.0f}"
                if late:
                    reason = f"{problem.reason} ({late})"
                    raise UnansweredError(problem.kind, reason, problem.retry_after, problem.status) from None
                log.info("%s: a probe request is retried in %.0f s: %s", self._settings.server, wait, problem)
            attempt += 1
            await asyncio.sleep(wait)


_jitter = random.Random()


def backoff(attempt: int, retry_after: float | None, longest: float = math.inf) -> float:
    """Return the back-off in seconds before a retry.

    The back-off is exponential with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
    2015): uniform between 0 and a bound that doubles with every attempt, from number 0, up to ``longest``. It is at
    least the server's ``retry_after`` with a little jitter, so that not all clients return at the same time.
    """
    seconds = _jitter.uniform(0, min(longest, LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** min(attempt, 10)))
    if retry_after is None:
        return seconds
    return max(seconds, retry_after + _jitter.uniform(0, FIRST_BACKOFF))
