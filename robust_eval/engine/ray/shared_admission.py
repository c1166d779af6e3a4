"""One gate for all actors that ask the same server: their limits and their budget are those of the run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from robust_eval.model.served.admission import EndedError, OverBudgetError, OwnGate, Passing
from robust_eval.model.served.service_settings import ServiceSettings


@dataclass
class Noted:
    """Report of an actor on a request that the gate admitted."""

    tokens: int | None = None
    kind: str | None = None
    retry_after: float | None = None
    counted: list[tuple[int, int, int]] = field(default_factory=list)
    """Prompt, completion and cached tokens that the service counts."""

    def used(self, tokens: int) -> None:
        self.tokens = tokens

    def kept_up(self) -> None:
        self.kind = "kept up"

    def refused(self, retry_after: float | None) -> None:
        self.kind, self.retry_after = "refused", retry_after


WAITING = 50
"""Requests of a process that wait for their turn at once: each takes one of the :data:`ROOM` of the keeper."""
ROOM = 10_000
"""Calls that the keeper has under way at once: those that wait must leave room for those that end."""


class GateKeeper:
    """The gate, in an actor of its own, which serves all others in one event loop."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._gate = OwnGate(settings, settings.spending())
        self._lease = 2 * settings.request_seconds
        self._under_way: dict[int, tuple[AsyncExitStack, Passing, tuple[int, int]]] = {}
        self._leases: dict[int, asyncio.Task[None]] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._let = 0
        self._ended: asyncio.Event | None = None
        self._reason = ""

    async def enter(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Return the number of a request that may be sent; see :meth:`robust_eval.model.served.admission.Gate.turn`."""
        if self._ended is None:
            self._ended = asyncio.Event()
            self._gate.begin()
        if self._reason:
            raise EndedError(self._reason)
        stack = AsyncExitStack()
        turn = asyncio.ensure_future(stack.enter_async_context(self._gate.turn(prompt_tokens, completion_tokens)))
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({turn, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not turn.done():
            turn.cancel()
            raise EndedError(self._reason)
        self._let += 1
        number = self._let
        self._under_way[number] = stack, turn.result(), (prompt_tokens, completion_tokens)
        self._leases[number] = asyncio.create_task(self._expire(number))
        return number

    async def leave(self, number: int, noted: Noted) -> None:
        """Take note of what became of a request."""
        if number not in self._under_way:
            return  # its lease has expired, and it is paid
        stack, turn, _ = self._under_way.pop(number)
        self._leases.pop(number).cancel()
        for tokens in noted.counted:
            self._gate.use(*tokens)
        if noted.kind == "kept up":
            turn.kept_up()
        elif noted.kind == "refused":
            turn.refused(noted.retry_after)
        if noted.tokens is not None:
            turn.used(noted.tokens)
        await stack.aclose()

    async def _expire(self, number: int) -> None:
        """Make room for others in time: whoever sent a request may be no more. The service may have billed it."""
        await asyncio.sleep(self._lease)
        stack, _, most = self._under_way.pop(number)
        del self._leases[number]
        self._gate.use(*most)
        await stack.aclose()

    async def counted(self, process: str, answered: int, failed: int) -> tuple[int, int]:
        """See :meth:`robust_eval.model.served.admission.Gate.counted`; each process is known by a name."""
        self._counted[process] = answered, failed
        totals = [sum(numbers) for numbers in zip(*self._counted.values(), strict=True)]
        return totals[0], totals[1]

    async def end(self, reason: str) -> None:
        """Admit no further request."""
        self._reason = self._reason or reason
        if self._ended is not None:
            self._ended.set()

    async def status(self) -> str:
        """See :meth:`robust_eval.model.served.admission.Gate.status`."""
        return self._gate.status()

    async def description(self) -> dict[str, Any]:
        """See :meth:`robust_eval.model.served.admission.Gate.description`."""
        return self._gate.description()


class SharedGate:
    """The way of an actor to the gate; see :class:`robust_eval.model.served.admission.Gate`."""

    def __init__(self, keeper: Any, process: str) -> None:
        self._keeper = keeper
        self._process = process
        self._counted: list[tuple[int, int, int]] = []

    def begin(self) -> None:
        """Do nothing: the keeper has an event loop of its own."""
        self._waiting = asyncio.Semaphore(WAITING)

    @asynccontextmanager
    async def turn(self, prompt_tokens: int, completion_tokens: int) -> AsyncIterator[Passing]:
        from ray.exceptions import RayTaskError

        try:
            async with self._waiting:
                number = await self._keeper.enter.remote(prompt_tokens, completion_tokens)
        except RayTaskError as problem:
            cause = problem.cause
            if isinstance(cause, OverBudgetError | EndedError):
                raise cause from None
            raise
        noted = Noted()
        try:
            yield noted
        finally:
            noted.counted, self._counted = self._counted, []
            self._keeper.leave.remote(number, noted)

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        self._counted.append((prompt_tokens, completion_tokens, cached_tokens))

    async def counted(self, answered: int, failed: int) -> tuple[int, int]:
        totals: tuple[int, int] = await self._keeper.counted.remote(self._process, answered, failed)
        return totals

    def end(self, reason: str) -> None:
        self._keeper.end.remote(reason)

    def status(self) -> str:
        """Return nothing: the keeper knows."""
        return ""

    def description(self) -> dict[str, Any]:
        """Return nothing: the keeper knows."""
        return {}
