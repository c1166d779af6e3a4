"""Rate limiter of the requests to a server: concurrency, requests and tokens a minute, pauses, the budget."""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.spending import Spending

FIRST_WINDOW = 4
"""Requests at once before anything is known of the server."""
HOLD = 32
"""Rounds for which a window stays where it was last borne, before more is tried."""
CUBIC = 0.4
"""Requests per cubed round by which a window then grows: the constant C of RFC 9438, §5, with rounds for seconds."""
BURST = 1.0
"""Seconds of a rate limit that may be used at once."""
FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 60.0
"""Bounds, in seconds, of what is waited before the first and before any later repetition of a request."""


class Pace:
    """Says when requests may start, in the order in which they ask; for one event loop.

    The server's limit is found as congestion control finds that of a network. A window bounds the requests at once. It
    doubles every round (a window's worth of good answers) until the first refusal. A refusal halves it (at least 1),
    once for all requests that were under way together. It then doubles again, up to as many requests as were under way
    beside the refused one, stays there for ``HOLD`` rounds, and rises from there by ``CUBIC`` times the cube of the
    rounds since, to find out if the server bears more by now. A refused request that was alone says nothing of how many
    would be borne: from there the window doubles as at the beginning. Only what started after the last refusal counts,
    and a good answer only if the window was filled since its request started.

    This is multiplicative decrease with slow start (Chiu & Jain 1989; RFC 5681). Additive increase by one a round would
    use three quarters of a server, swinging between half of what it bears and all. The window therefore moves as that
    of CUBIC does (RFC 9438): it returns fast to where it was refused, lingers there, and goes on along a cubic curve.
    Unlike a network path a server refuses at a sharp limit and has no queue to drain, so that the way back may double;
    and rounds stand for seconds, so that a refusal costs the same share of the server whether answers take a tenth of a
    second or a minute.

    Rates are limited by the generic cell rate algorithm (ITU-T I.371): evenly, but for ``BURST`` seconds' worth, or one
    request. Tokens beyond that are taken on credit: such a request starts once nothing is owed, and the next ones wait
    longer.

    Parameters
    ----------
    most_at_once
        Upper bound of the window.
    requests_per_minute, tokens_per_minute
        None is no limit.
    clock, sleep
        Seconds that pass, and how to wait for some.

    Raises
    ------
    ValueError
        A bound that would let nothing start.
    """

    def __init__(
        self,
        most_at_once: int,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._window = _Window(most_at_once)
        self._requests = _Quota(requests_per_minute)
        self._tokens = _Quota(tokens_per_minute)
        self._clock = clock
        self._sleep = sleep
        self._queue = asyncio.Lock()  # held by the first in line; asyncio's locks are handed over in order
        self._changed = asyncio.Event()
        self._in_flight = 0
        self._most_in_flight = 0
        self._refusals = 0
        self._resumes_at = -math.inf
        self._imposed_seconds = 0.0

    @property
    def window(self) -> int:
        """Requests that are allowed at once by now."""
        return self._window.size

    @property
    def in_flight(self) -> int:
        """Requests that have their turn."""
        return self._in_flight

    @property
    def most_in_flight(self) -> int:
        """The most requests that ever had their turn at once."""
        return self._most_in_flight

    @property
    def refusals(self) -> int:
        """Requests that the server refused."""
        return self._refusals

    @property
    def paused_seconds(self) -> float:
        """How long nothing was started because the server had said so; pauses that overlap count once."""
        return self._imposed_seconds - max(0.0, self._resumes_at - self._clock())

    @asynccontextmanager
    async def permit(self, tokens: int) -> AsyncIterator["PacedPermit"]:
        """Wait until a request of about so many tokens may start; the block is the request.

        A task that is cancelled while it waits leaves the queue, and one that leaves the block makes room for another,
        however it does.
        """
        async with self._queue:
            while (seconds := self._seconds_until_start(tokens)) > 0:
                await self._change(seconds)
            turn = self._start(tokens)
        try:
            yield turn
        finally:
            self._in_flight -= 1
            self._changed.set()

    def _seconds_until_start(self, tokens: int) -> float:
        """Return the seconds until a request may start; inf where the requests under way decide that."""
        if self._in_flight >= self.window:
            return math.inf
        starts_at = max(self._resumes_at, self._requests.starts_at(1), self._tokens.starts_at(tokens))
        return starts_at - self._clock()

    async def _change(self, seconds: float) -> None:
        """Wait until there may be reason to look again, at most so long."""
        self._changed.clear()
        if seconds == math.inf:
            await self._changed.wait()
            return
        timer = asyncio.create_task(self._wake(seconds))
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    async def _wake(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._changed.set()

    def _start(self, tokens: int) -> "PacedPermit":
        now = self._clock()
        self._requests.take(1, now)
        self._tokens.take(tokens, now)
        start = self._window.start(self._in_flight)
        self._in_flight += 1
        self._most_in_flight = max(self._most_in_flight, self._in_flight)
        return PacedPermit(self, start, tokens)

    def _correct(self, tokens: int) -> None:
        self._tokens.give_back(tokens)
        self._changed.set()

    def _answered(self, start: "_Start") -> None:
        self._window.rise(start)
        self._changed.set()

    def _refused(self, start: "_Start", retry_after: float | None) -> None:
        self._refusals += 1
        self._window.fall(start)
        if retry_after is not None:
            now = self._clock()
            resumes_at = max(self._resumes_at, now + retry_after)
            self._imposed_seconds += resumes_at - max(self._resumes_at, now)
            self._resumes_at = resumes_at


@dataclass(frozen=True)
class PacedPermit:
    """A request that may be sent, and what became of it: it says at most one of ``succeeded`` and ``refused``."""

    _pace: Pace
    _start: "_Start"
    _tokens: int

    def used(self, tokens: int) -> None:
        """Count so many tokens instead of the estimate; at most once."""
        self._pace._correct(self._tokens - tokens)

    def succeeded(self) -> None:
        """Record that the server answered well."""
        self._pace._answered(self._start)

    def refused(self, retry_after: float | None) -> None:
        """Record that the server has too much to do (429, 503); nothing else starts for so many seconds."""
        self._pace._refused(self._start, retry_after)


class _Quota:
    """A rate limit: evenly spaced units, after the generic cell rate algorithm."""

    def __init__(self, per_minute: float | None) -> None:
        if per_minute is not None and not per_minute > 0:
            raise ValueError(f"a limit per minute must be above 0, not {per_minute}")
        self._seconds_each = 0.0 if per_minute is None else 60 / per_minute
        self._settled_at = -math.inf  # when nothing is owed any more

    def starts_at(self, units: int) -> float:
        """Return when so many may be taken: within a burst, or when nothing is owed."""
        return self._settled_at - max(0.0, BURST - units * self._seconds_each)

    def take(self, units: int, now: float) -> None:
        self._settled_at = max(self._settled_at, now) + units * self._seconds_each

    def give_back(self, units: int) -> None:
        """Return what was taken and not needed; what was needed beyond that is negative."""
        self._settled_at -= units * self._seconds_each


class _Start(NamedTuple):
    """How matters stood when a request started: its number, the falls of the window so far, the requests under way."""

    number: int
    falls: int
    beside: int


class _Window:
    """How many requests are allowed at once; see `Pace`."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"at least one request must be allowed at once, not {most}")
        self._most = most
        self._size = float(min(FIRST_WINDOW, most))
        self._borne = float(most)  # to which it doubles
        self._rounds = 0.0  # since it got there
        self._starts = 0
        self._last_filled = 0  # the number of the last start that left no place
        self._falls = 0

    @property
    def size(self) -> int:
        return int(self._size)

    def start(self, in_flight: int) -> _Start:
        """Note that a request starts beside so many."""
        self._starts += 1
        if in_flight + 1 >= self.size:
            self._last_filled = self._starts
        return _Start(self._starts, self._falls, in_flight)

    def rise(self, start: _Start) -> None:
        """Raise the limit: the request that started so was answered well."""
        if start.falls < self._falls or start.number > self._last_filled:
            return
        if self._size < self._borne:
            self._size = min(self._size + 1, self._borne)
        else:
            self._rounds += 1 / self._size
            self._size = min(self._borne + CUBIC * max(0.0, self._rounds - HOLD) ** 3, self._most)

    def fall(self, start: _Start) -> None:
        """Lower the limit: the request that started so was refused."""
        if start.falls < self._falls:
            return
        self._falls += 1
        self._size = max(1.0, self._size / 2)
        self._borne = max(self._size, float(start.beside or self._most))
        self._rounds = 0.0


def backoff(attempt: int, retry_after: float | None, generator: random.Random, longest: float = math.inf) -> float:
    """Seconds to wait before a request that failed is tried again.

    Exponential with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015): uniform
    between 0 and a bound that doubles with every attempt, of which the first is number 0, up to ``longest``. Where the
    server asked for so many seconds, these at least and a little more, so that not all who were told the same come back
    at once.
    """
    seconds = generator.uniform(0, min(longest, LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** min(attempt, 10)))
    if retry_after is None:
        return seconds
    return max(seconds, retry_after + generator.uniform(0, FIRST_BACKOFF))


class OverBudgetError(Exception):
    """One more request might exceed the budget; the message is the cost so far."""


class EndedError(Exception):
    """No request may be sent any more; the message says why."""


class Permit(Protocol):
    """Permission to send a request; see :class:`robust_eval.model.served.limits.rate_limiter.PacedPermit`."""

    def used(self, tokens: int) -> None: ...

    def succeeded(self) -> None: ...

    def refused(self, retry_after: float | None) -> None: ...


class RateLimiter(Protocol):
    """Admits the requests of all clients of one server, which may run in several processes."""

    def begin(self) -> None:
        """Prepare for an event loop; call it in each loop before the first request."""

    def permit(self, prompt_tokens: int, completion_tokens: int) -> AbstractAsyncContextManager[Permit]:
        """Wait until a request of at most so many tokens may start; the request runs inside the ``with`` block.

        Raises OverBudgetError where the budget does not cover the request, EndedError after :meth:`end`.
        """

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        """Add the tokens of an answer, as the service counted them; the cached ones are prompt tokens."""

    async def counted(self, answered: int, failed: int) -> tuple[int, int]:
        """Report this process's answered questions and failed ones; return the totals of all processes."""

    def end(self, reason: str) -> None:
        """Admit no further request."""

    def status(self) -> str:
        """Return the text of the progress bar: requests under way and the cost so far."""

    def description(self) -> dict[str, Any]:
        """Return the most requests at once, refusals, seconds paused and the cost, for the record of the run."""


class LocalRateLimiter:
    """Rate limiter of one process; see :class:`RateLimiter`."""

    def __init__(self, settings: ServiceSettings, spending: Spending) -> None:
        self.spending = spending
        self._settings = settings
        self._paces: list[Pace] = []

    def begin(self) -> None:
        settings = self._settings
        self._paces.append(Pace(settings.max_concurrency, settings.requests_per_minute, settings.tokens_per_minute))
        self._settled = asyncio.Event()  # something that was reserved no longer is

    @asynccontextmanager
    async def permit(self, prompt_tokens: int, completion_tokens: int) -> AsyncIterator[Permit]:
        price = self.spending.price(prompt_tokens, completion_tokens)
        async with self._paces[-1].permit(prompt_tokens + completion_tokens) as permit:
            while not self.spending.allows(price) and self.spending.reserved:
                self._settled.clear()
                await self._settled.wait()
            if not self.spending.allows(price):
                raise OverBudgetError(f"{self.spending.spent:.4f}")
            self.spending.reserved.append(price)
            try:
                yield permit
            finally:
                self.spending.reserved.remove(price)
                self._settled.set()

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        self.spending.use(prompt_tokens, completion_tokens, cached_tokens)

    async def counted(self, answered: int, failed: int) -> tuple[int, int]:
        return answered, failed

    def end(self, reason: str) -> None:
        """Do nothing: the only client is the caller, who knows."""

    def status(self) -> str:
        window = f"{self._paces[-1].in_flight} at once" if self._paces else ""
        return ", ".join(filter(None, (window, f"cost {self.spending.spent:.4f}" if self.spending.has_prices else "")))

    def description(self) -> dict[str, Any]:
        paces = self._paces
        return {
            "pace.most_in_flight": max((pace.most_in_flight for pace in paces), default=0),
            "pace.refusals": sum(pace.refusals for pace in paces),
            "pace.paused_seconds": round(sum(pace.paused_seconds for pace in paces), 1),
            **({"cost": round(self.spending.spent, 6)} if self.spending.has_prices else {}),
        }
