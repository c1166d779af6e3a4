"""HTTP client for untrusted servers: responses have a maximum size, and redirects stay within the origin."""

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

MAX_RESPONSE = 64 * 2**20
"""Maximum size of a response in bytes, compressed and decompressed. A token with 20 log-probabilities takes about
2,500, so an answer may have 26,000 of them, or millions of tokens without."""
MAX_FILE = 8 * 2**30
"""Maximum size of the results of a batch in bytes."""
MAX_REDIRECTS = 5


class TooLargeError(Exception):
    """Failure of the HTTP client: a response is larger than :data:`MAX_RESPONSE`."""

    def __init__(self) -> None:
        super().__init__(f"a response of more than {MAX_RESPONSE / 2**20:.0f} MB")


class ElsewhereError(Exception):
    """Failure of the HTTP client: a response redirects to another ``origin`` (scheme, host and port)."""

    def __init__(self, origin: str) -> None:
        super().__init__(f"the server redirects to {origin}: set model.base_url to that address if you trust it")


@cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context of all HTTP clients; its certificates take 25 ms to read."""
    return httpx2.create_ssl_context()


class BoundedClient(openai.DefaultAioHttpClient):
    """HTTP client with limits, by the faster of the library's clients. Raises TooLargeError and ElsewhereError."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Return the whole HTTP response, decompressed; redirects are followed within the origin of the request."""
        origin = _origin(request.url)
        for _ in range(MAX_REDIRECTS):
            response = await super().send(request, **(options | {"stream": True, "follow_redirects": False}))
            complete = await _bounded(response)
            if response.next_request is None:
                return complete
            request = response.next_request
            if _origin(request.url) != origin:
                raise ElsewhereError(_origin(request.url))
        raise httpx2.TooManyRedirects(f"more than {MAX_REDIRECTS} redirects", request=request)

    async def save(self, url: str, headers: Mapping[str, str], into: Path) -> httpx2.Response:
        """Download an address by HTTP into a file; return the response, with its body if it is an error.

        The content must be uncompressed, at most :data:`MAX_FILE`, and from that address itself.
        """
        request = self.build_request("GET", url, headers={**headers, "accept-encoding": "identity"})
        response = await super().send(request, stream=True, follow_redirects=False)
        if response.next_request is not None:
            await response.aclose()
            raise ElsewhereError(_origin(response.next_request.url))
        if response.status_code != HTTPStatus.OK or response.headers.get("content-encoding", "identity") != "identity":
            return await _bounded(response)
        size = 0
        try:
            with into.open("wb") as file:
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > MAX_FILE:
                        raise TooLargeError
                    file.write(chunk)
        finally:
            await response.aclose()
        return httpx2.Response(response.status_code, request=request)


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def _bounded(response: httpx2.Response) -> httpx2.Response:
    """Return an HTTP response with its body, decompressed piece by piece, and as UTF-8 whatever its declared encoding:
    some codecs decompress as well.
    """
    try:
        sent = _Bounded()
        async for chunk in response.aiter_raw():
            sent.add(chunk)
    finally:
        await response.aclose()
    content = sent
    if "content-encoding" in response.headers:
        content = _Bounded()
        for piece in httpx2.Response(200, headers=response.headers, content=iter(sent.pieces)).iter_bytes():
            content.add(piece)
    headers = [(name, value) for name, value in response.headers.raw if not name.lower().startswith(b"content-")]
    return httpx2.Response(
        response.status_code, headers=headers, content=b"".join(content.pieces), request=response.request
    )


class _Bounded:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MAX_RESPONSE:
            raise TooLargeError
        self.pieces.append(piece)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the back-off in seconds that the HTTP headers of a response request; None without a valid one.

    ``Retry-After`` is a number of seconds or a date (RFC 9110, §10.2.3); OpenAI's ``retry-after-ms`` is more exact. A
    past date is 0. ``now`` has a time zone.
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
    except (ValueError, OverflowError):  # the latter for an invalid time zone
        return None
    return ((then if then.tzinfo else then.replace(tzinfo=UTC)) - now).total_seconds()
