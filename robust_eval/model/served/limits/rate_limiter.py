"""Rate limiter of the requests to a server: concurrency, rate limits, pauses, and the budget."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.workload import Spending

FIRST_WINDOW = 4
"""Initial number of concurrent requests."""
MAX_BATCHED = 10_000
"""Number of concurrent requests that a provider collects into batches."""
HOLD = 32
"""Number of rounds for which a window keeps the last accepted size before it grows."""
CUBIC = 0.4
"""Growth of a window in requests per cubed round: the constant C of RFC 9438, §5, with rounds for seconds."""
BURST = 1.0
"""Seconds of a rate limit that may be used in a burst."""


class Pace:
    """Queue of a rate limiter that starts requests in their order; for one event loop.

    The server's limit is found by congestion control. A window bounds the concurrent requests. It doubles every round
    (a window's worth of answers) until the first refusal. A refusal halves it (at least 1), once for all concurrent
    requests. It then doubles again, up to the number of requests in flight at the refused one's start, stays there for
    ``HOLD`` rounds, and rises by ``CUBIC`` times the cube of the rounds since. After the refusal of a request that was
    alone the limit is unknown, and the window doubles as at first. Only requests that started after the last refusal
    count, and an answer only if the window was full since its request started.

    This is multiplicative decrease with slow start (Chiu & Jain 1989; RFC 5681). Additive increase by one a round would
    use three quarters of a server, between half of its limit and all. So the window moves like that of CUBIC (RFC
    9438): it returns fast to the limit, stays, and rises along a cubic curve. Unlike a network path, a server has a
    sharp limit and no queue to drain, so the return may double. Rounds stand for seconds, so that a refusal costs the
    same share of the server whether answers take a tenth of a second or a minute.

    Rates are limited by the generic cell rate algorithm (ITU-T I.371): evenly, with a burst of ``BURST`` seconds or of
    one request. A request with more tokens starts once no debt is left, and the next ones wait longer.

    ``max_concurrency`` is the upper bound of the window, ``clock`` the time in seconds. A rate limit of None is none.
    ValueError for a bound below which nothing could start.
    """

    def __init__(
        self,
        max_concurrency: int,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float] = time.monotonic,
        first_window: int = FIRST_WINDOW,
    ) -> None:
        self._window = _Window(max_concurrency, first_window)
        self._requests = _Quota(requests_per_minute)
        self._tokens = _Quota(tokens_per_minute)
        self._clock = clock
        self._queue = asyncio.Lock()  # held by the first in line; asyncio's locks are handed over in order
        self._changed = asyncio.Event()
        self.in_flight = self.max_in_flight = self.refusals = 0  # numbers of requests
        self._resumes_at = -math.inf
        self._imposed_seconds = 0.0

    @property
    def window(self) -> int:
        """Maximum number of concurrent requests that the rate limiter allows now."""
        return self._window.size

    @property
    def paused_seconds(self) -> float:
        """Duration of the limiter's pauses, which the server imposed; overlapping ones count once."""
        return self._imposed_seconds - max(0.0, self._resumes_at - self._clock())

    @asynccontextmanager
    async def permit(self, tokens: int) -> AsyncIterator["PacedPermit"]:
        """Wait until the rate limiter lets a request of about so many tokens start, which runs in the ``with`` block.

        A task that is cancelled while it waits leaves the queue.
        """
        async with self._queue:
            while (seconds := self._seconds_until_start(tokens)) > 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), None if seconds == math.inf else seconds)
            permit = self._start(tokens)
        try:
            yield permit
        finally:
            self.in_flight -= 1
            self._changed.set()

    def _seconds_until_start(self, tokens: int) -> float:
        """Return the seconds until the rate limiter lets a request start; inf if it waits for one in flight."""
        if self.in_flight >= self.window:
            return math.inf
        starts_at = max(self._resumes_at, self._requests.starts_at(1), self._tokens.starts_at(tokens))
        return starts_at - self._clock()

    def _start(self, tokens: int) -> "PacedPermit":
        now = self._clock()
        self._requests.take(1, now)
        self._tokens.take(tokens, now)
        start = self._window.start(self.in_flight)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        return PacedPermit(self, start, tokens)


class Permit(Protocol):
    """Permit of a rate limiter for a request, which gets its outcome: at most one of ``succeeded`` and ``refused``."""

    def used(self, tokens: int) -> None:
        """Replace the estimate of the tokens of the request with this permit by their number; at most once."""

    def succeeded(self) -> None:
        """Record an answer to the permitted request."""

    def refused(self, retry_after: float | None) -> None:
        """Record that the server is overloaded (429, 503); no request gets a permit for so many seconds."""


@dataclass(frozen=True)
class PacedPermit(Permit):
    """Permit of a :class:`Pace`."""

    _pace: Pace
    _start: "_Start"
    _tokens: int

    def used(self, tokens: int) -> None:
        self._pace._tokens.take(tokens - self._tokens)
        self._pace._changed.set()

    def succeeded(self) -> None:
        self._pace._window.rise(self._start)
        self._pace._changed.set()

    def refused(self, retry_after: float | None) -> None:
        pace, now = self._pace, self._pace._clock()
        pace.refusals += 1
        pace._window.fall(self._start)
        resumes_at = max(pace._resumes_at, now + (retry_after or -math.inf))
        pace._imposed_seconds += max(0.0, resumes_at - max(pace._resumes_at, now))
        pace._resumes_at = resumes_at


