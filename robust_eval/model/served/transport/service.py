"""One request to a server that speaks OpenAI's protocol, and what came of it."""

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import aiohttp
import httpx2
import openai

from robust_eval.model.served.transport.client import (
    BoundedClient,
    ElsewhereError,
    TooLargeError,
    retry_after,
    tls_context,
)
from robust_eval.model.served.transport.token_logprobs import Position, Token, read_positions, read_tokens, storable
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.finish_reasons import ERROR, STOP, end_of
from robust_eval.runtime.text import printable

CHAT, PLAIN = "/chat/completions", "/completions"
"""Where a server is asked, below its address."""
FILTERED = "content_filter"
"""What servers call an answer, or the refusal of a prompt, that a content filter is behind."""

Sent = TypeVar("Sent")

MOST_TOKENS = 2**31 - 1
"""Of one answer: no server has counted more, and no table of answers has room for more."""


class Choice(NamedTuple):
    """One of the answers that a request brought. ``tokens`` is None where the server says nothing of them.

    ``finish_reason`` is stop, length, filter, tool or error (:mod:`robust_eval.runtime.finish_reasons`), and empty
    where the server gives none.
    """

    text: str
    finish_reason: str
    refused: bool
    tokens: list[Token] | None
    reasoning: str | None = None
    """What the server says apart from the text of how the model came to it."""
    unknown_reason: str | None = None
    """The server's word for the end where it is in no dialect; ``finish_reason`` is then a guess."""


class ServiceResponse(NamedTuple):
    """What a server answered: choices in their order, and what it counted."""

    choices: list[Choice]
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None
    """Those of the completion tokens that the model thought with; None where the server does not say."""
    cached_tokens: int | None = None
    """Those of the prompt tokens that the server had in its cache; None where it does not say."""
    served_model: str | None = None
    system_fingerprint: str | None = None
    """The server's ids of the model and of the build that answered; None where it gives none."""
    positions: Sequence[Sequence[Position]] = ()
    """Of each choice the likeliest tokens at each place, where they were asked for (:meth:`Service.ask_top_tokens`)."""


@dataclass
class UnansweredError(Exception):
    """A request that brought no answer.

    ``reason`` is one sentence without secrets. ``retry_after`` says how many seconds the server asks to wait. ``kind``:
    filtered (a content filter took the prompt), busy (429, 503), lost (no connection, no time left, a server in
    trouble: worth another try), garbled (a reply that cannot be read or believed: worth another try, but not a long
    wait), wrong (the server will never take this request), fatal (it will take none: key, model or quota).
    """

    kind: str
    reason: str
    retry_after: float | None = None
    status: int | None = None
    sent: bool = True
    """Whether the server may have begun to answer it."""

    @property
    def longest_wait(self) -> float:
        """Longest back-off before the next attempt: short for a garbled reply, which no time mends."""
        return SOON if self.kind == "garbled" else math.inf

    def __str__(self) -> str:
        return self.reason


