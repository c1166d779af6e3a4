"""Requests to a service, each tried again as long as that may help, until the run must end."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

from robust_eval.error import OutageError, UserError
from robust_eval.model.served.admission import EndedError, Gate, OverBudgetError
from robust_eval.model.served.pacing import backoff
from robust_eval.model.served.service import AGAIN, Answered, UnansweredError
from robust_eval.model.served.service_settings import ServiceSettings

Got = TypeVar("Got")


class Attempts:
    """The requests of one run.

    ``ended`` is why no request is sent any more, None while they are; ``repeated`` is how many were sent again;
    ``more_tokens`` is the largest ratio so far of a prompt's tokens to their estimate.
    """

    def __init__(self, settings: ServiceSettings, gate: Gate) -> None:
        self.gate = gate
        self.ended: UserError | None = None
        self.repeated = 0
        self.more_tokens = 1.5
        self._settings = settings
        self._idle: set[asyncio.Task[Any]] = set()  # tasks that wait for something else than an answer

    async def until_answered(self, once: Callable[[], Awaitable[Got]], name: object, began: float) -> Got:
        """Return what comes of a request that is repeated as long as that may help; raises UnansweredError where it
        may not, and EndedError where the run ends before. Its ``name`` seeds the jitter of the waits.
        """
        attempt = 0
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
                wait = backoff(attempt, problem.retry_after, random.Random(repr((name, attempt))), problem.longest_wait)
                late = time.monotonic() - began + wait > self._settings.answer_seconds
                if problem.kind not in AGAIN or attempt >= self._settings.retries or late:
                    raise
            attempt += 1
            self.repeated += 1
            with self._interruptible():
                await asyncio.sleep(wait)

    async def in_turn(
        self, about: int, completion_tokens: int, ask: Callable[[], Coroutine[Any, Any, Answered]]
    ) -> Answered:
        """Send a request of ``about`` so many tokens when its turn has come; raises UnansweredError, or EndedError
        where the run ends before.
        """
        most = int(about * self.more_tokens) + 1
        async with AsyncExitStack() as stack:
            try:
                with self._interruptible():
                    turn = await stack.enter_async_context(self.gate.turn(most, completion_tokens))
            except OverBudgetError as spent:
                self.end_over_budget(str(spent))
            except EndedError as reason:
                self.end_as_told(OutageError(str(reason)))
            if self.ended:
                raise EndedError(str(self.ended))
            try:
                answered = await self.in_time(ask())
            except UnansweredError as problem:
                if (problem.retry_after or 0) > self._settings.answer_seconds:
                    self.end(f"{self._settings.server} asks to come back in {problem.retry_after:.0f} s: {problem}")
                elif problem.kind == "busy":
                    turn.refused(problem.retry_after)
                elif problem.kind in ("lost", "garbled") and problem.status is None and problem.sent:
                    self.gate.use(most, completion_tokens)  # the server may have answered, and bills it
                raise
            turn.kept_up()
            self.more_tokens = max(self.more_tokens, answered.prompt_tokens / about)
            used = answered.prompt_tokens or about, answered.completion_tokens or completion_tokens
            self.gate.use(*used, answered.cached_tokens or 0)  # some servers do not count
            turn.used(sum(used))
            return answered

    async def in_time(self, asked: Coroutine[Any, Any, Got], most: float = math.inf) -> Got:
        """Return what a request brings within the time that one may take, and ``most`` seconds; raises
        UnansweredError.
        """
        seconds = min(self._settings.request_seconds, most)
        try:
            async with asyncio.timeout(seconds):
                return await asked
        except TimeoutError:
            raise UnansweredError("lost", f"no answer within {seconds:.3g} s") from None

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Give up what is awaited in this context when the run ends."""
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
        """End the run, whose budget is used up; ``spent`` is the cost so far, in words."""
        self.end(
            f"the budget of {self._settings.budget:g} is spent but for what one more request may cost "
            f"({spent} so far); a larger model.budget goes on"
        )

    def end(self, reason: str) -> None:
        """End the run, here and in other processes that ask the same service; a later one goes on."""
        self.end_as_told(OutageError(f"{reason}; what was answered is in the store"))
        self.gate.end(str(self.ended))

    def end_as_told(self, reason: UserError) -> None:
        """End the run in this process: send nothing more, and give up what waits for its turn or for another try."""
        self.ended = self.ended or reason
        for task in self._idle:
            task.cancel()
