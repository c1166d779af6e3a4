"""Rate limiter of a run, shared by all actors that send requests to one server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from robust_eval.model.served.limits.rate_limiter import (
    EndedError,
    LocalRateLimiter,
    OverBudgetError,
    Permit,
    RateLimiter,
)
from robust_eval.model.served.service_settings import ServiceSettings


@dataclass
class PermitReport(Permit):
    """Report of an actor on a request with a permit of the shared rate limiter."""

    tokens: int | None = None
    kind: str | None = None
    retry_after: float | None = None
    counted: list[tuple[int, int, int]] = field(default_factory=list)
    """Prompt, completion and cached tokens as the service counted them."""

    def used(self, tokens: int) -> None:
        self.tokens = tokens

    def succeeded(self) -> None:
        self.kind = "succeeded"

    def refused(self, retry_after: float | None) -> None:
        self.kind, self.retry_after = "refused", retry_after


MAX_WAITING = 50
"""Maximum number of requests of a process that wait for a permit: each takes one of the :data:`MAX_CALLS`."""
MAX_CALLS = 10_000
"""Maximum number of concurrent calls of the actor: waiting calls must leave room for ending ones."""


class RateLimiterActor:
    """Actor with the shared rate limiter, which serves all other actors in one event loop."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._limiter = LocalRateLimiter(settings, settings.spending())
        self._lease = 2 * settings.timeout
        self._under_way: dict[int, tuple[AsyncExitStack, Permit, tuple[int, int]]] = {}
        self._leases: dict[int, asyncio.Task[None]] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._permits = 0
        self._ended: asyncio.Event | None = None
        self._reason = ""

    async def enter(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Return the number of a permit of the shared rate limiter; see RateLimiter.permit."""
        if self._ended is None:
            self._ended = asyncio.Event()
            self._limiter.begin()
        if self._reason:
            raise EndedError(self._reason)
        stack = AsyncExitStack()
        permit = asyncio.ensure_future(
            stack.enter_async_context(self._limiter.permit(prompt_tokens, completion_tokens))
        )
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({permit, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not permit.done():
            permit.cancel()
            raise EndedError(self._reason)
        number = self._permits = self._permits + 1
        self._under_way[number] = stack, permit.result(), (prompt_tokens, completion_tokens)
        self._leases[number] = asyncio.create_task(self._expire(number))
        return number

    async def leave(self, number: int, report: PermitReport) -> None:
        """Return a permit to the shared rate limiter, with the report on its request."""
        if number not in self._under_way:
            return  # its lease has expired, and it is paid
        stack, permit, _ = self._under_way.pop(number)
        self._leases.pop(number).cancel()
        for tokens in report.counted:
            self._limiter.use(*tokens)
        if report.kind == "succeeded":
            permit.succeeded()
        elif report.kind == "refused":
            permit.refused(report.retry_after)
        if report.tokens is not None:
            permit.used(report.tokens)
        await stack.aclose()

    async def _expire(self, number: int) -> None:
        """End the permit of an actor that may be lost, at the maximum cost: the service may have billed the request."""
        await asyncio.sleep(self._lease)
        stack, _, most = self._under_way.pop(number)
        del self._leases[number]
        self._limiter.use(*most)
        await stack.aclose()

    async def counted(self, process: str, answered: int, failed: int) -> tuple[int, int]:
        """Take over the counts of a ``process``, the caller; return the totals of all. See RateLimiter.counted."""
        self._counted[process] = answered, failed
        totals = [sum(numbers) for numbers in zip(*self._counted.values(), strict=True)]
        return totals[0], totals[1]

    async def end(self, reason: str) -> None:
        """End the shared rate limiter: admit no further request of any actor."""
        self._reason = self._reason or reason
        if self._ended is not None:
            self._ended.set()

    async def status(self) -> str:
        """Return the status line of the shared rate limiter; see RateLimiter.status."""
        return self._limiter.status()

    async def description(self) -> dict[str, Any]:
        """Return the counts of the shared rate limiter; see RateLimiter.description."""
        return self._limiter.description()


class SharedRateLimiter(RateLimiter):
    """Client of the shared rate limiter in an actor; see RateLimiter."""

    def __init__(self, limiter: Any, process: str) -> None:
        self._limiter = limiter
        self._process = process
        self._counted: list[tuple[int, int, int]] = []

    def begin(self) -> None:
        """Bind the limit on requests that wait for the shared rate limiter to the event loop."""
        self._waiting = asyncio.Semaphore(MAX_WAITING)

    @asynccontextmanager
    async def permit(self, prompt_tokens: int, completion_tokens: int) -> AsyncIterator[Permit]:
        """Wait for a permit from the actor with the shared rate limiter; see RateLimiter."""
        from ray.exceptions import RayTaskError

        try:
            async with self._waiting:
                number = await self._limiter.enter.remote(prompt_tokens, completion_tokens)
        except RayTaskError as problem:
            cause = problem.cause
            if isinstance(cause, OverBudgetError | EndedError):
                raise cause from None
            raise
        report = PermitReport()
        try:
            yield report
        finally:
            report.counted, self._counted = self._counted, []
            self._limiter.leave.remote(number, report)

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        self._counted.append((prompt_tokens, completion_tokens, cached_tokens))

    async def counted(self, answered: int, failed: int) -> tuple[int, int]:
        totals: tuple[int, int] = await self._limiter.counted.remote(self._process, answered, failed)
        return totals

    def end(self, reason: str) -> None:
        self._limiter.end.remote(reason)

    def status(self) -> str:
        """Return nothing: the actor of the shared rate limiter has the status."""
        return ""

    def description(self) -> dict[str, Any]:
        """Return nothing: the actor of the shared rate limiter has the description."""
        return {}