class _Quota:
    """Rate limit with evenly spaced units, by the generic cell rate algorithm."""

    def __init__(self, per_minute: float | None) -> None:
        if per_minute is not None and not per_minute > 0:
            raise ValueError(f"a rate limit per minute must be above 0, not {per_minute}")
        self._seconds_each = 0.0 if per_minute is None else 60 / per_minute
        self._settled_at = -math.inf  # when no debt is left

    def starts_at(self, units: int) -> float:
        """Return the time at which the rate limit allows so many units: within a burst, or without debt."""
        return self._settled_at - max(0.0, BURST - units * self._seconds_each)

    def take(self, units: int, now: float = -math.inf) -> None:
        """Use units of the rate limit, from ``now`` on; a negative number returns them."""
        self._settled_at = max(self._settled_at, now) + units * self._seconds_each


class _Start(NamedTuple):
    """State of the limiter at a request's start: its number, the falls of the window, other requests in flight."""

    number: int
    falls: int
    in_flight: int


class _Window:
    """Window of concurrent requests that the rate limiter allows; see :class:`Pace`."""

    def __init__(self, maximum: int, first: int) -> None:
        if maximum < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {maximum}")
        self._maximum = maximum
        self._size = float(min(first, maximum))
        self._borne = float(maximum)  # up to which it doubles
        self._rounds = 0.0  # since then
        self._starts = 0
        self._last_filled = 0  # number of the last request that filled it
        self._falls = 0

    @property
    def size(self) -> int:
        return int(self._size)

    def start(self, in_flight: int) -> _Start:
        """Record the start of a request, with so many others in flight."""
        self._starts += 1
        if in_flight + 1 >= self.size:
            self._last_filled = self._starts
        return _Start(self._starts, self._falls, in_flight)

    def rise(self, start: _Start) -> None:
        """Enlarge the window after the answer to a request with this ``start``."""
        if start.falls < self._falls or start.number > self._last_filled:
            return
        if self._size < self._borne:
            self._size = min(self._size + 1, self._borne)
        else:
            self._rounds += 1 / self._size
            self._size = min(self._borne + CUBIC * max(0.0, self._rounds - HOLD) ** 3, self._maximum)

    def fall(self, start: _Start) -> None:
        """Shrink the window after the refusal of a request with this ``start``."""
        if start.falls < self._falls:
            return
        self._falls += 1
        self._size = max(1.0, self._size / 2)
        self._borne = max(self._size, float(start.in_flight or self._maximum))
        self._rounds = 0.0


class OverBudgetError(Exception):
    """Refusal of a permit: another request may exceed the budget; the message is the cost so far."""


class EndedError(Exception):
    """Refusal of a permit: the run has ended; the message is the reason."""


class RateLimiter(Protocol):
    """Rate limiter of all clients of one server, which may run in several processes."""

    def begin(self) -> None:
        """Prepare the rate limiter for the current event loop, before its first request."""

    def permit(self, prompt_tokens: int, completion_tokens: int) -> AbstractAsyncContextManager[Permit]:
        """Wait for a permit for a request of at most so many tokens; the request runs inside the ``with`` block.

        Raises OverBudgetError if the budget does not cover the request, EndedError after :meth:`end`.
        """

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        """Add the token usage of an answer; cached tokens are prompt tokens."""

    async def counted(self, answered: int, failed: int) -> tuple[int, int]:
        """Report this process's numbers of answered and failed questions to the limiter; return the totals of all."""
        return answered, failed

    def end(self, reason: str) -> None:
        """Admit no further request of another process."""
        return

    def status(self) -> str:
        """Return the rate limiter's status line: requests in flight and the cost so far."""

    def description(self) -> dict[str, Any]:
        """Return the limiter's maximum concurrency, refusals, seconds paused and cost, for the record of the run."""


class LocalRateLimiter(RateLimiter):
    """Rate limiter of one process."""

    def __init__(self, settings: ServiceSettings, spending: Spending) -> None:
        self.spending = spending
        self._settings = settings
        self._paces: list[Pace] = []

    def begin(self) -> None:
        settings = self._settings
        if settings.batch:
            pace = Pace(MAX_BATCHED, None, None, first_window=MAX_BATCHED)
        else:
            pace = Pace(settings.max_concurrency, settings.requests_per_minute, settings.tokens_per_minute)
        self._paces.append(pace)
        self._settled = asyncio.Event()  # set when a reservation ends

    @asynccontextmanager
    async def permit(self, prompt_tokens: int, completion_tokens: int) -> AsyncIterator[Permit]:
        """Wait for a permit, and for the budget while others hold reservations; see RateLimiter."""
        price = self.spending.price(prompt_tokens, completion_tokens)
        async with self._paces[-1].permit(prompt_tokens + completion_tokens) as permit:
            while not self.spending.allows(price) and self.spending.reserved:
                self._settled.clear()
                await self._settled.wait()
            if not self.spending.allows(price):
                raise OverBudgetError(f"{self.spending.spent:.4f} USD")
            self.spending.reserved.append(price)
            try:
                yield permit
            finally:
                self.spending.reserved.remove(price)
                self._settled.set()

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        self.spending.use(prompt_tokens, completion_tokens, cached_tokens)

    def status(self) -> str:
        window = f"{self._paces[-1].in_flight} requests in flight" if self._paces else ""
        cost = f"cost {self.spending.spent:.4f} USD" if self.spending.has_prices else ""
        return ", ".join(filter(None, (window, cost)))

    def description(self) -> dict[str, Any]:
        paces = self._paces
        return {
            "pace.most_in_flight": max((pace.max_in_flight for pace in paces), default=0),
            "pace.refusals": sum(pace.refusals for pace in paces),
            "pace.paused_seconds": round(sum(pace.paused_seconds for pace in paces), 1),
            **({"cost": round(self.spending.spent, 6)} if self.spending.has_prices else {}),
        }
