"""Coroutines that go on while the rest of the program does something else."""

import _thread
import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Found = TypeVar("Found")


class Background:
    """A coroutine in a thread with an event loop of its own; it is cancelled where the context is left before it ends.

    ``work`` makes the coroutine. It is called in the thread, so that an interrupt of the caller leaves none that
    nobody awaits. ``done`` is called when it ends, however it does.

    An interrupt may come at any moment. ``threading.Thread.start`` and ``threading.Event.wait`` are written in Python,
    and one inside them ends in "release unlocked lock"; starting a thread and acquiring a lock are not.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], done: Callable[[], None]) -> None:
        self._work = work
        self._done = done
        self._loop: asyncio.AbstractEventLoop | None = None
        self._problem: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._left = False
        self._running = threading.Lock()
        self._running.acquire()

    def __enter__(self) -> "Background":
        try:
            _thread.start_new_thread(self._run, ())
        except KeyboardInterrupt:  # it comes after the thread has begun
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem: Any) -> None:
        self._left = True
        if self._loop is not None:  # without one the work has not begun, and does not begin any more
            with contextlib.suppress(RuntimeError):  # the loop is closed: the work has ended
                self._loop.call_soon_threadsafe(self._cancel)
        self._running.acquire()

    def result(self) -> None:
        """Raise what the coroutine raised."""
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._main())
        except BaseException as problem:
            while isinstance(problem, BaseExceptionGroup):
                problem = problem.exceptions[0]
            self._problem = problem
        finally:
            self._done()
            self._running.release()

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        if not self._left:
            await self._work()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def run_sync(work: Callable[[], Coroutine[Any, Any, Found]]) -> Found:
    """Return what the coroutine that ``work`` makes returns, or raise what it raises; also where an event loop runs in
    this thread.
    """
    found: list[Found] = []
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    async def keep() -> None:
        found.append(await work())

    with Background(keep, lambda: ended.put(None)) as background:
        ended.get()
    background.result()
    return found[0]
