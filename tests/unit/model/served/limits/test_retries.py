import asyncio
import statistics
from typing import Any

import pytest

from robust_eval.model.served.inspect_ai import InspectAI
from robust_eval.model.served.limits import retries
from robust_eval.model.served.limits.rate_limiter import LocalRateLimiter
from robust_eval.model.served.limits.retries import Attempts, backoff
from robust_eval.model.served.transport.service import ServiceResponse, UnansweredError


def answered(batch: bool) -> str:
    """The answer to a request that fails once, when its time is over."""
    settings = InspectAI(name="m", model="openai/m", batch=batch, total_timeout=0.001)
    attempts = Attempts(settings, LocalRateLimiter(settings, settings.spending()))
    failures = [UnansweredError("lost", "the request expired", retry_after=0)]

    async def once() -> str:
        await asyncio.sleep(0.002)
        if failures:
            raise failures.pop()
        return "Rome"

    return asyncio.run(attempts.until_answered(once))


def test_a_request_of_a_batch_that_took_hours_is_sent_again():
    assert answered(batch=True) == "Rome"


def test_a_request_whose_total_timeout_is_over_is_not_sent_again():
    with pytest.raises(UnansweredError, match="expired"):
        answered(batch=False)


def test_the_wait_for_a_permit_is_no_part_of_the_total_timeout(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retries, "FIRST_BACKOFF", 0.01)
    settings = InspectAI(name="m", model="openai/m", total_timeout=0.1, tokens_per_minute=6000)
    attempts = Attempts(settings, LocalRateLimiter(settings, settings.spending()))
    replies: list[Any] = [UnansweredError("lost", "a hiccup"), ServiceResponse([], 50, 0)]

    async def ask() -> ServiceResponse:
        if isinstance(reply := replies.pop(0), UnansweredError):
            raise reply
        return reply

    async def answered() -> ServiceResponse:
        attempts.limiter.begin()
        async with attempts.limiter.permit(120, 0):
            pass
        return await attempts.until_answered(lambda: attempts.in_turn(50, 0, ask))

    assert asyncio.run(answered()).prompt_tokens == 50


BOUNDS = [(0, 0.5), (1, 1.0), (2, 2.0), (5, 16.0), (6, 32.0), (7, 60.0), (8, 60.0), (5000, 60.0)]


@pytest.mark.parametrize(
    ("kind", "attempt", "bound"), [*(("lost", *pair) for pair in BOUNDS), ("garbled", 1, 1.0), ("garbled", 9, 2.0)]
)
def test_the_wait_before_another_attempt_is_uniform_below_a_bound_that_doubles(kind: str, attempt: int, bound: float):
    """And short after a reply that no time mends."""
    waits = [backoff(attempt, None, UnansweredError(kind, "").longest_wait) for _ in range(4000)]
    assert 0 <= min(waits) < 0.01 * bound
    assert 0.99 * bound < max(waits) <= bound
    assert statistics.mean(waits) == pytest.approx(bound / 2, rel=0.05)


@pytest.mark.parametrize("asked", [0.0, 2.0, 100.0, 7200.0])
def test_a_wait_that_the_server_asked_for_is_kept_with_a_little_more(asked: float):
    waits = [backoff(0, asked) for _ in range(1000)]
    assert asked <= min(waits) < asked + 0.1
    assert asked + 0.4 < max(waits) <= asked + 0.5
