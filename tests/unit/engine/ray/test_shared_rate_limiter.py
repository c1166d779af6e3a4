"""The gate in an actor of its own, asked here as actors ask it."""

import asyncio
from typing import Any

import pytest

from robust_eval.engine.ray.shared_rate_limiter import PermitReport, RateLimiterActor
from robust_eval.model.served.limits.rate_limiter import EndedError, OverBudgetError
from robust_eval.model.served.openai import OpenAI


def keeper(**settings: Any) -> RateLimiterActor:
    """Of a service that takes 1 for each token."""
    prices = {"prompt_price": 1_000_000, "completion_price": 1_000_000}
    return RateLimiterActor(
        OpenAI("served", "served", base_url="http://nowhere", api_key_env=None, **prices | settings)
    )


def test_what_the_service_counts_is_paid_and_what_was_reserved_is_free_again():
    async def ask() -> None:
        gate = keeper(budget=30)
        number = await gate.enter(10, 10)
        waiting = asyncio.ensure_future(gate.enter(20, 10))
        await gate.leave(number, PermitReport(kind="succeeded", counted=[(5, 3)]))
        with pytest.raises(OverBudgetError, match=r"^8\.0000 USD$"):
            await waiting
        await gate.leave(await gate.enter(10, 10), PermitReport(kind="succeeded", counted=[(10, 2)]))
        assert (await gate.description())["cost"] == 20

    asyncio.run(ask())


def test_a_request_that_nobody_ends_is_paid_as_reserved_once_and_makes_room(monkeypatch: pytest.MonkeyPatch):
    async def ask() -> None:
        gate = keeper(max_concurrency=1)
        monkeypatch.setattr(gate, "_lease", 0.01)
        lost = await gate.enter(10, 4)
        later = await gate.enter(1, 1)  # waits until the first has expired
        await gate.leave(later, PermitReport(kind="succeeded", counted=[(1, 1)]))
        await gate.leave(lost, PermitReport(kind="succeeded", counted=[(9, 3)]))
        assert (await gate.description())["cost"] == 14 + 2

    asyncio.run(ask())


def test_who_waits_when_it_is_ended_is_told_why():
    async def ask() -> None:
        gate = keeper(max_concurrency=1)
        await gate.enter(1, 1)
        waiting = asyncio.ensure_future(gate.enter(1, 1))
        await asyncio.sleep(0)
        await gate.end("that is enough")
        with pytest.raises(EndedError, match=r"^that is enough$"):
            await waiting
        with pytest.raises(EndedError, match=r"^that is enough$"):
            await gate.enter(1, 1)
        for lease in gate._leases.values():
            lease.cancel()

    asyncio.run(ask())
