"""HTTP with a server that need not mean well: replies of a bounded size, from where they were asked for alone."""

import math
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import openai

LARGEST_REPLY = 64 * 2**20
"""Bytes of a reply, as it is sent and as it is unpacked. A token with 20 log-probabilities takes about 2,500, so there
is room for an answer of 26,000 of them, or for millions of tokens without."""
LARGEST_FILE = 8 * 2**30
"""Bytes of the results of a batch."""
MOST_REDIRECTS = 5


class TooLargeError(Exception):
    """A reply beyond :data:`LARGEST_REPLY`."""

    def __init__(self) -> None:
        super().__init__(f"more than {LARGEST_REPLY / 2**20:.0f} MB in one reply")


class ElsewhereError(Exception):
    """A redirect to another ``origin`` (scheme, host and port), which is not followed."""

    def __init__(self, origin: str) -> None:
        super().__init__(f"the server sends on to {origin}, where nothing is asked unless model.base_url names it")


@cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context of every client. To read the certificates that it trusts takes 25 ms."""
    return httpx2.create_ssl_context()


class BoundedClient(openai.DefaultAioHttpClient):
    """The faster one of the library's two clients; raises TooLargeError and ElsewhereError."""

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Return the whole reply, unpacked; redirects are followed within the origin of the request."""
        origin = _origin(request.url)
        for _ in range(MOST_REDIRECTS):
            response = await super().send(request, **(how | {"stream": True, "follow_redirects": False}))
            reply = await _whole(response)
            if response.next_request is None:
                return reply
            request = response.next_request
            if _origin(request.url) != origin:
                raise ElsewhereError(_origin(request.url))
        raise httpx2.TooManyRedirects(f"more than {MOST_REDIRECTS} redirects", request=request)

    async def save(self, url: str, headers: Mapping[str, str], into: Path) -> httpx2.Response:
        """Write what is at an address into a file; return the reply, whole where it is an error.

        It has to come as it is, at most :data:`LARGEST_FILE` of it, and from that address itself.
        """
        request = self.build_request("GET", url, headers={**headers, "Accept-Encoding": "identity"})
        response = await super().send(request, stream=True, follow_redirects=False)
        if response.next_request is not None:
            await response.aclose()
            raise ElsewhereError(_origin(response.next_request.url))
        if response.status_code != HTTPStatus.OK or response.headers.get("content-encoding", "identity") != "identity":
            return await _whole(response)
        size = 0
        try:
            with into.open("wb") as file:
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > LARGEST_FILE:
                        raise TooLargeError
                    file.write(chunk)
        finally:
            await response.aclose()
        return httpx2.Response(response.status_code, request=request)


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def _whole(response: httpx2.Response) -> httpx2.Response:
    """Return a reply with all that it says. It is unpacked piece by piece, and as UTF-8 whatever it claims to be, for
    there are codecs that unpack as well.
    """
    try:
        sent = _Bounded()
        async for chunk in response.aiter_raw():
            sent.add(chunk)
    finally:
        await response.aclose()
    said = sent
    if "content-encoding" in response.headers:
        said = _Bounded()
        for piece in httpx2.Response(200, headers=response.headers, content=iter(sent.pieces)).iter_bytes():
            said.add(piece)
    headers = [(name, value) for name, value in response.headers.raw if not name.lower().startswith(b"content-")]
    return httpx2.Response(
        response.status_code, headers=headers, content=b"".join(said.pieces), request=response.request
    )


class _Bounded:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > LARGEST_REPLY:
            raise TooLargeError
        self.pieces.append(piece)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return seconds that a server asks to wait, from the headers of its reply; None if it does not say, or makes no
    sense.

    ``Retry-After`` is a number of seconds or a date (RFC 9110, §10.2.3); ``retry-after-ms``, which OpenAI sends beside
    it, is more exact. What is past is 0. ``now`` has a time zone.
    """
    values = {name.lower(): value for name, value in headers.items()}
    milliseconds = _number(values.get("retry-after-ms", ""))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = values.get("retry-after", "")
    seconds = _number(value)
    if seconds is None:
        seconds = _seconds_until(value, now)
    return None if seconds is None else max(0.0, seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except (ValueError, OverflowError):  # the latter of a time zone that is out of all bounds
        return None
    return ((then if then.tzinfo else then.replace(tzinfo=UTC)) - now).total_seconds()
