"""Queries for next-token log-probabilities after a partial answer.

The surest way is by token ids, which some servers take in place of a text. A text may be cut into other tokens than
those that the answer consists of: "Par" and "is" become one. That shows in the number of tokens that the server
counts, and such a prefix is left unknown. A way is believed once it has told of a plain answer, token for token, what
the server says of it unasked.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from robust_eval.model.logprobs import fault
from robust_eval.model.served.transport.service import CHAT, PLAIN, Service, ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Position, TopKToken
from robust_eval.prompt.prompt import Prompt

IDS, TEXT, MESSAGE = "token ids", "text", "the message of the assistant"
APART = 0.05
"""How much of a distribution may differ (total variation) between two answers to the same question: a server that
computes in half precision says other numbers each time."""
LONGEST = 6
"""Tokens of the plain answer that a way is compared with."""
SPARE = 4
"""Tokens of which a character consists at most: a server may say nothing of one that it has not written."""


@dataclass(frozen=True)
class LogprobSettings:
    """What every request has: ``body`` beside the prompt, the ``limit`` of tokens, and how many log-probabilities."""

    chat: bool
    system_role: bool
    body: Mapping[str, Any]
    limit: str
    top_logprobs: int
    whole_vocabulary: bool
    greedy: bool

    def logprobs(self, path: str) -> dict[str, Any]:
        """Return what asks for log-probabilities."""
        if path == CHAT:
            return {"logprobs": True, "top_logprobs": self.top_logprobs}
        return {"logprobs": self.top_logprobs}

    def asked(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """Return where a prompt is sent, and as what."""
        if self.chat:
            return CHAT, {"messages": prompt.messages(self.system_role)}
        return PLAIN, {"prompt": prompt.text()}

    def sending(
        self, path: str, asked: Mapping[str, Any], levels: int, more: Mapping[str, Any], depth: int
    ) -> "LogprobRequest":
        """Return a request for the likeliest answer, of so many tokens, to what has ``depth`` tokens of one."""
        chosen = {"temperature": 0.0} if self.greedy else {"temperature": 1.0}
        levels = levels if self.greedy else 1
        limit = {self.limit if path == CHAT or not self.chat else "max_tokens": levels}
        body = {**self.body, **chosen, **self.logprobs(path), **limit, **asked, **more}
        return LogprobRequest(self, path, body, depth, levels)


class LogprobRequest(NamedTuple):
    """What is sent to a path of a server, and about how much: tokens of the prompt beside those of the question
    (``depth``), and of what is to come.
    """

    settings: LogprobSettings
    path: str
    body: Mapping[str, Any]
    depth: int
    completion_tokens: int

    async def to(self, service: Service) -> ServiceResponse:
        """Send it; raises UnansweredError, also where log-probabilities that came cannot be."""
        answered = await service.ask_top_tokens(self.path, self.body)
        pairs = zip(answered.positions, answered.choices, strict=True)
        return answered._replace(positions=[_checked(places, choice.text, self.settings) for places, choice in pairs])


class Ask(NamedTuple):
    """Asks the server when it is the turn, again where that may help; both raise UnansweredError.

    ``positions`` sends for tokens, ``root`` sends a body to a path beside ``/v1``.
    """

    positions: Callable[[LogprobRequest], Awaitable[ServiceResponse]]
    root: Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class AnswerStart(NamedTuple):
    """Where the answers to a prompt begin: the prompt, and its token ids where these are sent."""

    prompt: Prompt
    ids: list[int] | None


@dataclass(frozen=True)
class Continuation:
    """One way of going on with an answer."""

    way: str
    settings: LogprobSettings

    async def start(self, ask: Ask, prompt: Prompt) -> AnswerStart:
        """Return where the answers to a prompt begin; raises UnansweredError."""
        if self.way != IDS:
            return AnswerStart(prompt, None)
        if not self.settings.chat:
            return AnswerStart(prompt, await _ids(ask, {"prompt": prompt.text(), "content": prompt.text()}))
        messages = {"messages": prompt.messages(self.settings.system_role), "add_generation_prompt": True}
        try:
            return AnswerStart(prompt, await _ids(ask, messages, special=False))
        except UnansweredError as problem:
            if problem.kind != "wrong":
                raise
        said = await ask.root("/apply-template", messages)
        written = said.get("prompt") if isinstance(said, Mapping) else None
        if not isinstance(written, str):
            raise UnansweredError("wrong", "it does not say how it writes a conversation")
        return AnswerStart(prompt, await _ids(ask, {"prompt": written, "content": written}))

    def sending(self, start: AnswerStart, path: Sequence[TopKToken], levels: int) -> LogprobRequest | None:
        """Return what asks for the likeliest tokens after a beginning of an answer, and after those that are likeliest
        then, ``levels`` in all; None where it cannot be written.
        """
        settings = self.settings
        if self.way == IDS:
            assert start.ids is not None
            ids = [token.id for token in path]
            if None in ids:
                return None
            return settings.sending(PLAIN, {"prompt": [*start.ids, *ids]}, levels, {}, len(path))
        if any(token.unnamed for token in path):
            return None
        try:
            written = b"".join(token.text for token in path).decode()
        except UnicodeDecodeError:
            return None
        where, asked = settings.asked(start.prompt)
        if self.way == TEXT:
            return settings.sending(PLAIN, {"prompt": asked["prompt"] + written}, levels, {}, len(path))
        more = {"messages": [*asked["messages"], {"role": "assistant", "content": written}]} if path else {}
        goes_on = {"add_generation_prompt": False, "continue_final_message": True} if path else {}
        return settings.sending(where, asked, levels, more | goes_on, len(path))

    def positions(self, answered: ServiceResponse, path: Sequence[TopKToken], prompt_tokens: int) -> list[Position]:
        """Return what the server said of the places after a beginning of an answer, as far as it is surely of them.

        ``prompt_tokens`` is how many the server counted without that beginning.
        """
        if self.way != IDS and answered.prompt_tokens != prompt_tokens + len(path):
            return []  # it was cut into other tokens
        return whole_places(answered.positions[0], answered.completion_tokens)


def _checked(positions: Sequence[Position], text: str, settings: LogprobSettings) -> list[Position]:
    """Return places with as many log-probabilities as were asked for; UnansweredError where there are fewer, or they
    cannot be. There is no place where nothing but a part of a character was written.
    """
    if not positions and text.strip("\ufffd"):
        raise UnansweredError("garbled", "the server sent no log-probabilities, and they are needed")
    found = []
    for place, position in enumerate(positions):
        largest = list(position.largest[: settings.top_logprobs])  # some add the one that was drawn
        values = [token.logprob for token in largest]
        few = settings.whole_vocabulary or any(token.unnamed for token in largest)
        needed = 1 if few else max(1, settings.top_logprobs // 2)
        if not largest and place:
            break  # some say nothing of the token that ends an answer
        if wrong := fault([position.chosen.logprob], [values], 1, needed):
            raise UnansweredError("garbled", f"the server sent {wrong}")
        found.append(position._replace(largest=largest))
    return found


def whole_places(positions: Sequence[Position], tokens: int) -> list[Position]:
    """Return the first places, up to one that may stand for several tokens: a character that consists of several is one
    place at some servers.
    """
    if tokens == len(positions):
        return list(positions)
    return list(itertools.takewhile(lambda position: position.chosen.text.isascii(), positions))


def no_continuation(server: str, reason: str) -> str:
    """Say that a server cannot be asked to go on with an answer, and what would work."""
    return (
        f"{server} does not go on with an answer that has begun as it answers by itself ({reason}), and sampler=exact "
        "needs that for free text: choose sampler=temperature_sweep, or model.prompt_style=plain with a server that "
        "takes token ids (llama.cpp, vLLM)"
    )


async def _ids(ask: Ask, asked: Mapping[str, Any], special: bool = True) -> list[int]:
    begins = {"add_special": special, "add_special_tokens": special}
    said = await ask.root("/tokenize", {**asked, **begins})
    ids = said.get("tokens") if isinstance(said, Mapping) else None
    if not isinstance(ids, list) or not ids or not all(type(each) is int for each in ids):
        raise UnansweredError("wrong", "it does not say which tokens a prompt has")
    return ids


async def find_continuation(ask: Ask, settings: LogprobSettings, prompt: Prompt) -> tuple[Continuation | None, str]:
    """Return the surest way that holds for a plain answer to this prompt, or None and why there is none.

    Raises UnansweredError where the server is in trouble.
    """
    path, asked = settings.asked(prompt)
    plain = await ask.positions(settings.sending(path, asked, LONGEST, {}, 0))
    told = whole_places(plain.positions[0], plain.completion_tokens)
    reasons = []
    for way in (IDS, MESSAGE if settings.chat else TEXT):
        if way == IDS and any(position.chosen.id is None for position in told):
            reasons.append(f"{way}: it does not say which it is that it names")
            continue
        continuation = Continuation(way, settings)
        try:
            reason = await _differs(ask, continuation, prompt, told, plain.prompt_tokens)
        except UnansweredError as problem:
            if problem.kind not in ("wrong", "filtered", "fatal"):
                raise
            reason = str(problem)
        if reason is None:
            return continuation, ""
        reasons.append(f"{way}: {reason}")
    return None, "; ".join(reasons)


async def _differs(
    ask: Ask,
    continuation: Continuation,
    prompt: Prompt,
    told: Sequence[Position],
    prompt_tokens: int,
) -> str | None:
    """Say in what a way of going on differs from a plain answer; None where it does not."""
    if continuation.way != IDS and not prompt_tokens:
        return "it does not count the tokens of a prompt, so that nobody knows whether it cut the answer otherwise"
    start = await continuation.start(ask, prompt)
    answer: list[TopKToken] = []
    compared = 0
    for position in told:
        sending = continuation.sending(start, answer, SPARE)
        if sending is not None:
            answered = await ask.positions(sending)
            if positions := continuation.positions(answered, answer, prompt_tokens):
                compared += 1
                if (apart := distance(positions[0], position)) > APART:
                    written = b"".join(token.text for token in answer).decode("utf-8", "replace")
                    return f"after {written!r} {apart:.0%} of what is likely next differs from a plain answer"
        if position.chosen.ends or b"\n" in position.chosen.text:
            break
        answer.append(position.chosen)
    return None if compared > 1 or compared == len(told) else "its answers are cut into other tokens"


def distance(one: Position, other: Position) -> float:
    """Return the total variation between what is said of two places, of the tokens that either names."""
    p, q = ({token.name: float(np.exp(token.logprob)) for token in place.largest} for place in (one, other))
    both = p.keys() & q.keys()  # the least likely of those that are named may change places with others
    return sum(abs(p[name] - q[name]) for name in both) / 2 + _only(p, both) / 2 + _only(q, both) / 2


def _only(p: Mapping[int | bytes, float], both: set[int | bytes]) -> float:
    return sum(value for name, value in p.items() if name not in both)
