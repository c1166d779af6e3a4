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

from robust_eval.error import UserError
from robust_eval.model.base import Call
from robust_eval.model.logprobs import fault
from robust_eval.model.served.exact.topk_tree import TopKCoverage
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.transport.service import CHAT, PLAIN, ServiceResponse, UnansweredError
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


class LogprobRequest(NamedTuple):
    """Request for log-probabilities ``depth`` tokens after the prompt: path, body, and number of completion tokens."""

    path: str
    body: Mapping[str, Any]
    depth: int
    completion_tokens: int


@dataclass(frozen=True)
class LogprobClient:
    """Client of a server for log-probabilities, with rate limits and retries.

    ``body`` is that of all requests for continuations without the prompt, ``draw_body`` that of a call for draws.
    ``positions`` returns tokens, ``root`` sends a body to a path of the server's root; both raise UnansweredError.
    """

    can: Capabilities
    chat: bool
    body: Mapping[str, Any]
    draw_body: Callable[[Call], Mapping[str, Any]]
    positions: Callable[[LogprobRequest], Awaitable[ServiceResponse]]
    root: Callable[[str, Mapping[str, Any]], Awaitable[Any]]

    @property
    def coverage(self) -> TopKCoverage:
        """Coverage of each position's distribution by its top-k tokens."""
        return TopKCoverage(self.can.top_logprobs, self.can.whole_vocabulary)

    def prompt_fields(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """Return the path of a request for a prompt, and the fields of its body."""
        if self.chat:
            return CHAT, {"messages": prompt.messages(self.can.system_role)}
        return PLAIN, {"prompt": prompt.text()}

    def request(self, path: str, fields: Mapping[str, Any], levels: int, depth: int = 0) -> LogprobRequest:
        """Return a request for ``levels`` tokens of the likeliest continuation, after ``depth`` answer tokens."""
        levels = levels if self.can.greedy else 1
        body = {
            **self.body,
            "temperature": 0.0 if self.can.greedy else 1.0,
            **logprob_fields(path == CHAT, self.can.top_logprobs),
            self.can.limit if path == CHAT or not self.chat else "max_tokens": levels,
            **fields,
        }
        return LogprobRequest(path, body, depth, levels)


@dataclass(frozen=True)
class Continuation:
    """Continuation of the answers to one prompt: by token ids, as a text, or as a message of the assistant.

    ``ids`` are the token ids of the prompt if the method sends them.
    """

    client: LogprobClient
    method: str
    prompt: Prompt
    ids: Sequence[int] = ()

    def request(self, path: Sequence[TopKToken], levels: int) -> LogprobRequest | None:
        """Return the request for ``levels`` tokens of the likeliest continuation of a prefix; None if the prefix has
        no text or id.
        """
        if self.method == IDS:
            ids = [token.id for token in path]
            if None in ids:
                return None
            return self.client.request(PLAIN, {"prompt": [*self.ids, *ids]}, levels, len(path))
        if any(token.unnamed for token in path):
            return None
        try:
            written = b"".join(token.text for token in path).decode()
        except UnicodeDecodeError:
            return None
        where, fields = self.client.prompt_fields(self.prompt)
        if self.method == TEXT:
            fields["prompt"] += written
        elif path:
            fields["messages"] = [*fields["messages"], {"role": "assistant", "content": written}]
            fields |= {"add_generation_prompt": False, "continue_final_message": True}
        return self.client.request(where, fields, levels, len(path))

    def positions(self, response: ServiceResponse, path: Sequence[TopKToken], prompt_tokens: int) -> list[Position]:
        """Return the positions that continue a prefix; none if the server split the prefix differently.

        ``prompt_tokens`` is the server's count without the prefix.
        """
        if self.method != IDS and response.prompt_tokens != prompt_tokens + len(path):
            return []  # it was split into other tokens
        return whole_positions(response.positions[0], response.completion_tokens)


async def start_continuation(client: LogprobClient, method: str, prompt: Prompt) -> Continuation:
    """Return the continuation of answers to a prompt, with its token ids if the method needs them; raises
    UnansweredError.
    """
    return Continuation(client, method, prompt, await _prompt_ids(client, prompt) if method == IDS else ())


async def _prompt_ids(client: LogprobClient, prompt: Prompt) -> list[int]:
    if not client.chat:
        return await _ids(client, {"prompt": prompt.text(), "content": prompt.text()})
    messages = {"messages": prompt.messages(client.can.system_role), "add_generation_prompt": True}
    try:
        return await _ids(client, messages, special=False)
    except UnansweredError as problem:
        if problem.kind != "wrong":
            raise
    reply = await client.root("/apply-template", messages)
    written = reply.get("prompt") if isinstance(reply, Mapping) else None
    if not isinstance(written, str):
        raise UnansweredError("wrong", "/apply-template returns no prompt")
    return await _ids(client, {"prompt": written, "content": written})


async def _ids(client: LogprobClient, fields: Mapping[str, Any], special: bool = True) -> list[int]:
    reply = await client.root("/tokenize", {**fields, "add_special": special, "add_special_tokens": special})
    ids = reply.get("tokens") if isinstance(reply, Mapping) else None
    if not isinstance(ids, list) or not ids or not all(type(each) is int for each in ids):
        raise UnansweredError("wrong", "/tokenize returns no token ids")
    return ids


def checked(response: ServiceResponse, can: Capabilities) -> ServiceResponse:
    """Return a response whose positions have the requested number of log-probabilities; raises UnansweredError for
    fewer, or for invalid ones.
    """
    pairs = zip(response.positions, response.choices, strict=True)
    return response._replace(positions=[_checked(positions, choice.text, can) for positions, choice in pairs])


def _checked(positions: Sequence[Position], text: str, can: Capabilities) -> list[Position]:
    if not positions and text.strip("\ufffd"):  # a text of a part of a character has no position
        raise UnansweredError("garbled", NO_LOGPROBS)
    checked = []
    for place, position in enumerate(positions):
        largest = list(position.largest[: can.top_logprobs])  # some servers add the drawn one
        values = [token.logprob for token in largest]
        few = can.whole_vocabulary or any(token.unnamed for token in largest)
        needed = 1 if few else max(1, can.top_logprobs // 2)
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


async def find_method(client: LogprobClient, prompt: Prompt, server: str) -> str:
    """Return the surest method of continuation that reproduces a plain answer to this prompt; UserError if there is
    none. Raises UnansweredError for a fault of the ``server``.
    """
    path, fields = client.prompt_fields(prompt)
    plain = await client.positions(client.request(path, fields, MAX_COMPARED))
    plain_positions = whole_positions(plain.positions[0], plain.completion_tokens)
    reasons = []
    for method in (IDS, MESSAGE if client.chat else TEXT):
        if method == IDS and any(position.chosen.id is None for position in plain_positions):
            reasons.append(f"{method}: the server returns none")
            continue
        try:
            reason = await _differs(client, method, prompt, plain_positions, plain.prompt_tokens)
        except UnansweredError as problem:
            if problem.kind not in ("wrong", "filtered", "fatal"):
                raise
            reason = str(problem)
        if reason is None:
            return method
        reasons.append(f"{method}: {reason}")
    raise UserError(
        f"given the beginning of its own answer, {server} does not continue it as before ({'; '.join(reasons)}), which "
        "sampler=exact needs for free text: choose sampler=temperature_sweep, or model.prompt_style=plain with a "
        "server that accepts token ids (llama.cpp, vLLM)"
    )


async def _differs(
    client: LogprobClient, method: str, prompt: Prompt, plain_positions: Sequence[Position], prompt_tokens: int
) -> str | None:
    """Return the difference between a method's continuation and a plain answer; None if there is none."""
    if method != IDS and not prompt_tokens:
        return "it does not count prompt tokens, which would show how it tokenizes the answer"
    continuation = await start_continuation(client, method, prompt)
    answer: list[TopKToken] = []
    compared = 0
    for position in plain_positions:
        request = continuation.request(answer, MAX_CHARACTER_TOKENS)
        if request is not None:
            response = await client.positions(request)
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
