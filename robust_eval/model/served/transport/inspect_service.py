"""Requests through a provider of inspect_ai, and its responses."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Self

from inspect_ai.model import (
    BatchConfig,
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    ResponseSchema,
    get_model,
)
from inspect_ai.util import JSONSchema
from rich.errors import MarkupError
from rich.text import Text

from robust_eval.error import UserError
from robust_eval.model.served.transport.service import (
    BUSY,
    FATAL,
    MAX_NAME,
    MAX_TEXT,
    TRANSIENT,
    UNSUPPORTED,
    Choice,
    CountError,
    ServiceResponse,
    UnansweredError,
    counted,
)
from robust_eval.model.served.transport.token_logprobs import Token, storable
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.finish_reasons import end_of
from robust_eval.runtime.text import printable

log = logging.getLogger(__name__)

BATCH_TICK = 15.0
"""Seconds between two requests for the state of batches, and until a batch of few requests is sent."""
BATCH_RETRIES = 10
"""Maximum number of retries of the requests that create a batch and read its results."""
_MESSAGES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
_FIELDS = {
    "max_tokens": "max_tokens",
    "n": "num_choices",
    **{
        name: name
        for name in ("temperature", "top_p", "seed", "logprobs", "top_logprobs", "reasoning_effort", "effort", "batch")
    },
}
"""Settings of a request: OpenAI's names, and inspect_ai's."""
_UNCHECKED = (_FIELDS.keys() | {"response_format"}) - {"temperature", "top_p"}
"""Settings whose effect the response shows, or for which providers have words of their own."""
_UNSENT = ("ConnectError", "ConnectTimeout", "ConnectionRefusedError", "EndpointConnectionError")
"""Errors of clients without a connection."""


class InspectService:
    """Client of a model of a provider of inspect_ai; for one event loop, in which it is opened as a context.

    It calls the provider without ``Model.generate``, which has its own retries, connection limits and cache, and keeps
    every call in memory. The retries of the clients of OpenAI and Anthropic are turned off. ``connections`` is the
    maximum number of open connections.
    """

    def __init__(self, model: str, base_url: str | None, model_args: Mapping[str, Any], connections: int) -> None:
        self._model = model
        self._base_url = base_url
        self._model_args = model_args
        self._connections = connections

    async def __aenter__(self) -> Self:
        self._api = self._provider()
        self._refused_batch: asyncio.Future[str] | None = None
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self._api.aclose()

    async def ask(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> ServiceResponse:
        """Return inspect_ai's response to a prompt, with these settings of a request; raises UnansweredError.

        The names of settings are those of OpenAI's protocol. A setting that the provider drops is refused, if its
        record of the request shows that. There is no timeout: the caller sets one.
        """
        messages: list[ChatMessage] = [_MESSAGES[m["role"]](content=m["content"]) for m in prompt.messages(system_role)]
        try:
            result = await self._generated(messages, _config(settings))
        except UnansweredError:
            raise
        except Exception as problem:  # of any client
            raise self._refusal(problem) from None  # its cause may hold the key
        output, call = result if isinstance(result, tuple) else (result, None)
        if isinstance(output, Exception):
            raise self._refusal(output)
        if call is not None and (dropped := _dropped(settings, call.request)):
            raise UnansweredError("wrong", f"inspect_ai does not send {dropped} to {self._model}")
        if not output.choices:
            raise UnansweredError("garbled", f"{self._model} sent no choices")
        if output.usage is None or (call is not None and call.error):  # a refusal that inspect_ai turns into a reply
            text = self.clean(output.error or output.completion)
            if output.stop_reason == "content_filter":
                raise UnansweredError("filtered", text)
            if output.stop_reason == "model_length":
                raise UnansweredError("wrong", text)
        return self._response(output)

    async def _generated(self, messages: list[ChatMessage], config: GenerateConfig) -> Any:
        """Return the result of inspect_ai's provider. Raises its errors, and UnansweredError after it has refused a
        batch: the batches of inspect_ai then end, and requests would wait for good.
        """
        if not config.batch:
            return await self._api.generate(messages, [], "none", config)
        if self._refused_batch is None:
            from inspect_ai.model._providers.util import batch_log

            self._refused_batch = asyncio.get_running_loop().create_future()
            batch_log.set_batch_log_callback(self._note_batch)  # it prints otherwise
            batch_log.set_batch_status_callback(lambda _: None)
        call = asyncio.ensure_future(self._api.generate(messages, [], "none", config))
        either: set[asyncio.Future[Any]] = {call, self._refused_batch}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            raise UnansweredError("fatal", self._refused_batch.result())
        finally:
            call.cancel()

    def _note_batch(self, message: str) -> None:
        """Log a message of inspect_ai on batches, and end them if the provider has refused one."""
        log.info("%s", self.clean(message))
        if message.startswith("Error creating batch") and self._refused_batch and not self._refused_batch.done():
            self._refused_batch.set_result(self.clean(message))

    def clean(self, text: str) -> str:
        """Return a text from the provider in one line, without the key."""
        for key in (self._api.api_key, self._api.initial_api_key):
            text = text.replace(key, "…") if key else text
        return " ".join(text[:MAX_TEXT].split())

    def _provider(self) -> ModelAPI:
        """Return the provider of inspect_ai; UserError if it does not exist, or lacks a package or a key."""
        try:
            config = GenerateConfig(max_connections=self._connections, max_retries=0)
            model = get_model(self._model, config=config, base_url=self._base_url, memoize=False, **self._model_args)
        except Exception as problem:  # of any client
            text = str(getattr(problem, "message", problem))
            with suppress(MarkupError):
                text = Text.from_markup(text).plain
            raise UserError(
                f"inspect_ai cannot load model.model={self._model}: "
                + " ".join(text.removeprefix("ERROR: ").split())[:300]
            ) from None
        client: Any = getattr(model.api, "client", None)
        if isinstance(getattr(client, "max_retries", None), int):
            client.max_retries = 0
        return model.api

    def _response(self, output: ModelOutput) -> ServiceResponse:
        try:
            usage = output.usage or ModelUsage()
            cached = usage.input_tokens_cache_read
            prompt = usage.input_tokens + (cached or 0) + (usage.input_tokens_cache_write or 0)
            reasoning = usage.reasoning_tokens
            return ServiceResponse(
                [_choice(choice) for choice in output.choices],
                counted(prompt),
                counted(usage.output_tokens),
                None if reasoning is None else counted(reasoning),
                None if cached is None else counted(cached),
                printable(self.clean(storable(output.model))[:MAX_NAME]) or None,
            )
        except CountError as problem:
            raise UnansweredError("garbled", self.clean(str(problem))) from None

    def _refusal(self, problem: Exception) -> UnansweredError:
        """Return the error of the provider's client, as inspect_ai classifies it."""
        statuses = (getattr(problem, name, None) for name in ("status_code", "code"))
        status = next((each for each in statuses if isinstance(each, int)), None)
        decision = self._api.should_retry(problem)
        again, why = bool(decision), getattr(decision, "kind", "transient")
        text = self.clean(f"{type(problem).__name__}: {problem}")[:300]
        refused = status in FATAL and UNSUPPORTED not in text
        if "insufficient_quota" in text or refused or self._api.is_auth_failure(problem):
            kind = "fatal"
        elif (again and why == "rate_limit") or status in BUSY:
            kind = "busy"
        elif again or status in TRANSIENT or (status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = "lost"
        else:
            kind = "lost" if isinstance(problem, OSError) else "wrong"
        sent = not any(type(cause).__name__ in _UNSENT for cause in _causes(problem))
        return UnansweredError(kind, text, getattr(decision, "retry_after", None), status, sent)


def _causes(problem: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = problem
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _config(settings: Mapping[str, Any]) -> GenerateConfig:
    """Return settings of a request for inspect_ai; those without its name go into the body.

    Prompts are not cached by the provider, because the budget does not know the price of writing to a cache.
    """
    fields = {field: settings[name] for name, field in _FIELDS.items() if name in settings}
    if fields.get("batch"):
        fields |= {"batch": BatchConfig(tick=BATCH_TICK, send_delay=BATCH_TICK), "max_retries": BATCH_RETRIES}
    rest = {name: value for name, value in settings.items() if name not in _FIELDS}
    if (restriction := rest.pop("response_format", None)) is not None:
        schema = restriction["json_schema"]
        fields["response_schema"] = ResponseSchema(
            name=schema["name"], json_schema=JSONSchema(**schema["schema"]), strict=True
        )
    if rest.get("top_k", 0) > 0:  # some providers know it by name, some in the body
        fields["top_k"] = rest["top_k"]
    return GenerateConfig(**fields, extra_body=rest or None, cache_prompt=False)


def _dropped(settings: Mapping[str, Any], request: Any) -> str | None:
    """Return a setting that the request sent by inspect_ai lacks; None if it has all, or is no record of settings."""
    names = set(_names(request))
    if not any("tokens" in name for name in names):
        return None
    return next((name for name in settings if name not in _UNCHECKED and _normalized(name) not in names), None)


def _names(request: Any) -> Iterator[str]:
    """Yield the names of all settings in a request of inspect_ai, at any depth, in one spelling."""
    for name, value in request.items() if isinstance(request, Mapping) else ():
        if name not in ("messages", "contents", "input"):
            yield _normalized(name)
            yield from _names(value)


def _normalized(name: str) -> str:
    return name.lower().replace("_", "")


def _choice(choice: ChatCompletionChoice) -> Choice:
    content = choice.message.content
    contents = [] if isinstance(content, str) else content
    reasoning = "\n".join(part.reasoning for part in contents if part.type == "reasoning" and part.reasoning)
    tokens = None
    if choice.logprobs is not None:
        tokens = [
            Token(
                storable(each.token).encode() if each.bytes is None else bytes(each.bytes),
                each.logprob,
                sorted((top.logprob for top in each.top_logprobs or ()), reverse=True),
            )
            for each in choice.logprobs.content
        ]
    return Choice(
        text=storable(choice.message.text),
        finish_reason=end_of(choice.stop_reason) or "",  # "unknown" stands for all others
        refused=any(part.type == "text" and part.refusal for part in contents),
        tokens=tokens or None,
        reasoning=storable(reasoning) if reasoning else None,
    )
