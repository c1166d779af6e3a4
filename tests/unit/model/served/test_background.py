import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

import pytest

from robust_eval.model.served.background import Background, run_sync

SECONDS = 10
"""After which a test fails instead of waiting."""


@contextmanager
def ended(work: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[tuple[Background, Callable[[], bool]]]:
    """Work, and what waits until it is said to have ended."""
    done = threading.Event()
    with Background(work, done.set) as background:
        yield background, lambda: done.wait(SECONDS)
    assert done.is_set()


def test_done_is_called_once_after_everything_else() -> None:
    order: list[str] = []

    async def straggler() -> None:
        try:
            await asyncio.sleep(SECONDS)
        finally:
            order.append("straggler cancelled")

    async def work() -> None:
        order.append("work")
        order.append(str(asyncio.create_task(straggler()).done()))
        await asyncio.sleep(0)

    with Background(work, lambda: order.append("done")) as background:
        while order[-1:] != ["done"]:
            time.sleep(0.001)
        time.sleep(0.05)
        background.result()
    assert order == ["work", "False", "straggler cancelled", "done"]


class Peculiar(BaseException):
    pass


@pytest.mark.parametrize("problem", [KeyError("k"), Peculiar("no Exception")])
def test_what_the_work_raises_is_raised_by_the_result_and_not_by_leaving(problem: BaseException) -> None:
    async def work() -> None:
        raise problem

    with ended(work) as (background, wait):
        assert wait()
        with pytest.raises(type(problem)) as caught:
            background.result()
    assert caught.value is problem


def test_of_several_tasks_that_fail_the_result_raises_one() -> None:
    async def fail(number: int) -> None:
        raise KeyError(number)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(fail(number))

    with ended(work) as (background, wait):
        assert wait()
        with pytest.raises(KeyError, match="0"):
            background.result()


@pytest.mark.parametrize("problem", [None, LookupError], ids=["early", "by an exception"])
def test_leaving_before_the_end_cancels_the_work_and_waits_for_its_cleaning_up(
    problem: type[LookupError] | None,
) -> None:
    written: list[str] = []

    async def work() -> None:
        try:
            written.append("begun")
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            written.append("cleaned up")

    with nullcontext() if problem is None else pytest.raises(problem), ended(work):
        while not written:
            time.sleep(0.001)
        if problem is not None:
            raise problem
    assert written == ["begun", "cleaned up"]


def test_may_be_left_while_the_end_is_being_said() -> None:
    said = threading.Event()

    def done() -> None:
        said.set()
        time.sleep(0.1)

    with Background(partial(asyncio.sleep, 0), done):
        assert said.wait(SECONDS)


def test_a_caller_that_is_interrupted_before_the_work_begins_leaves_no_coroutine_unawaited() -> None:
    made: list[int] = []

    async def work() -> None: ...

    def make() -> Coroutine[Any, Any, None]:
        made.append(threading.get_ident())
        return work()

    Background(make, lambda: None)
    assert made == []
    with ended(make) as (_, wait):
        assert wait()
    assert len(made) == 1
    assert made != [threading.get_ident()]


def test_leaving_at_once_cancels_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    run, written = Background._run, list[str]()

    def held_up(background: Background) -> None:
        time.sleep(0.1)
        run(background)

    async def work() -> None:
        await asyncio.sleep(0.2)
        written.append("ended")

    monkeypatch.setattr(Background, "_run", held_up)
    with ended(work):
        pass
    assert written == []


async def _later(problem: Exception | None = None) -> str:
    await asyncio.sleep(0)
    if problem is not None:
        raise problem
    return "found"


def test_a_coroutine_is_awaited_also_where_an_event_loop_runs():
    async def inside() -> str:
        return run_sync(_later)

    assert run_sync(_later) == "found"
    assert asyncio.run(inside()) == "found"


def test_what_an_awaited_coroutine_raises_is_raised():
    with pytest.raises(ValueError, match=r"^lost$"):
        run_sync(partial(_later, ValueError("lost")))


def ignored(frame: FrameType | None) -> bool:
    """Whether Python ignores what is raised in this frame: an object is being thrown away."""
    return frame is not None and (frame.f_code.co_name in ("_remove", "__del__") or ignored(frame.f_back))


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Nothing that another test has left is thrown away."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_an_interrupt_at_any_moment_is_raised_as_such_and_ends_the_work() -> None:
    begun, over = threading.Event(), threading.Event()

    async def work() -> str:
        begun.set()
        try:
            await asyncio.sleep(0.002)
        finally:
            over.set()
        return "found"

    def found(moment: int) -> str:
        """What comes where Ctrl-C is pressed at one of the moments at which Python looks for signals: as a function of
        Python begins, and as one of C ends.
        """
        left = moment

        def look(frame: FrameType, event: str, _: Any) -> None:
            nonlocal left
            left -= event in ("call", "c_return") and not ignored(frame)
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(look)
        try:
            came = run_sync(work)
        except KeyboardInterrupt:
            came = "interrupted"
        if left >= 0:
            sys.setprofile(None)
        return came

    moments = 0
    while found(moments) == "interrupted":
        assert not begun.is_set() or over.wait(SECONDS)
        begun.clear()
        over.clear()
        moments += 1
    assert moments > 10
