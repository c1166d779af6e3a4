"""Requests that find out what a server can do, with one limit of time for all that do not bring an answer."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from robust_eval.model.served.pacing import backoff
from robust_eval.model.served.service import Answered, UnansweredError
from robust_eval.model.served.service_settings import ServiceSettings

log = logging.getLogger(__name__)

LEAST = 40.0
"""Seconds without an answer that are borne in all, unless a third of ``request_seconds`` is more."""
LAST = 10.0
"""Seconds that a request may take however much of them is spent."""
SAID_AFTER = 5.0
"""Seconds after which it is said what is waited for."""


class InTime(Protocol):
    """Waits for a request, at most so many seconds; raises UnansweredError."""

    def __call__(self, asked: Coroutine[Any, Any, Answered], most: float) -> Coroutine[Any, Any, Answered]: ...


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
        self._said = False

    async def answer(self, ask: Callable[[], Coroutine[Any, Any, Answered]]) -> Answered:
        """Return what a request brings; raises UnansweredError."""
        attempt = 0
        while True:
            began = time.monotonic()
            notice = asyncio.get_running_loop().call_later(SAID_AFTER, self._say)
            try:
                return await self._in_time(ask(), max(self._most - self._spent, LAST))
            except UnansweredError as problem:
                wait = backoff(attempt, problem.retry_after, random.Random(attempt))
                if problem.kind == "lost":
                    self._spent += time.monotonic() - began + wait
                if problem.kind not in ("busy", "lost") or attempt >= self._retries:
                    raise
                if wait > self._settings.request_seconds:
                    raise self._ended(problem, f"it asks to come back in {wait:.0f} s") from None
                if self._spent >= self._most:
                    raise self._ended(
                        problem, f"a model.request_seconds above {3 * self._most:.0f} waits longer"
                    ) from None
            finally:
                notice.cancel()
            attempt += 1
            await asyncio.sleep(wait)

    def _ended(self, problem: UnansweredError, why: str) -> UnansweredError:
        return UnansweredError(problem.kind, f"{problem.reason} ({why})", problem.retry_after, problem.status)

    def _say(self) -> None:
        if not self._said:
            self._said = True
            log.info(
                "%s has not answered for %.0f s: it is asked what it can do, and waited for up to %.0f s",
                *(self._settings.server, SAID_AFTER, min(self._settings.request_seconds, self._most)),
            )
