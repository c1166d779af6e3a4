"""Processes that send requests for this one, where reading and writing HTTP takes more than one core."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from robust_eval.model.served.channel import Channel
from robust_eval.model.served.sending_process import READY
from robust_eval.model.served.service import Answered, Answering, UnansweredError
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.prompt.prompt import Prompt


class Senders:
    """Several processes that ask one service. This one decides what is sent and when; they wait for the replies.

    The processes begin with the first event loop for which they are ``opened``, and serve all later ones until
    :meth:`close`. One that ends before is replaced, and what it had been given is lost like what a connection loses
    (UnansweredError): it is asked again.
    """

    def __init__(self, processes: int, settings: ServiceSettings, key: str | None) -> None:
        self._number, self._service = processes, (settings, key)
        self._processes: list[_Process] = []
        self._numbers = count()
        self._broken: str | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Answering]:
        """Connect the processes with this event loop. One that has not answered all when it is left ends."""
        self._changed = asyncio.Event()
        self._replacing: set[asyncio.Task[None]] = set()
        self._broken = None
        try:
            while len(self._processes) < self._number:
                self._processes.append(_Process(self._begun, self._lost))
            for process in list(self._processes):  # one that ends meanwhile is taken out
                await process.connect(self._service)
            while not any(process.ready for process in self._processes) and self._broken is None:
                self._changed.clear()
                await self._changed.wait()
            yield self
        finally:
            self._processes = [process for process in self._processes if process.leave()]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.end()
        self._processes = []

    async def ask(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> Answered:
        """See :class:`Answering`; the process that has the least to do sends it."""
        while not (ready := [process for process in self._processes if process.ready]):
            if self._broken is not None:
                raise UnansweredError("fatal", self._broken)
            self._changed.clear()
            await self._changed.wait()
        process = min(ready, key=lambda each: len(each.asked))
        return await process.ask(next(self._numbers), prompt, system_role, settings)

    def _begun(self) -> None:
        self._changed.set()

    def _lost(self, process: "_Process") -> None:
        """Replace a process that has ended, unless it never began: another would not begin either. The others go on."""
        self._processes.remove(process)
        if process.ready:
            other = _Process(self._begun, self._lost)
            self._processes.append(other)
            connecting = asyncio.get_running_loop().create_task(other.connect(self._service))
            self._replacing.add(connecting)
            connecting.add_done_callback(self._replacing.discard)
        elif not self._processes:
            self._broken = f"a process that was to send requests did not begin (engine.processes={self._number})"
        self._changed.set()


class _Process:
    """A process, and the answers that it owes, by the numbers of their requests."""

    def __init__(self, begun: Callable[[], None], lost: Callable[["_Process"], None]) -> None:
        self._begun, self._lost = begun, lost
        self._channel = Channel(self._take, self._ended)
        self._greeted = self.ready = False
        self.asked: dict[int, asyncio.Future[Answered]] = {}
        self._end, its_end = socket.socketpair()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "robust_eval.model.served.sending_process"],
                stdin=its_end.fileno(),
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": paths},
                process_group=0,  # Ctrl-C is not for it: it ends when this process closes its end
            )

    async def connect(self, service: tuple[ServiceSettings, str | None]) -> None:
        """Serve this event loop; the first time the process is told the settings of the ``service`` and its key."""
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=self._end.dup())
        if not self._greeted:
            self._channel.send(service)
            self._greeted = True

    async def ask(self, number: int, *asked: Any) -> Answered:
        """Have a request sent; it is given up where nobody waits for its answer any more."""
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self.asked[number] = answer
        self._channel.send((number, *asked))
        try:
            return await answer
        finally:
            if self.asked.pop(number, None) is not None:
                self._channel.send((number,))

    def leave(self) -> bool:
        """Leave the event loop; tell whether the process can serve another one. If not, it ends."""
        clean = self._channel.close() and self.ready and not self.asked
        if not clean:
            self.end()
        return clean

    def end(self) -> None:
        """End the process, whatever it does."""
        self._end.close()
        self._process.kill()
        self._process.wait()

    def _take(self, message: Any) -> None:
        number, came = message
        if number == READY:
            self.ready = True
            self._begun()
        elif (answer := self.asked.pop(number, None)) is not None and not answer.done():
            if isinstance(came, Exception):
                answer.set_exception(came)
            else:
                answer.set_result(came)

    def _ended(self) -> None:
        self.end()
        self._lost(self)
        owed, self.asked = self.asked, {}
        for answer in owed.values():
            if not answer.done():
                answer.set_exception(UnansweredError("lost", "the process that sent it has ended"))
