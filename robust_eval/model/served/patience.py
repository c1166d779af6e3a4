"""Requests that find out what a server can do, with one limit of time for all that do not bring an answer."""

import asyncio
import logging
import math
import random
import time
from asyncio import sleep
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from robust_eval.model.served.pacing import backoff
from robust_eval.model.served.service import AGAIN, UnansweredError
from robust_eval.model.served.service_settings import ServiceSettings

log = logging.getLogger(__name__)

Got = TypeVar("Got")

LEAST = 40.0
"""Seconds without an answer that are borne in all, unless a third of ``request_seconds`` is more."""
LAST = 10.0
"""Seconds that a request may take however much of them is spent."""
SAID_AFTER = 5.0
"""Seconds after which it is said what is waited for."""
SAID_AGAIN = 60.0
"""Seconds after which it is said again."""


class InTime(Protocol):
    """Waits for a request, at most so many seconds; raises UnansweredError."""

    def __call__(self, asked: Coroutine[Any, Any, Got], most: float) -> Coroutine[Any, Any, Got]: ...


class Patience:
    """Repeats requests that brought no answer, at most ``retries`` times each, until all together have cost the time
    that is borne. A request that the server answers costs none, however long it takes.
    """

    def __init__(self, settings: ServiceSettings, retries: int, in_time: InTime) -> None:
        self._settings = settings
        self._retries = min(settings.retries, retries)
        self._in_time = in_time
        self._most = max(LEAST, settings.request_seconds / 3)
        self._spent = 0.0
        self._answered = 0
        self._began = self._said_at = -math.inf
        self._last: UnansweredError | None = None

    async def answer(self, ask: Callable[[], Coroutine[Any, Any, Got]]) -> Got:
        """Return what a request brings; raises UnansweredError. A long wait is logged, and logged again."""
        self._began, self._last = time.monotonic(), None
        notice = asyncio.create_task(self._notice())
        try:
            found = await self._repeated(ask)
        finally:
            notice.cancel()
        self._answered += 1
        return found

    async def _repeated(self, ask: Callable[[], Coroutine[Any, Any, Got]]) -> Got:
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                return await self._in_time(ask(), max(self._most - self._spent, LAST))
            except UnansweredError as problem:
                wait = backoff(attempt, problem.retry_after, random.Random(attempt), problem.longest_wait)
                if problem.kind != "busy":
                    self._spent += time.monotonic() - began + wait
                if problem.kind not in AGAIN or attempt >= self._retries:
                    raise
                if wait > self._settings.request_seconds:
                    raise self._ended(problem, f"it asks to come back in {wait:.0f} s") from None
                if self._spent >= self._most:
                    raise self._ended(
                        problem, f"a model.request_seconds above {3 * self._most:.0f} waits longer"
                    ) from None
                self._last = problem
            attempt += 1
            await sleep(wait)

    def _ended(self, problem: UnansweredError, why: str) -> UnansweredError:
        return UnansweredError(problem.kind, f"{problem.reason} ({why})", problem.retry_after, problem.status)

    async def _notice(self) -> None:
        """Log what is waited for, as long as it is; once in :data:`SAID_AGAIN` seconds of the whole probe."""
        await sleep(max(SAID_AFTER, self._said_at + SAID_AGAIN - self._began))
        while True:
            self._said_at = time.monotonic()
            most = min(self._settings.request_seconds, self._most)
            log.info(
                "%s has not answered for %.0f s%s: it is asked what it can do%s, and waited for up to %.0f s",
                *(self._settings.server, self._said_at - self._began, f" ({self._last})" if self._last else ""),
                f", has answered {self._answered} requests" if self._answered else "",
                self._settings.answer_seconds if self._last and self._last.kind == "busy" else most,
            )
            await sleep(SAID_AGAIN)
