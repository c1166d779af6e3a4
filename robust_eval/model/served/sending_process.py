"""What a process does that sends requests for another one: ``python -m robust_eval.model.served.sending_process``.

Its standard input is a socket. The first message has the settings of the service and its key; each other one is a
request with a number, or a number alone: that request is wanted no more. It ends when the other end does.
"""

import asyncio
import socket
import sys
from typing import Any

from robust_eval.model.served.channel import Channel
from robust_eval.model.served.service import Answered, Answering, UnansweredError
from robust_eval.model.served.service_settings import ServiceSettings

READY = -1
"""The number of the message that a process has begun."""


class Sending:
    """The requests under way, by their numbers."""

    def __init__(self) -> None:
        self._channel = Channel(self._take, self._ended)
        self._greeting: asyncio.Future[tuple[ServiceSettings, str | None] | None] = asyncio.Future()
        self._end = asyncio.Event()
        self._service: Answering | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self, end: socket.socket) -> None:
        """Answer what comes until nothing can come any more."""
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=end)
        if (greeting := await self._greeting) is None:
            return
        settings, key = greeting
        async with settings.service(key) as self._service:
            self._channel.send((READY, None))
            await self._end.wait()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _take(self, message: Any) -> None:
        if not self._greeting.done():
            self._greeting.set_result(message)
            return
        number, *asked = message
        if asked:
            assert self._service is not None  # nothing is asked before it is READY
            self._tasks[number] = asyncio.create_task(self._ask(self._service, number, *asked))
        elif number in self._tasks:
            self._tasks[number].cancel()

    def _ended(self) -> None:
        self._end.set()
        if not self._greeting.done():
            self._greeting.set_result(None)

    async def _ask(self, service: Answering, number: int, *asked: Any) -> None:
        came: Answered | Exception
        try:
            came = await service.ask(*asked)
        except UnansweredError as problem:
            came = problem
        except Exception as problem:  # it is raised where the answer is awaited
            came = RuntimeError(f"{type(problem).__name__}: {problem}")
        finally:
            del self._tasks[number]
        self._channel.send((number, came))


def main() -> None:
    """Serve the socket that standard input is."""

    async def serve() -> None:
        await Sending().serve(socket.socket(fileno=sys.stdin.fileno()))

    asyncio.run(serve())


if __name__ == "__main__":
    main()
