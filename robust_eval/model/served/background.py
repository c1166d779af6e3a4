"""Background threads that run coroutines."""

import _thread
import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Background:
    """Coroutine in a thread with its own event loop, in the background; an early end of the context cancels it.

    ``work`` makes the coroutine in the thread, so that an interrupt of the caller leaves no coroutine without an await.
    ``done`` is called at its end.

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
        except KeyboardInterrupt:  # after the start of the thread
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem: Any) -> None:
        self._left = True
        if self._loop is not None:  # without a loop the work never starts
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cancel)
        self._running.acquire()

    def result(self) -> None:
        """Raise the exception of the background coroutine, if any."""
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


def run_sync(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the coroutine that ``work`` makes, also below a running loop; return its result, or raise its exception."""
    results: list[Result] = []
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    async def keep() -> None:
        results.append(await work())

    with Background(keep, lambda: ended.put(None)) as background:
        ended.get()
    background.result()
    return results[0]
