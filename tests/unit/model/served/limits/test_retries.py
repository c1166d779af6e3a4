import asyncio
import time

import pytest

from robust_eval.model.served.inspect_ai import InspectAI
from robust_eval.model.served.limits.rate_limiter import LocalRateLimiter
from robust_eval.model.served.limits.retries import Attempts
from robust_eval.model.served.transport.service import UnansweredError


def answered(batch: bool, hours_ago: float) -> str:
    """The answer to a request that began so many hours ago and fails once."""
    settings = InspectAI(name="m", model="openai/m", batch=batch)
    attempts = Attempts(settings, LocalRateLimiter(settings, settings.spending()))
    failures = [UnansweredError("lost", "the request expired", retry_after=0)]

    async def once() -> str:
        if failures:
            raise failures.pop()
        return "Rome"

    return asyncio.run(attempts.until_answered(once, "q", time.monotonic() - 3600 * hours_ago))


def test_a_request_of_a_batch_that_took_hours_is_sent_again():
    assert answered(batch=True, hours_ago=20) == "Rome"


def test_a_request_whose_total_timeout_is_over_is_not_sent_again():
    with pytest.raises(UnansweredError, match="expired"):
        answered(batch=False, hours_ago=20)