class Answering(Protocol):
    """A service that answers prompts."""

    async def ask(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> ServiceResponse:
        """Return the answers to a prompt, with these settings of a request; raises UnansweredError."""


class Service:
    """A model behind a server; for one event loop, in which it is opened as a context.

    ``key`` may be read from nowhere but the environment, and stands in no sentence that this class says.
    """

    def __init__(self, base_url: str, model: str, key: str | None, chat: bool, connections: int) -> None:
        self._model = model
        self._key = key
        self._chat = chat
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        self.http = BoundedClient(limits=limits, timeout=None, verify=tls_context())
        self._client = openai.AsyncOpenAI(
            base_url=base_url, api_key=key or "none", max_retries=0, timeout=None, http_client=self.http
        )
        if "api.openai.com" not in base_url:  # the client takes them from the environment, for whatever server
            self._client.organization = self._client.project = None
        self._address = str(self._client.base_url).rstrip("/")
        self._url = self._at(self.path)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self._client.__aexit__(*problem)

    async def ask(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> ServiceResponse:
        """Return the answers to a prompt, with these settings in the body of the request; raises UnansweredError.

        There is no limit of time: whoever asks sets one.
        """
        return self._answered(await self._posted(self._url, self.body(prompt, system_role, settings)), self._chat)

    async def ask_top_tokens(self, path: str, asked: Mapping[str, Any]) -> ServiceResponse:
        """Return what comes of a body that is sent to a path, with the tokens that were likeliest at each place; raises
        UnansweredError.
        """
        text = await self._posted(self._at(path), {"model": self._model, **asked})
        answered = self._answered(text, path == CHAT)
        try:
            each = _in_order(json.loads(text)["choices"])[: len(answered.choices)]
            return answered._replace(positions=[read_positions(choice.get("logprobs")) for choice in each])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UnansweredError("garbled", "the server sent log-probabilities that cannot be read") from None

    async def asked_root(self, path: str, asked: Mapping[str, Any]) -> Any:
        """Return what the server says, as JSON, at a path beside the part of its address that all protocols of
        OpenAI's kind share (``/v1``); raises UnansweredError.
        """
        url = httpx2.URL(f"{self._address.removesuffix('/v1')}{path}")
        text = await self._posted(url, {"model": self._model, **asked})
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise UnansweredError("wrong", f"what the server says at {path} cannot be read") from None

    def _at(self, path: str) -> httpx2.URL:
        return httpx2.URL(f"{self._address}{path}")

    async def _posted(self, url: httpx2.URL, body: Mapping[str, Any]) -> str:
        """Return the text of a reply; raises UnansweredError where it is an error."""
        content = json.dumps(body).encode()
        # past the official client, which takes longer for a request than all of this class: its headers are made once
        reply = await self.sent(
            lambda: self.http.send(httpx2.Request("POST", url, headers=self._headers, content=content))
        )
        if not reply.is_success:
            try:
                said = json.loads(reply.text)
            except (ValueError, RecursionError):
                said = None
            raise self._refused_body(reply.status_code, said, reply.headers, reply.text or str(reply))
        return reply.text

    @property
    def path(self) -> str:
        """Where the server is asked, beside its address."""
        return CHAT if self._chat else PLAIN

    def body(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is sent for a prompt."""
        asked = {"messages": prompt.messages(system_role)} if self._chat else {"prompt": prompt.text()}
        return {"model": self._model, **asked, **settings}

    @cached_property
    def _headers(self) -> httpx2.Headers:
        made = httpx2.Headers(self.http.headers, encoding="ascii")
        made.update(self.headers())
        return made

    def headers(self) -> dict[str, str]:
        """Return what the official client says of the key, but not what machine it runs on."""
        said = {**self._client.default_headers, **self._client.auth_headers}
        kept = {name: value for name, value in said.items() if not name.startswith("X-Stainless")}
        return {name: value for name, value in kept.items() if isinstance(value, str)}

    @property
    def client(self) -> openai.AsyncOpenAI:
        """The official client, for what is no question: files and batches."""
        return self._client

    async def sent(self, send: Callable[[], Awaitable[Sent]]) -> Sent:
        """Return what the client brings; raises UnansweredError where that is no good reply."""
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise UnansweredError("fatal", "the key has characters that no key has")
        try:
            return await send()
        except openai.APIStatusError as problem:
            body = problem.body  # the client has taken it out of "error"
            raise self._refusal(
                problem.status_code, body, problem.response.headers, problem.response.text or problem.message
            ) from None  # what it came from may hold the key
        except (TooLargeError, httpx2.TooManyRedirects) as problem:
            raise UnansweredError("garbled", self.clean(f"the server sent {problem}")) from None
        except (
            openai.APIConnectionError,
            httpx2.HTTPError,
            httpx2.InvalidURL,
            aiohttp.ClientError,
            OSError,
        ) as problem:
            raise self._lost(problem) from None
        except ElsewhereError as problem:
            raise UnansweredError("fatal", self.clean(str(problem))) from None

    def read(self, status: int, body: Any) -> ServiceResponse:
        """Return the answers in a reply that came another way, as in the results of a batch; raises UnansweredError."""
        if status == HTTPStatus.OK:
            return self._answered(json.dumps(body), self._chat)
        raise self._refused_body(status, body, {}, str(body))

    def _refused_body(self, status: int, body: Any, headers: Mapping[str, str], text: str) -> UnansweredError:
        """Return what a reply with an error status and this body means."""
        return self._refusal(status, body.get("error", body) if isinstance(body, Mapping) else body, headers, text)

    def _refusal(self, status: int, error: object, headers: Mapping[str, str], text: str) -> UnansweredError:
        """Return what a reply with an error status means."""
        body = error if isinstance(error, Mapping) else {}
        said = f"{body.get('code')} {body.get('type')}"
        kind = "wrong"
        metadata = body.get("metadata")  # of OpenRouter
        flagged = isinstance(metadata, Mapping) and ("reasons" in metadata or "flagged_input" in metadata)
        if flagged or FILTERED in said or FILTERED in str(body.get("innererror")):
            kind = "filtered"
        elif "insufficient_quota" in said or status in FATAL:
            kind = "fatal"
        elif status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            kind = "busy"
        elif status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = "lost"
        waits = retry_after(headers, datetime.now(UTC))
        said = body.get("message") or text
        return UnansweredError(kind, f"{status} {self.clean(str(said))[:300]}".strip(), waits, status)

    def _lost(self, problem: Exception) -> UnansweredError:
        """Return what it means that no whole reply came; the library for HTTP names the causes most exactly."""
        wrapped = problem.__cause__ if isinstance(problem, openai.APIConnectionError) else None
        causes: list[BaseException] = [wrapped or problem]
        while (cause := causes[-1].__cause__) is not None:
            causes.append(cause)
        telling = next((c for c in reversed(causes) if isinstance(c, OSError | aiohttp.ClientError)), causes[0])
        sent = not any(isinstance(cause, aiohttp.ClientConnectorError) for cause in causes)
        return UnansweredError("lost", self.clean(f"{type(telling).__name__}: {telling}".strip(": ")), sent=sent)

    def _answered(self, text: str, chat: bool) -> ServiceResponse:
        """Return a reply as its parts; UnansweredError where it is none."""
        try:
            reply = json.loads(text)
            each = _in_order(reply["choices"])
            choices = [_choice(one, chat) for one in each]
            usage = reply.get("usage") or {}
            tokens = [counted(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
            details = usage.get("completion_tokens_details") or {}
            thought = details.get("reasoning_tokens", usage.get("reasoning_tokens"))
            thought = None if thought is None else counted(thought)
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            cached = None if cached is None else min(counted(cached), tokens[0])
            names = [self.name(reply.get(column)) for column in ("model", "system_fingerprint")]
        except CountError as problem:
            raise UnansweredError("garbled", self.clean(str(problem))) from None
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            # a gateway says so that the server behind it is down
            kind = "lost" if text.lstrip().startswith('{"error"') else "garbled"
            raise UnansweredError(kind, f"the server sent no completion: {self.clean(text)[:80]!r}") from None
        if not choices:
            raise UnansweredError("garbled", "the server sent no choices")
        whole = list(takewhile(lambda choice: choice.finish_reason != ERROR, choices))
        if not whole:
            raise self._broken_off(each[0], choices[0])
        return ServiceResponse(whole, tokens[0], tokens[1], thought, cached, names[0], names[1])

    def _broken_off(self, choice: Mapping[str, Any], read: Choice) -> UnansweredError:
        """Return what it means that an error ended a choice: it is worth another try, unless a filter was behind it."""
        error = choice.get("error")
        if isinstance(error, Mapping):
            code = error.get("code")
            refusal = self._refusal(code if type(code) is int else 0, error, {}, str(error))
            kind = refusal.kind if refusal.kind in ("filtered", "busy") else "lost"
            return UnansweredError(kind, f"the server broke a reply off: {refusal.reason.removeprefix('0 ')}")
        if read.unknown_reason is not None:
            said = self.clean(read.unknown_reason)[:80]
            return UnansweredError("lost", f"the server sent no text, and finish_reason {said!r}, which is not known")
        said = self.clean(str(choice.get("finish_reason")))[:80]
        return UnansweredError("lost", f"the server broke a reply off, with finish_reason {said!r}")

    def name(self, said: object) -> str | None:
        """Return a name that the server gives, short and printable; None where it is none."""
        return printable(self.clean(storable(said))[:MOST_NAMED]) or None if isinstance(said, str) else None

    def clean(self, said: str) -> str:
        """Write a text in one line, without the key."""
        said = said.replace(self._key, "…") if self._key else said
        return " ".join(said[:MOST_SAID].split())


MOST_SAID = 10_000  # characters of what a server says that are looked at
MOST_NAMED = 200  # characters of a name that a server gives
AGAIN = ("busy", "lost", "garbled")
"""Kinds of errors after which the same request is worth another try."""
SOON = 2.0
"""Seconds of the longest back-off after a reply that cannot be read or believed."""
FATAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.PAYMENT_REQUIRED)
PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT)


class CountError(Exception):
    """A server counted something else than tokens."""


def counted(said: Any) -> int:
    """Return how many tokens a server says that it counted; 0 where it says nothing."""
    if said is None:
        return 0
    if type(said) is not int or not 0 <= said <= MOST_TOKENS:
        raise CountError(
            f"the server counted {str(said)[:80]!r} tokens, and a whole number from 0 to {MOST_TOKENS:,} is wanted"
        )
    return said


def _in_order(choices: Sequence[Any]) -> list[Any]:
    """Return choices by their numbers, or as they stand where none has one; raises KeyError or TypeError where only
    some have.
    """
    numbered = [each for each in choices if each.get("index") is not None]
    return sorted(choices, key=lambda each: each["index"]) if numbered else list(choices)


def _end(reason: str, text: str, error: object) -> tuple[str, str | None]:
    """Return why a reply ended, and the server's word for that where it is not known; without a text such a reply is
    an error.
    """
    if error:
        return ERROR, None
    end = end_of(reason) or ""
    if end or not reason:
        return end, None
    return STOP if text.strip() else ERROR, reason


def _choice(choice: Mapping[str, Any], chat: bool) -> Choice:
    message = choice["message"] if chat else {"content": choice["text"]}
    refusal = message.get("refusal")
    content, thought = message.get("content"), [message.get(name) for name in ("reasoning_content", "reasoning")]
    if isinstance(content, list):  # parts, of which some are reasoning (Mistral)
        thought += [_joined(part.get("thinking")) for part in content if part.get("type") == "thinking"]
        content = "".join(storable(part["text"]) for part in content if part.get("type") == "text")
    reasoning = next((storable(text) for text in thought if text and isinstance(text, str)), None)
    text = storable(content or refusal or "")
    end, unknown = _end(storable(choice.get("finish_reason") or ""), text, choice.get("error"))
    return Choice(text, end, bool(refusal), read_tokens(choice.get("logprobs")), reasoning, unknown)


def _joined(parts: Any) -> str:
    """Return the text of parts of a message, or of the one that is a text itself."""
    return parts if isinstance(parts, str) else "".join(storable(part["text"]) for part in parts or ())
