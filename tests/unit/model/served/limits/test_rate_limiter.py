import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases

from robust_eval.model.served.limits.rate_limiter import HOLD, Pace, PacedPermit
from robust_eval.model.served.limits.retries import backoff
from robust_eval.model.served.transport.client import retry_after

PROPERTY = settings(max_examples=100, deadline=None, database=None, derandomize=True)
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LATENCY = 0.2
"""Seconds that the simulated server takes."""


class Simulation(asyncio.SelectorEventLoop):
    """An event loop whose time passes only, and at once, while all tasks wait."""

    class Waiting(selectors.DefaultSelector):
        now = 0.0

        def select(self, timeout: float | None = None) -> Any:
            assert timeout is not None, "every task waits for another"
            self.now += timeout
            return super().select(0)

    def __init__(self) -> None:
        self.waiting = self.Waiting()
        super().__init__(self.waiting)

    def time(self) -> float:
        return self.waiting.now


def simulated(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=Simulation) as runner:
        return runner.run(work)


def now() -> float:
    return asyncio.get_running_loop().time()


def simulated_pace(most_at_once: int = 1000, requests: float | None = None, tokens: float | None = None) -> Pace:
    return Pace(most_at_once, requests, tokens, clock=now)


async def starts(pace: Pace, tokens: list[int], seconds: float = 0.0) -> list[float]:
    """When requests with so many tokens start that are all asked for now."""
    times = []

    async def ask(tokens: int) -> None:
        async with pace.permit(tokens):
            times.append(round(now(), 6))
            await asyncio.sleep(seconds)

    async with asyncio.TaskGroup() as group:
        for number in tokens:
            group.create_task(ask(number))
    return times


async def filled(pace: Pace, stack: AsyncExitStack) -> list[PacedPermit]:
    return [await stack.enter_async_context(pace.permit(1)) for _ in range(pace.window)]


async def good_round(pace: Pace) -> int:
    """The window after it was filled and all were answered well."""
    async with AsyncExitStack() as stack:
        for turn in await filled(pace, stack):
            turn.succeeded()
    return pace.window


# The window


def test_the_window_doubles_every_round_up_to_its_bound():
    async def work() -> list[int]:
        pace = simulated_pace(100)
        return [pace.window] + [await good_round(pace) for _ in range(6)]

    assert simulated(work()) == [4, 8, 16, 32, 64, 100, 100]


def test_a_window_that_is_not_filled_does_not_rise():
    async def work() -> list[int]:
        pace = simulated_pace()
        windows = []
        for _ in range(100):
            async with pace.permit(1) as one, pace.permit(1) as two, pace.permit(1) as three:
                one.succeeded()
                two.succeeded()
                three.succeeded()
            windows.append(pace.window)
        return windows

    assert simulated(work()) == [4] * 100


def test_refusals_halve_the_window_once_for_all_that_were_under_way():
    async def work() -> tuple[list[int], int]:
        pace = simulated_pace(64)
        for _ in range(4):
            await good_round(pace)
        windows = [pace.window]
        async with AsyncExitStack() as stack:
            for turn in await filled(pace, stack):
                turn.refused(None)
                windows.append(pace.window)
        for _ in range(7):
            async with pace.permit(1) as turn:
                turn.refused(None)
            windows.append(pace.window)
        return windows, pace.refusals

    assert simulated(work()) == ([64] + [32] * 64 + [16, 8, 4, 2, 1, 1, 1], 71)


def test_good_answers_to_what_started_before_a_refusal_do_not_raise_the_window():
    async def work() -> int:
        pace = simulated_pace(64)
        for _ in range(4):
            await good_round(pace)
        async with AsyncExitStack() as stack:
            *others, refused = await filled(pace, stack)
            refused.refused(None)
            for turn in others:
                turn.succeeded()
        return pace.window

    assert simulated(work()) == 32


