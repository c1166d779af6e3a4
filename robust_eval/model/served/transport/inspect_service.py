"""One request through a provider of inspect_ai, and what came of it."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Self

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
)
from rich.errors import MarkupError
from rich.text import Text

from robust_eval.error import UserError
from robust_eval.model.served.transport.service import (
    FATAL,
    MOST_NAMED,
    MOST_SAID,
    PASSING,
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

_MESSAGES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
_FIELDS = {
    "max_tokens": "max_tokens",
    "n": "num_choices",
    **{name: name for name in ("temperature", "top_p", "seed", "logprobs", "top_logprobs", "reasoning_effort")},
}
"""Settings of a request by the names that OpenAI's protocol has for them, and inspect_ai's names."""
_NOT_TOLD = _FIELDS.keys() - {"temperature", "top_p"}
"""Settings of which the reply itself tells whether the provider sent them, or that providers write in words of
their own."""
_UNSENT = ("ConnectError", "ConnectTimeout", "ConnectionRefusedError", "EndpointConnectionError")
"""What clients call it that no connection came about."""


class InspectService:
    """A model of a provider of inspect_ai; for one event loop, in which it is opened as a context.

    The provider is asked past ``Model.generate``, which repeats requests by itself, waits for connections of its own,
    may keep replies in a cache, and keeps every call in memory: all of that is done here already. Repetitions of the
    provider's client are turned off where it has OpenAI's or Anthropic's. ``connections`` may be open at once.
    """

    def __init__(self, model: str, base_url: str | None, model_args: Mapping[str, Any], connections: int) -> None:
        self._model = model
        self._base_url = base_url
        self._model_args = model_args
        self._connections = connections

    async def __aenter__(self) -> Self:
        self._api = self._provider()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self._api.aclose()

    async def ask(self, prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> ServiceResponse:
        """Return the answers to a prompt, with these settings of a request; raises UnansweredError.

        The names of settings are those of OpenAI's protocol. One that the provider does not send on is refused, as far
        as its record of the request tells. There is no limit of time: whoever asks sets one.
        """
        messages: list[ChatMessage] = [_MESSAGES[m["role"]](content=m["content"]) for m in prompt.messages(system_role)]
        try:
            found = await self._api.generate(messages, [], "none", _config(settings))
        except Exception as problem:  # of whatever client the provider has
            raise self._refusal(problem) from None  # what it came from may hold the key
        output, call = found if isinstance(found, tuple) else (found, None)
        if isinstance(output, Exception):
            raise self._refusal(output)
        if call is not None and (dropped := _dropped(settings, call.request)):
            raise UnansweredError("wrong", f"inspect_ai sends {self._model} no {dropped}")
        if not output.choices:
            raise UnansweredError("garbled", f"{self._model} sent no choices")
        if output.usage is None or (call is not None and call.error):  # a refusal that inspect_ai makes a reply of
            said = self.clean(output.error or output.completion)
            if output.stop_reason == "content_filter":
                raise UnansweredError("filtered", said)
            if output.stop_reason == "model_length":
                raise UnansweredError("wrong", said)
        return self._answered(output)

    def clean(self, said: str) -> str:
        """Write a text in one line, without the key."""
        for key in (self._api.api_key, self._api.initial_api_key):
            said = said.replace(key, "…") if key else said
        return " ".join(said[:MOST_SAID].split())

    def _provider(self) -> ModelAPI:
        """Return the provider; UserError where there is none, or where it lacks a package or a key."""
        try:
            config = GenerateConfig(max_connections=self._connections, max_retries=0)
            made = get_model(
                self._model, config=config, base_url=self._base_url, memoize=False, **dict(self._model_args)
            )
        except Exception as problem:  # of whatever client the provider has
            said = str(getattr(problem, "message", problem))
            with suppress(MarkupError):
                said = Text.from_markup(said).plain
            raise UserError(
                f"model.model={self._model}: inspect_ai says: {' '.join(said.removeprefix('ERROR: ').split())[:300]}"
            ) from None
        client: Any = getattr(made.api, "client", None)
        if isinstance(getattr(client, "max_retries", None), int):
            client.max_retries = 0
        return made.api

    def _answered(self, output: ModelOutput) -> ServiceResponse:
        try:
            usage = output.usage or ModelUsage()
            cached = usage.input_tokens_cache_read
            prompt = usage.input_tokens + (cached or 0) + (usage.input_tokens_cache_write or 0)
            thought = usage.reasoning_tokens
            return ServiceResponse(
                [_choice(choice) for choice in output.choices],
                counted(prompt),
                counted(usage.output_tokens),
                None if thought is None else counted(thought),
                None if cached is None else counted(cached),
                printable(self.clean(storable(output.model))[:MOST_NAMED]) or None,
            )
        except CountError as problem:
            raise UnansweredError("garbled", self.clean(str(problem))) from None

    def _refusal(self, problem: Exception) -> UnansweredError:
        """Return what an error of the provider's client means, as inspect_ai classifies it."""
        said_status = (getattr(problem, name, None) for name in ("status_code", "code"))
        status = next((each for each in said_status if isinstance(each, int)), None)
        decision = self._api.should_retry(problem)
        again, why = bool(decision), getattr(decision, "kind", "transient")
        said = self.clean(f"{type(problem).__name__}: {problem}")[:300]
        if "insufficient_quota" in said or status in FATAL or self._api.is_auth_failure(problem):
            kind = "fatal"
        elif (again and why == "rate_limit") or status in (
            HTTPStatus.TOO_MANY_REQUESTS,
            HTTPStatus.SERVICE_UNAVAILABLE,
        ):
            kind = "busy"
        elif again or status in PASSING or (status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = "lost"
        else:
            kind = "lost" if isinstance(problem, OSError) else "wrong"
        sent = not any(type(cause).__name__ in _UNSENT for cause in _causes(problem))
        return UnansweredError(kind, said, getattr(decision, "retry_after", None), status, sent)


def _causes(problem: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = problem
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _config(settings: Mapping[str, Any]) -> GenerateConfig:
    """Return settings of a request as inspect_ai has them; those that it has no name for go into the body.

    Prompts are not put into a cache of the provider's for which writing costs extra: no budget would know of it.
    """
    named = {field: settings[name] for name, field in _FIELDS.items() if name in settings}
    rest = {name: value for name, value in settings.items() if name not in _FIELDS}
    if rest.get("top_k", 0) > 0:  # some providers know it by name, some in the body
        named["top_k"] = rest["top_k"]
    return GenerateConfig(**named, extra_body=rest or None, cache_prompt=False)


def _dropped(settings: Mapping[str, Any], request: Any) -> str | None:
    """Return a setting that is not in the request as it was sent; None where all are, or where the record of it is no
    record of settings.
    """
    names = set(_names(request))
    if not any("tokens" in name for name in names):
        return None
    return next((name for name in settings if name not in _NOT_TOLD and _plain(name) not in names), None)


def _names(request: Any) -> Iterator[str]:
    """Yield the names of all settings in a request, however deep, in one spelling."""
    for name, value in request.items() if isinstance(request, Mapping) else ():
        if name not in ("messages", "contents", "input"):
            yield _plain(name)
            yield from _names(value)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _choice(choice: ChatCompletionChoice) -> Choice:
    content = choice.message.content
    parts = [] if isinstance(content, str) else content
    thought = "\n".join(part.reasoning for part in parts if part.type == "reasoning" and part.reasoning)
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
        finish_reason=end_of(choice.stop_reason) or "",  # "unknown" is what inspect_ai has for all others
        refused=any(part.type == "text" and part.refusal for part in parts),
        tokens=tokens or None,
        reasoning=storable(thought) if thought else None,
    )
