"""Client of a server with OpenAI's protocol: its requests and responses."""

import json
import math
import os
import ssl
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, Self

import aiohttp
import httpx2

from robust_eval.model.served.transport.client import (
    BoundedClient,
    ElsewhereError,
    TooLargeError,
    retry_after,
    tls_context,
)
from robust_eval.model.served.transport.token_logprobs import Position, Token, read_positions, read_tokens, storable
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.finish_reasons import ERROR, FILTER, STOP, end_of
from robust_eval.runtime.text import printable

CHAT, PLAIN = "/chat/completions", "/completions"
"""Paths below the address of a server."""
FILTERED = "content_filter"
"""Word of servers for an answer, or a refusal of a prompt, by a content filter."""

MAX_TOKENS = 2**31 - 1
"""Maximum number of tokens of one answer, by the column of the answer table."""


class Choice(NamedTuple):
    """One answer of a service's response. ``tokens`` is None without log-probabilities.

    ``finish_reason`` is stop, length, filter, tool or error (:mod:`robust_eval.runtime.finish_reasons`), or empty if
    the server gives none.
    """

    text: str
    finish_reason: str
    refused: bool
    tokens: list[Token] | None
    reasoning: str | None = None
    """Reasoning that the server separates from the text."""
    unknown_reason: str | None = None
    """The server's finish reason if it is unknown; ``finish_reason`` is then a guess."""


class ServiceResponse(NamedTuple):
    """Response of a service: choices in their order, and the token usage."""

    choices: list[Choice]
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None
    """Completion tokens of the reasoning; None if the server does not count them."""
    cached_tokens: int | None = None
    """Prompt tokens from the server's cache; None if the server does not count them."""
    served_model: str | None = None
    system_fingerprint: str | None = None
    """The server's ids of the model and of the build that answered; None if it gives none."""
    positions: Sequence[Sequence[Position]] = ()
    """Top-k tokens at each position of each choice, if requested (:meth:`Service.ask_top_tokens`)."""


@dataclass
class UnansweredError(Exception):
    """Request to a service that got no answer.

    ``reason`` is one sentence without secrets, ``retry_after`` the back-off in seconds that the server requests.
    ``kind``: filtered (a content filter blocked the prompt), busy (429, 503), lost (no connection, a timeout, a fault
    of the server: worth a retry), garbled (an unreadable or invalid reply: worth a retry after a short back-off), wrong
    (the server will never accept this request), fatal (it will accept none: key, model or quota).
    """

    kind: str
    reason: str
    retry_after: float | None = None
    status: int | None = None
    sent: bool = True
    """The server may have begun to answer."""

    @property
    def longest_wait(self) -> float:
        """Longest back-off before the next attempt, in seconds: short after a garbled reply."""
        return SOON if self.kind == "garbled" else math.inf

    def __str__(self) -> str:
        return self.reason


