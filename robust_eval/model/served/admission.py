"""Admission of requests to a server: the concurrency and rate limits, and the budget."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from robust_eval.model.served.pacing import Pace
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.spending import Spending


class OverBudgetError(Exception):
    """One more request might exceed the budget; the message is the cost so far."""


class EndedError(Exception):
    """No request may be sent any more; the message says why."""


class Passing(Protocol):
    """A request that may be sent; see :class:`robust_eval.model.served.pacing.Turn`."""

    def used(self, tokens: int) -> None: ...

    def kept_up(self) -> None: ...

    def refused(self, retry_after: float | None) -> None: ...


class Gate(Protocol):
    """Admits the requests of all clients of one server, which may run in several processes."""

    def begin(self) -> None:
        """Prepare for an event loop; call it in each loop before the first request."""

    def turn(self, prompt_tokens: int, completion_tokens: int) -> AbstractAsyncContextManager[Passing]:
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


class OwnGate:
    """The gate of one process; see :class:`Gate`."""

    def __init__(self, settings: ServiceSettings, spending: Spending) -> None:
        self.spending = spending
        self._settings = settings
        self._paces: list[Pace] = []

    def begin(self) -> None:
        settings = self._settings
        self._paces.append(Pace(settings.at_once, settings.requests_per_minute, settings.tokens_per_minute))
        self._settled = asyncio.Event()  # something that was reserved no longer is

    @asynccontextmanager
    async def turn(self, prompt_tokens: int, completion_tokens: int) -> AsyncIterator[Passing]:
        price = self.spending.price(prompt_tokens, completion_tokens)
        async with self._paces[-1].turn(prompt_tokens + completion_tokens) as turn:
            while not self.spending.allows(price) and self.spending.reserved:
                self._settled.clear()
                await self._settled.wait()
            if not self.spending.allows(price):
                raise OverBudgetError(f"{self.spending.spent:.4f}")
            self.spending.reserved.append(price)
            try:
                yield turn
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