def test_after_a_refusal_the_window_lingers_where_it_was_refused_and_then_rises_ever_faster():
    async def work() -> list[int]:
        pace = simulated_pace()
        for _ in range(4):
            await good_round(pace)
        async with AsyncExitStack() as stack:
            (await filled(pace, stack))[50].refused(None)
        return [pace.window] + [await good_round(pace) for _ in range(HOLD + 8)]

    windows = simulated(work())
    assert windows[: HOLD + 3] == [32] + [50] * (HOLD + 2)
    steps = [after - before for before, after in pairwise(windows[HOLD + 2 :])]
    assert 1 <= steps[0] <= 4
    assert all(after > before for before, after in pairwise(steps))


# Order


JOBS = st.lists(
    st.tuples(
        st.integers(0, 20),  # comes so many half seconds after the one before
        st.integers(0, 20),  # takes so many
        st.integers(0, 200),  # tokens
        st.sampled_from(["kept up", "kept up", "refused", "failed"]),
        st.one_of(st.none(), st.integers(0, 100)),  # Retry-After, half seconds
        st.one_of(st.none(), st.none(), st.integers(0, 100)),  # cancelled after so many, within its turn or before
    ),
    max_size=40,
)


@PROPERTY
@given(
    JOBS,
    st.integers(1, 10),
    st.sampled_from([None, 7.0, 60.0, 600.0]),
    st.sampled_from([None, 60.0, 3000.0]),
    st.booleans(),
)
def test_whatever_happens_turns_come_in_order_once_and_within_all_limits(jobs, most, requests, tokens, correct):
    asked, started, cancelled = [], [], []
    times: list[float] = []
    pauses: list[tuple[float, float]] = []

    async def ask(pace: Pace, number: int) -> None:
        _, seconds, size, outcome, pause, _ = jobs[number]
        asked.append(number)
        try:
            async with pace.permit(size) as turn:
                started.append(number)
                times.append(now())
                assert 1 <= pace.in_flight <= pace.window <= most
                assert not any(begin < now() < end - 1e-6 for begin, end in pauses)
                await asyncio.sleep(seconds / 2)
                if correct:
                    turn.used(size // 2)
                if outcome == "kept up":
                    turn.succeeded()
                elif outcome == "refused":
                    turn.refused(None if pause is None else pause / 2)
                    pauses.append((now(), now() + (pause or 0) / 2))
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def work() -> Pace:
        pace = simulated_pace(most, requests, tokens)
        tasks = []
        for number, (gap, *_, cancel_after) in enumerate(jobs):
            await asyncio.sleep(gap / 2)
            tasks.append(asyncio.create_task(ask(pace, number)))
            if cancel_after is not None:
                asyncio.get_running_loop().call_later(cancel_after / 2, tasks[-1].cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            assert task.cancelled() or task.exception() is None
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 1  # this one: no timer is left
        return pace

    pace = simulated(work())
    assert pace.in_flight == 0
    assert pace.max_in_flight <= most
    assert started == [number for number in asked if number in started]  # in order, once
    assert set(asked) == set(started) | set(cancelled)
    assert pace.refusals == len(pauses)
    sizes = [jobs[number][2] for number in started]
    for index, time in enumerate(times):
        within = sum(other <= time + 60 for other in times[index:])
        assert requests is None or within <= requests + max(1, requests / 60)
        if tokens is not None and not correct:  # the last one may be on credit
            assert sum(sizes[index : index + within]) <= tokens + max(tokens / 60, *sizes)


# Rates


@pytest.mark.parametrize(("per_minute", "expected"), cases(__file__, "requests_are_spread_evenly_over_a_minute"))
def test_requests_are_spread_evenly_over_a_minute(per_minute: float, expected: list[float]):
    async def work() -> list[float]:
        return await starts(simulated_pace(requests=per_minute), [1] * len(expected))

    assert simulated(work()) == expected


@pytest.mark.parametrize(("tokens", "expected"), cases(__file__, "tokens_are_spread_evenly_over_a_minute"))
def test_tokens_are_spread_evenly_over_a_minute(tokens: list[int], expected: list[float]):
    async def work() -> list[float]:
        return await starts(simulated_pace(tokens=600), tokens)

    assert simulated(work()) == expected


@pytest.mark.parametrize(("used", "expected"), [(0, 0.5), (10, 1.0), (35, 3.5), (100, 10.0), (130, 13.0)])
def test_tokens_that_were_used_count_instead_of_the_estimate_at_once(used: int, expected: float):
    async def work() -> list[float]:
        pace = simulated_pace(tokens=600)
        async with pace.permit(100) as turn:
            next_one = asyncio.create_task(starts(pace, [10]))
            await asyncio.sleep(0.5)
            turn.used(used)
            await asyncio.sleep(20)
        return await next_one

    assert simulated(work()) == [expected]  # 10 tokens a second; the next one needs all that may be saved


# Pauses


def test_everything_pauses_for_as_long_as_the_longest_that_was_asked_for():
    async def work() -> tuple[list[float], list[float], int]:
        pace = simulated_pace()
        paused = []
        async with pace.permit(1) as one, pace.permit(1) as two, pace.permit(1) as three:
            one.refused(5)
            await asyncio.sleep(1)
            two.refused(10)
            three.refused(2)
        others = asyncio.create_task(starts(pace, [1, 1]))
        for _ in range(3):
            paused.append(pace.paused_seconds)
            await asyncio.sleep(6)
        async with pace.permit(1) as turn:
            turn.refused(0.5)
        await asyncio.sleep(1)
        return await others, [*paused, pace.paused_seconds], pace.refusals

    assert simulated(work()) == ([11, 11], [1, 7, 11, 11.5], 4)


# How much of a server is used


class Load(NamedTuple):
    times: list[float]
    """When answers came."""
    refusals: int

    def used(self, limit: int, begin: float, end: float) -> float:
        """The share of what a server with this limit could have answered between two times."""
        return sum(begin <= time < end for time in self.times) / (limit * (end - begin) / LATENCY)


async def load(limit: Callable[[float], int], seconds: float, tasks: int) -> Load:
    """Tasks that ask for so long a server that refuses what is beyond its limit of the time."""
    pace = simulated_pace()
    busy = 0
    times = []

    async def answered() -> bool:
        nonlocal busy
        async with pace.permit(1) as turn:
            if busy >= limit(now()):
                await asyncio.sleep(LATENCY / 10)
                turn.refused(None)
                return False
            busy += 1
            await asyncio.sleep(LATENCY)
            busy -= 1
            times.append(now())
            turn.succeeded()
            return True

    async def ask() -> None:
        while True:
            attempt = 0
            while not await answered():
                await asyncio.sleep(backoff(attempt, None))
                attempt += 1

    asking = [asyncio.create_task(ask()) for _ in range(tasks)]
    await asyncio.sleep(seconds)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert pace.in_flight == 0
    return Load(times, pace.refusals)


@pytest.mark.parametrize("limit", [10, 100])
def test_at_least_95_percent_of_a_server_is_used_and_few_requests_are_refused(limit: int):
    result = simulated(load(lambda _: limit, 60, limit * 3 // 2))
    assert 0.95 <= result.used(limit, 0, 60) <= 1
    assert result.refusals < 0.01 * len(result.times)


def test_a_server_that_bears_less_for_a_while_is_followed_down_and_up():
    result = simulated(load(lambda time: 25 if 20 <= time < 40 else 100, 70, 150))
    assert 0.95 <= result.used(25, 21, 40) <= 1
    assert 0.95 <= result.used(100, 52, 70) <= 1


# Trying again


@pytest.mark.parametrize(
    ("headers", "expected"), cases(__file__, "the_wait_that_a_server_asks_for_is_read_from_its_headers")
)
def test_the_wait_that_a_server_asks_for_is_read_from_its_headers(headers: dict[str, str], expected: float | None):
    assert retry_after(headers, NOON) == expected


def test_a_date_is_compared_in_any_time_zone():
    local = NOON.astimezone(timezone(timedelta(hours=-7)))
    assert retry_after({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, local) == 30.0


@PROPERTY
@given(
    st.one_of(
        st.text(),
        st.text("0123456789:,+- MonDecGMT"),
        st.floats().map(str),
        st.datetimes(timezones=st.just(UTC)).map(lambda when: when.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    )
)
def test_any_text_is_a_wait_or_nothing(text: str):
    for name in ("retry-after", "retry-after-ms"):
        wait = retry_after({name: text}, NOON)
        assert wait is None or (wait >= 0 and math.isfinite(wait))