class Answering(Protocol):
    """Protocol of a service that answers prompts."""

    async def ask(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> ServiceResponse:
        """Return the service's response to a prompt, with these settings of a request; raises UnansweredError."""


class Service:
    """Client of a model behind a server; for one event loop, in which it is opened as a context.

    No message of this class contains ``key``. ``path`` is that of completions below the ``address``.
    """

    def __init__(self, base_url: str, model: str, key: str | None, chat: bool, connections: int) -> None:
        self._model = model
        self._key = key
        self._chat = chat
        self.path = CHAT if chat else PLAIN
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        self.http = BoundedClient(limits=limits, timeout=None, verify=tls_context())
        self.address = str(httpx2.URL(base_url)).rstrip("/")
        self.headers = dict(self.http.headers) | {
            "accept": "application/json",
            "authorization": f"Bearer {key or 'none'}",
            "content-type": "application/json",
            "user-agent": "robust_eval",
        }
        if "api.openai.com" in base_url:
            self.headers |= {header: value for name, header in _ACCOUNT.items() if (value := os.environ.get(name))}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self.http.aclose()

    async def ask(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> ServiceResponse:
        """Return the service's response to a prompt, with these settings in the request's body; raises UnansweredError.

        There is no timeout: the caller sets one.
        """
        text = await self.request("POST", self.path, self.body(prompt, system_role, settings))
        return self._parse(text, self._chat)

    async def ask_top_tokens(self, path: str, body: Mapping[str, Any]) -> ServiceResponse:
        """Return the response to a body at a path, with the top-k tokens at each position; raises UnansweredError."""
        text = await self.request("POST", path, {"model": self._model, **body})
        return self._parse(text, path == CHAT, top_tokens=True)

    async def ask_root(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the service's JSON response at a path of its root, without ``/v1``; raises UnansweredError."""
        text = await self.request("POST", path, {"model": self._model, **body}, self.address.removesuffix("/v1"))
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise UnansweredError("wrong", f"the response at {path} is not JSON") from None

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        address: str = "",
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> str:
        """Return the text of a service's response; raises UnansweredError for an error status.

        The ``body`` is sent as JSON; ``options`` are those of httpx2.Request.
        """
        # without the official client, which takes longer for a request than all of this class
        options |= {} if body is None else {"content": json.dumps(body).encode()}
        sent = {**self.headers, **(headers or {})}
        request = httpx2.Request(method, (address or self.address) + path, headers=sent, **options)
        reply = await self.send(self.http.send(request))
        if not reply.is_success:
            raise self.refused(reply)
        return reply.text

    def refused(self, reply: httpx2.Response) -> UnansweredError:
        """Return the error of a service's response with an error status."""
        try:
            error = json.loads(reply.text)
        except (ValueError, RecursionError):
            error = None
        problem = self._refusal(reply.status_code, error, reply.headers, reply.text or str(reply))
        has_error_object = isinstance(error, Mapping) and ("error" in error or "message" in error)
        if reply.status_code == HTTPStatus.NOT_FOUND and not has_error_object and reply.url.path.endswith(self.path):
            problem.reason += f"; correct model.base_url: it must not include {self.path}, and usually ends in /v1"
        return problem

    def body(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request to the service: the model, the prompt and these settings."""
        body = {"messages": prompt.messages(system_role)} if self._chat else {"prompt": prompt.text()}
        return {"model": self._model, **body, **settings}

    async def send(self, response: Awaitable[httpx2.Response]) -> httpx2.Response:
        """Return a response of the service's HTTP client; raises UnansweredError for an error."""
        try:
            return await response
        except (TooLargeError, httpx2.TooManyRedirects) as problem:
            raise UnansweredError("garbled", self.clean(f"the server sent {problem}")) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, aiohttp.ClientError, OSError) as problem:
            raise self._lost(problem) from None  # its cause may hold the key
        except ElsewhereError as problem:
            raise UnansweredError("fatal", self.clean(str(problem))) from None

    def read(self, status: int, body: Any) -> ServiceResponse:
        """Return the service's response in the results of a batch; raises UnansweredError."""
        if status == HTTPStatus.OK:
            return self._parse(json.dumps(body), self._chat)
        raise self._refusal(status, body, {}, str(body))

    def _refusal(self, status: int, response: object, headers: Mapping[str, str], text: str) -> UnansweredError:
        """Return the error for an error status and the response's body, or its choice, with an error object."""
        body = _mapping(response)
        body = _mapping(body.get("error", body))
        metadata = body.get("metadata")  # of OpenRouter
        provider = _provider_error(metadata)
        codes = " ".join(str(each.get(name)) for each in (body, provider) for name in ("code", "type"))
        unsupported = UNSUPPORTED in str(body.get("message"))
        kind = "wrong"
        flagged = isinstance(metadata, Mapping) and ("reasons" in metadata or "flagged_input" in metadata)
        if flagged or FILTERED in codes or FILTERED in str(body.get("innererror")):
            kind = "filtered"
        elif "insufficient_quota" in codes or (status in FATAL and not unsupported):
            kind = "fatal"
        elif status in BUSY:
            kind = "busy"
        elif status in TRANSIENT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = "lost"
        waits = retry_after(headers, datetime.now(UTC))
        message = ": ".join(str(each["message"]) for each in (body, provider) if each.get("message")) or text
        return UnansweredError(kind, f"{status} {self.clean(message)[:300]}".strip(), waits, status)

    def _lost(self, problem: Exception) -> UnansweredError:
        """Return the error for an incomplete response, with the innermost cause, which is the most exact."""
        causes: list[BaseException] = [problem]
        while (cause := causes[-1].__cause__) is not None:
            causes.append(cause)
        cause_named = next((c for c in reversed(causes) if isinstance(c, OSError | aiohttp.ClientError)), causes[0])
        sent = not any(isinstance(cause, aiohttp.ClientConnectorError) for cause in causes)
        reason = f"{type(cause_named).__name__}: {cause_named}".strip(": ")
        if any(isinstance(cause, aiohttp.ClientProxyConnectionError) for cause in causes):
            reason = f"the proxy failed ({reason}); start it, or remove HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
        elif isinstance(cause_named, ssl.SSLCertVerificationError):
            reason += "; set SSL_CERT_FILE to a file with its certificate if you trust it"
        elif isinstance(cause_named, ConnectionRefusedError):
            reason = "the connection was refused; start the server, or correct model.base_url"
        return UnansweredError("lost", self.clean(reason), sent=sent)

    def _parse(self, text: str, chat: bool, top_tokens: bool = False) -> ServiceResponse:
        """Parse a service's response, with positions if it has ``top_tokens``; raises UnansweredError if it is none."""
        try:
            reply = json.loads(text)
            each = _in_order(reply["choices"])
            choices = [_choice(one, chat) for one in each]
            positions = [read_positions(one.get("logprobs")) for one in each] if top_tokens else ()
            usage = reply.get("usage") or {}
            prompt, completion = (counted(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
            details = usage.get("completion_tokens_details") or {}
            reasoning = details.get("reasoning_tokens", usage.get("reasoning_tokens"))
            reasoning = None if reasoning is None else counted(reasoning)
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            cached = None if cached is None else min(counted(cached), prompt)
            model, fingerprint = (self._name(reply.get(column)) for column in ("model", "system_fingerprint"))
        except CountError as problem:
            raise UnansweredError("garbled", self.clean(str(problem))) from None
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            # of a gateway whose server is down
            kind = "lost" if text.lstrip().startswith('{"error"') else "garbled"
            raise UnansweredError(kind, f"the server sent no completion: {self.clean(text)[:80]!r}") from None
        if not choices:
            raise UnansweredError("garbled", "the server sent no choices")
        whole = list(takewhile(lambda choice: choice.finish_reason != ERROR, choices))
        if not whole:
            raise self._broken_off(each[0], choices[0])
        counts = prompt, completion, reasoning, cached
        return ServiceResponse(whole, *counts, model, fingerprint, positions[: len(whole)])

    def _broken_off(self, choice: Mapping[str, Any], read: Choice) -> UnansweredError:
        """Return the error of a choice that a service's error ended: worth a retry, unless a filter ended it."""
        error = choice.get("error")
        if isinstance(error, Mapping):
            code = error.get("code")
            refusal = self._refusal(code if type(code) is int else 0, choice, {}, str(error))
            kind = refusal.kind if refusal.kind in ("filtered", "busy") else "lost"
            return UnansweredError(kind, f"the server cut a reply off: {refusal.reason.removeprefix('0 ')}")
        if read.unknown_reason is not None:
            message = self.clean(read.unknown_reason)[:80]
            return UnansweredError("lost", f"the server sent no text, and an unknown finish_reason {message!r}")
        message = self.clean(str(choice.get("finish_reason")))[:80]
        return UnansweredError("lost", f"the server cut a reply off, with finish_reason {message!r}")

    def _name(self, value: object) -> str | None:
        """Return a name from the service, short and printable; None if it is none."""
        return printable(self.clean(storable(value))[:MAX_NAME]) or None if isinstance(value, str) else None

    def clean(self, text: str) -> str:
        """Return a text of the service in one line, without the key."""
        text = text.replace(self._key, "…") if self._key else text
        return " ".join(text[:MAX_TEXT].split())


_ACCOUNT = {"OPENAI_ORG_ID": "openai-organization", "OPENAI_PROJECT_ID": "openai-project"}
"""Variables and headers of an account at OpenAI."""
MAX_TEXT = 10_000  # maximum number of characters of a server's text in a message
MAX_NAME = 200  # maximum number of characters of a server's name
AGAIN = ("busy", "lost", "garbled")
"""Kinds of errors that are worth a retry."""
SOON = 2.0
"""Maximum back-off, in seconds, after a garbled reply."""
UNSUPPORTED = "requested parameters"
"""Part of OpenRouter's message, with status 404, that no provider accepts the settings of a request."""
FATAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.PAYMENT_REQUIRED)
BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
TRANSIENT = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _provider_error(metadata: object) -> Mapping[str, Any]:
    """Return the error of OpenRouter's provider in the metadata of an error; empty without one."""
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    try:
        error = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        return {"message": raw}
    error = error.get("error", error) if isinstance(error, Mapping) else {"message": raw}
    return error if isinstance(error, Mapping) else {"message": error}


class CountError(Exception):
    """Invalid token usage in a service's response."""


def counted(value: Any) -> int:
    """Return a token count of a service's response; 0 without one. Raises CountError."""
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise CountError(
            f"the server counted {str(value)[:80]!r} tokens, which is not a whole number from 0 to {MAX_TOKENS:,}"
        )
    return value


def _in_order(choices: Sequence[Any]) -> list[Any]:
    """Return a response's choices by index, or as they are without indices; raises KeyError or TypeError if mixed."""
    has_index = any(each.get("index") is not None for each in choices)
    return sorted(choices, key=lambda each: each["index"]) if has_index else list(choices)


def _end(reason: str, text: str, error: object) -> tuple[str, str | None]:
    """Return a choice's finish reason, and the service's word if unknown; without a text such a reply is an error."""
    if error:
        return ERROR, None
    end = end_of(reason) or ""
    if end or not reason:
        return end, None
    return STOP if text.strip() else ERROR, reason


def _choice(choice: Mapping[str, Any], chat: bool) -> Choice:
    blocked = "message" not in choice and end_of(choice.get("finish_reason")) == FILTER  # Gemini
    message = {} if blocked and chat else choice["message"] if chat else {"content": choice["text"]}
    refusal = message.get("refusal")
    content = message.get("content")
    reasoning_texts = [message.get(name) for name in ("reasoning_content", "reasoning")]
    if isinstance(content, list):  # parts, of which some are reasoning (Mistral)
        reasoning_texts += [_joined(part.get("thinking")) for part in content if part.get("type") == "thinking"]
        content = "".join(storable(part["text"]) for part in content if part.get("type") == "text")
    reasoning = next((storable(text) for text in reasoning_texts if text and isinstance(text, str)), None)
    text = storable(content or refusal or "")
    end, unknown = _end(storable(choice.get("finish_reason") or ""), text, choice.get("error"))
    return Choice(text, end, bool(refusal), read_tokens(choice.get("logprobs")), reasoning, unknown)


def _joined(parts: Any) -> str:
    """Return the text of the parts of a service's message, which may be one text."""
    return parts if isinstance(parts, str) else "".join(storable(part["text"]) for part in parts or ())
