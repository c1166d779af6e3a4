"""Messages between two processes of this program."""

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

_LENGTH = 8  # bytes


class Channel(asyncio.Protocol):
    """One end of a socket: messages are pickled, each after its length; those of one moment are sent together.

    ``take`` is called with each message that comes, ``ended`` once the other end is closed. A channel may be connected
    again, in another event loop: what had come of a message by then is kept.
    """

    def __init__(self, take: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._take, self._ended = take, ended
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, problem: Exception | None) -> None:
        if self._transport is not None:  # else it was closed here
            self._transport = None
            self._ended()

    def data_received(self, data: bytes) -> None:
        self._received += data
        start = 0
        while (content := start + _LENGTH) <= len(self._received):
            end = content + int.from_bytes(self._received[start:content])
            if end > len(self._received):
                break
            self._take(pickle.loads(self._received[content:end]))
            start = end
        del self._received[:start]

    def send(self, message: Any) -> None:
        """Send a message, with all others of this turn of the event loop."""
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += [len(content).to_bytes(_LENGTH), content]

    def _flush(self) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def close(self) -> bool:
        """Leave the event loop; tell whether all that was sent has gone."""
        self._flush()
        transport, self._transport = self._transport, None
        if transport is None:
            return False
        gone = not transport.get_write_buffer_size()
        transport.abort()
        return gone
