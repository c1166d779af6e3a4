"""Continuation of a partial answer: queries for next-token log-probabilities after it.

The surest method sends token ids, which some servers accept in place of a text. A text may be split into tokens that
differ from those of the answer: "Par" and "is" become one. The server's token count shows that, and such a prefix stays
unknown. A method is accepted if it reproduces the log-probabilities of a plain answer, token for token.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from robust_eval.model.logprobs import fault
from robust_eval.model.served.transport.service import CHAT, PLAIN, Service, ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Position, TopKToken, logprob_fields
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.text import number

NO_LOGPROBS = "the server sent no log-probabilities, but sampler=exact needs them"
IDS, TEXT, MESSAGE = "its token ids", "its text", "an assistant message"
MAX_DISTANCE = 0.05
"""Maximum total variation between two distributions of one position: half precision changes the numbers each time."""
MAX_COMPARED = 6
"""Maximum number of tokens of the plain answer that a method must reproduce."""
MAX_CHARACTER_TOKENS = 4
"""Maximum number of tokens of a character: a server may omit one that has no text yet."""


@dataclass(frozen=True)
class LogprobSettings:
    """Settings of all requests for log-probabilities: the ``body`` without the prompt, the name of the length
    ``limit``, and the numbers of log-probabilities.
    """

    chat: bool
    system_role: bool
    body: Mapping[str, Any]
    limit: str
    top_logprobs: int
    whole_vocabulary: bool
    greedy: bool

    def prompt_fields(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """Return the path of a request for a prompt, and the fields of its body."""
        if self.chat:
            return CHAT, {"messages": prompt.messages(self.system_role)}
        return PLAIN, {"prompt": prompt.text()}

    def request(
        self, path: str, fields: Mapping[str, Any], levels: int, extra: Mapping[str, Any], depth: int
    ) -> "LogprobRequest":
        """Return a request for ``levels`` tokens of the likeliest continuation, after ``depth`` answer tokens."""
        levels = levels if self.greedy else 1
        body = {
            **self.body,
            "temperature": 0.0 if self.greedy else 1.0,
            **logprob_fields(path == CHAT, self.top_logprobs),
            self.limit if path == CHAT or not self.chat else "max_tokens": levels,
            **fields,
            **extra,
        }
        return LogprobRequest(self, path, body, depth, levels)


class LogprobRequest(NamedTuple):
    """Request for log-probabilities ``depth`` tokens after the prompt: path, body, and number of completion tokens."""

    settings: LogprobSettings
    path: str
    body: Mapping[str, Any]
    depth: int
    completion_tokens: int

    async def to(self, service: Service) -> ServiceResponse:
        """Send the request; raises UnansweredError, also for invalid log-probabilities."""
        response = await service.ask_top_tokens(self.path, self.body)
        pairs = zip(response.positions, response.choices, strict=True)
        return response._replace(positions=[_checked(places, choice.text, self.settings) for places, choice in pairs])


class Ask(NamedTuple):
    """Rate-limited requests for continuations with retries; both raise UnansweredError.

    ``positions`` returns tokens, ``root`` sends a body to a path of the server's root.
    """

    positions: Callable[[LogprobRequest], Awaitable[ServiceResponse]]
    root: Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class AnswerStart(NamedTuple):
    """Prompt of the answers to continue, with its token ids if these are sent."""

    prompt: Prompt
    ids: list[int] | None


@dataclass(frozen=True)
class Continuation:
    """Method to continue an answer: by token ids, as a text, or as a message of the assistant."""

    method: str
    settings: LogprobSettings

    async def start(self, ask: Ask, prompt: Prompt) -> AnswerStart:
        """Return the start of answers: the prompt, with token ids if the method needs them; raises UnansweredError."""
        if self.method != IDS:
            return AnswerStart(prompt, None)
        if not self.settings.chat:
            return AnswerStart(prompt, await _ids(ask, {"prompt": prompt.text(), "content": prompt.text()}))
        messages = {"messages": prompt.messages(self.settings.system_role), "add_generation_prompt": True}
        try:
            return AnswerStart(prompt, await _ids(ask, messages, special=False))
        except UnansweredError as problem:
            if problem.kind != "wrong":
                raise
        reply = await ask.root("/apply-template", messages)
        written = reply.get("prompt") if isinstance(reply, Mapping) else None
        if not isinstance(written, str):
            raise UnansweredError("wrong", "/apply-template returns no prompt")
        return AnswerStart(prompt, await _ids(ask, {"prompt": written, "content": written}))

    def request(self, start: AnswerStart, path: Sequence[TopKToken], levels: int) -> LogprobRequest | None:
        """Return the request for ``levels`` tokens of the likeliest continuation of a prefix; None if the prefix has
        no text or id.
        """
        settings = self.settings
        if self.method == IDS:
            assert start.ids is not None
            ids = [token.id for token in path]
            if None in ids:
                return None
            return settings.request(PLAIN, {"prompt": [*start.ids, *ids]}, levels, {}, len(path))
        if any(token.unnamed for token in path):
            return None
        try:
            written = b"".join(token.text for token in path).decode()
        except UnicodeDecodeError:
            return None
        where, fields = settings.prompt_fields(start.prompt)
        if self.method == TEXT:
            return settings.request(PLAIN, {"prompt": fields["prompt"] + written}, levels, {}, len(path))
        extra = {"messages": [*fields["messages"], {"role": "assistant", "content": written}]} if path else {}
        options = {"add_generation_prompt": False, "continue_final_message": True} if path else {}
        return settings.request(where, fields, levels, extra | options, len(path))

    def positions(self, response: ServiceResponse, path: Sequence[TopKToken], prompt_tokens: int) -> list[Position]:
        """Return the positions that continue a prefix; none if the server split the prefix differently.

        ``prompt_tokens`` is the server's count without the prefix.
        """
        if self.method != IDS and response.prompt_tokens != prompt_tokens + len(path):
            return []  # it was split into other tokens
        return whole_positions(response.positions[0], response.completion_tokens)


def _checked(positions: Sequence[Position], text: str, settings: LogprobSettings) -> list[Position]:
    """Return a continuation's positions with the requested number of log-probabilities; raises UnansweredError for
    fewer, or for invalid ones. A text of a part of a character has no position.
    """
    if not positions and text.strip("\ufffd"):
        raise UnansweredError("garbled", NO_LOGPROBS)
    checked = []
    for place, position in enumerate(positions):
        largest = list(position.largest[: settings.top_logprobs])  # some servers add the drawn one
        values = [token.logprob for token in largest]
        few = settings.whole_vocabulary or any(token.unnamed for token in largest)
        needed = 1 if few else max(1, settings.top_logprobs // 2)
        if not largest and place:
            break  # some servers omit the token that ends an answer
        if wrong := fault([position.chosen.logprob], [values], 1, needed):
            raise UnansweredError("garbled", f"the server sent {wrong}")
        checked.append(position._replace(largest=largest))
    return checked


def whole_positions(positions: Sequence[Position], tokens: int) -> list[Position]:
    """Return a continuation's first positions, up to one that may stand for several tokens: some servers return one
    position for a character of several tokens.
    """
    if tokens == len(positions):
        return list(positions)
    return list(itertools.takewhile(lambda position: position.chosen.text.isascii(), positions))


def no_continuation(server: str, reason: str) -> str:
    """Return the message that a server cannot continue an answer, with alternatives."""
    return (
        f"given the beginning of its own answer, {server} does not continue it as before ({reason}), which "
        "sampler=exact needs for free text: choose sampler=temperature_sweep, or model.prompt_style=plain with a "
        "server that accepts token ids (llama.cpp, vLLM)"
    )


async def _ids(ask: Ask, fields: Mapping[str, Any], special: bool = True) -> list[int]:
    begins = {"add_special": special, "add_special_tokens": special}
    reply = await ask.root("/tokenize", {**fields, **begins})
    ids = reply.get("tokens") if isinstance(reply, Mapping) else None
    if not isinstance(ids, list) or not ids or not all(type(each) is int for each in ids):
        raise UnansweredError("wrong", "/tokenize returns no token ids")
    return ids


async def find_continuation(ask: Ask, settings: LogprobSettings, prompt: Prompt) -> tuple[Continuation | None, str]:
    """Return the surest method of continuation that reproduces a plain answer to this prompt, or None and the reason.

    Raises UnansweredError for a fault of the server.
    """
    path, fields = settings.prompt_fields(prompt)
    plain = await ask.positions(settings.request(path, fields, MAX_COMPARED, {}, 0))
    plain_positions = whole_positions(plain.positions[0], plain.completion_tokens)
    reasons = []
    for method in (IDS, MESSAGE if settings.chat else TEXT):
        if method == IDS and any(position.chosen.id is None for position in plain_positions):
            reasons.append(f"{method}: the server returns none")
            continue
        continuation = Continuation(method, settings)
        try:
            reason = await _differs(ask, continuation, prompt, plain_positions, plain.prompt_tokens)
        except UnansweredError as problem:
            if problem.kind not in ("wrong", "filtered", "fatal"):
                raise
            reason = str(problem)
        if reason is None:
            return continuation, ""
        reasons.append(f"{method}: {reason}")
    return None, "; ".join(reasons)


async def _differs(
    ask: Ask,
    continuation: Continuation,
    prompt: Prompt,
    plain_positions: Sequence[Position],
    prompt_tokens: int,
) -> str | None:
    """Return the difference between a method's continuation and a plain answer; None if there is none."""
    if continuation.method != IDS and not prompt_tokens:
        return "it does not count prompt tokens, which would show how it tokenizes the answer"
    start = await continuation.start(ask, prompt)
    answer: list[TopKToken] = []
    compared = 0
    for position in plain_positions:
        request = continuation.request(start, answer, MAX_CHARACTER_TOKENS)
        if request is not None:
            response = await ask.positions(request)
            if positions := continuation.positions(response, answer, prompt_tokens):
                compared += 1
                if (difference := distance(positions[0], position)) > MAX_DISTANCE:
                    written = b"".join(token.text for token in answer).decode("utf-8", "replace")
                    return f"after {written!r} the next-token distribution differs by {number(difference, '.0%')}"
        if position.chosen.ends or b"\n" in position.chosen.text:
            break
        answer.append(position.chosen)
    return None if compared > 1 or compared == len(plain_positions) else "it tokenizes partial answers differently"


def distance(one: Position, other: Position) -> float:
    """Return the total variation between two positions, over the tokens of either."""
    p, q = ({token.name: float(np.exp(token.logprob)) for token in place.largest} for place in (one, other))
    both = p.keys() & q.keys()  # the least likely of the top-k tokens may be replaced by others
    return sum(abs(p[name] - q[name]) for name in both) / 2 + _only(p, both) / 2 + _only(q, both) / 2


def _only(p: Mapping[int | bytes, float], both: set[int | bytes]) -> float:
    return sum(value for name, value in p.items() if name not in both)
