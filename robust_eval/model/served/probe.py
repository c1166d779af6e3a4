"""Probe of a server's capabilities; some servers drop settings silently."""

import hashlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import combinations, product, takewhile
from operator import eq
from statistics import fmean
from typing import Any, Protocol

from robust_eval.error import OutageError, UserError
from robust_eval.model.base import Temperatures
from robust_eval.model.logprobs import fault, is_whole
from robust_eval.model.served.transport.service import Choice, ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import logprob_fields
from robust_eval.prompt.prompt import Prompt

log = logging.getLogger(__name__)

Ask = Callable[[Prompt, bool, Mapping[str, Any]], Awaitable[ServiceResponse]]
"""Sends a prompt, with or without a system role, and these settings; raises UnansweredError."""

LIMITS = ("max_tokens", "max_completion_tokens")
TRUNCATION_OFF: tuple[Mapping[str, Any], ...] = (
    {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    {"top_p": 1.0},
    {},
)
"""Settings that turn off the silent truncation of servers: llama.cpp's top_k = 40 and min_p = 0.05, or those that vLLM
reads from the model's repository. OpenAI's own servers refuse such settings."""
EFFORT = "low"
"""Reasoning effort that every server knows which knows any."""
TOP_LOGPROBS = (20, 10, 5, 1)
CHOICES = (32, 16, 10, 8, 5, 4, 2)
TEMPERED = 1.5
"""Minimum ratio of the ranges of log-probabilities at t = 0.5 and 1 that follow the temperature: they have 2."""
LOGPROB_ATTEMPTS = 3
"""Number of requests for log-probabilities, all with invalid ones, after which a server counts as having none."""
CACHE = "capabilities"
"""Name of the machine's cache of capabilities, with the keys of :func:`daily_cache_key`."""

SHORT = Prompt("You are a helpful assistant.", (), "Name any animal.")
"""Prompt of the probe's shortest requests."""

_IN_DESCRIPTION = "capability."
"""Prefix of the names of capabilities in the description of a model."""


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of a model on a server, which a probe finds."""

    limit: str
    """The name of the length limit: max_tokens | max_completion_tokens."""
    system_role: bool
    greedy: bool
    """Temperature 0 is accepted."""
    truncation_off: dict[str, Any]
    """Accepted settings that turn off truncation."""
    highest_temperature: float
    """The highest accepted one of the requested temperature, 2 and 1."""
    top_logprobs: int
    """Maximum number of log-probabilities per token: the requested one, 20, 10, 5 or 1; 0 for none."""
    tempered_logprobs: bool
    """Log-probabilities are those after the temperature, not the model's own."""
    choices: int
    """Maximum number of answers to one request."""
    seed: bool
    """The same seed gave the same answer."""
    takes_seed: bool = True
    """A seed is accepted."""
    probed_for: float = 2.0
    """The requested temperature."""
    whole_vocabulary: bool = False
    """``top_logprobs`` are all tokens of the model."""
    own_temperature: bool = False
    """It has no temperature parameter, as many reasoning models, or ignores it."""
    deterministic: bool = False
    """All replies to a prompt are the same, whatever the seed, at the highest accepted temperature."""
    copies: bool = False
    """Several answers to one request are copies of one; ``choices`` is then 1."""
    ignores_temperature: bool = False
    capped: bool = False
    """Higher temperatures are lowered to ``highest_temperature`` silently."""
    takes_effort: bool = False
    """Without a temperature parameter: a reasoning effort is accepted, and an unknown one refused."""
    structured: str = ""
    """Means to restrict replies to letters: grammar | schema | unsupported; empty: not probed."""
    continuation: str = ""
    """Means to continue a partial answer: its token ids | its text | an assistant message; empty: not probed."""

    @property
    def faithful(self) -> bool:
        """True if the probed server draws as requested."""
        return not (self.deterministic or self.copies or self.ignores_temperature or self.capped)

    def in_words(self) -> str:
        """Return the probed capabilities in words, as a predicate of the model."""
        temperatures = f"temperatures {'from' if self.greedy else 'above'} 0 to {self.highest_temperature:g}"
        scaled = " (scaled by the temperature)" * self.tempered_logprobs
        number = f"{self.top_logprobs} log-probabilities per token{scaled}"
        return (
            f"accepts {'no temperature' if self.own_temperature else temperatures}, returns "
            f"{number if self.top_logprobs else 'no log-probabilities'} and up to {self.choices} "
            f"answer{'s' * (self.choices > 1)} per request, and {'reproduces' if self.seed else 'does not reproduce'} "
            "the answer for a given seed"
        )

    def covers(self, temperature: float) -> bool:
        """Return whether the probe covers this temperature."""
        return self.own_temperature or temperature <= self.highest_temperature or temperature == self.probed_for

    def temperatures(self, highest: float | None = None) -> Temperatures:
        """Return the temperatures that the server supports, up to ``highest`` if the settings name one."""
        return Temperatures(
            highest=min(self.highest_temperature, highest or math.inf),
            greedy=self.greedy,
            default_only=self.own_temperature,
            takes_effort=self.takes_effort,
            has_logprobs=self.top_logprobs > 1 or self.whole_vocabulary,
        )

    def to_text(self) -> str:
        """Return the probed capabilities as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Capabilities | None":
        """Return the probed capabilities that :meth:`to_text` wrote; None for any other text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    @classmethod
    def of_description(cls, description: Mapping[str, Any]) -> "Capabilities | None":
        """Return the probed capabilities in the description of a served model; None if it lacks any."""
        fields = {name: value for name, value in description.items() if name.startswith(_IN_DESCRIPTION)}
        try:
            return cls(**{name.removeprefix(_IN_DESCRIPTION): value for name, value in fields.items()})
        except TypeError:
            return None

    def described(self) -> dict[str, Any]:
        """Return the probed capabilities as a part of the description of a served model."""
        return {f"{_IN_DESCRIPTION}{name}": value for name, value in asdict(self).items()}


def daily_cache_key(identity: Mapping[str, Any]) -> str:
    """Return the cache key of today's probe of a model on a server."""
    determinants = [*identity.items(), f"{datetime.now(UTC):%Y-%m-%d}"]
    return hashlib.sha256(repr(determinants).encode()).hexdigest()[:32]


async def probe(ask: Ask, server: str, chat: bool, temperature: float, top_logprobs: int | None = None) -> Capabilities:
    """Probe a server with about 20 short requests; return its capabilities.

    ``server`` names it in errors, ``temperature`` is the highest that the run needs, ``top_logprobs`` the maximum
    number of log-probabilities per token (default: 20). Raises UserError if the server refuses every request.
    """
    limit, length, system_role, greedy, truncation_off = await _accepted_settings(ask, server)
    settings: dict[str, Any] = {limit: length, **truncation_off}

    async def send(prompt: Prompt, **more: Any) -> ServiceResponse | None:
        try:
            return await ask(prompt, system_role, settings | more)
        except UnansweredError as problem:
            if problem.kind in ("wrong", "filtered"):
                return None
            raise OutageError(f"{server} failed during the probe of its capabilities: {problem}") from None

    own_temperature = not greedy and await send(SHORT, temperature=0.5) is None
    if not greedy and not own_temperature:  # it accepts temperatures above 0
        for off in TRUNCATION_OFF:
            if await send(SHORT, temperature=0.5, **off):
                settings |= (truncation_off := off)
                break
    takes_effort = False
    if own_temperature and await send(SHORT, reasoning_effort=EFFORT):  # some servers drop unknown settings silently
        takes_effort = await send(SHORT, reasoning_effort="unknown") is None
    highest = 1.0 if own_temperature else await _highest_temperature(send, temperature)
    top, tempered, whole = await _logprobs(send, server, chat, own_temperature, top_logprobs)
    can = Capabilities(
        limit=limit,
        system_role=system_role,
        greedy=greedy,
        truncation_off=dict(truncation_off),
        highest_temperature=highest,
        top_logprobs=top,
        tempered_logprobs=tempered,
        choices=await _choices(send, {} if own_temperature else {"temperature": 1.0}),
        seed=False,
        probed_for=temperature,
        whole_vocabulary=whole,
        own_temperature=own_temperature,
        takes_effort=takes_effort,
    )
    return await SamplingProbe(send, can).run()


async def _accepted_settings(ask: Ask, server: str) -> tuple[str, int, bool, bool, Mapping[str, Any]]:
    """Return the best settings that the probed server accepts: the name of the length limit and a short length, True
    for a system role and for temperature 0, and the settings that turn off truncation.
    """
    refusals: dict[str, None] = {}

    async def accepts(system_role: bool, **settings: Any) -> bool:
        """Return whether the probed server accepts a request; a filter that blocks the prompt accepted its settings."""
        try:
            await ask(SHORT, system_role, settings)
        except UnansweredError as problem:
            if problem.kind not in ("wrong", "filtered"):
                raise OutageError(f"{server} does not answer: {problem}") from None
            refusals[str(problem)] = None
            return problem.kind == "filtered"
        return True

    best: dict[str, Any] = {LIMITS[0]: 1, "temperature": 0.0, **TRUNCATION_OFF[0]}
    if await accepts(True, **best):
        return LIMITS[0], 1, True, True, TRUNCATION_OFF[0]
    for system_role, limit in product((True, False), LIMITS):
        if await accepts(system_role, **{limit: REASONING_LIMIT}):
            break
    else:
        raise UserError(f"{server} refuses every request: {'; '.join(list(refusals)[:3])}")
    for length in (1, REASONING_LIMIT):
        greedy: dict[str, Any] = {limit: length, "temperature": 0.0}
        if length > 1 and not await accepts(system_role, **greedy):
            break
        for off in TRUNCATION_OFF:
            settings = {**greedy, **off}
            if (not system_role or settings != best) and await accepts(system_role, **settings):
                return limit, length, system_role, True, off
    return limit, REASONING_LIMIT, system_role, False, {}


class SendRequest(Protocol):
    """Sender of a probe's request with these settings; it returns None if the server refuses it."""

    def __call__(self, prompt: Prompt, **settings: Any) -> Awaitable[ServiceResponse | None]: ...


async def _highest_temperature(send: SendRequest, temperature: float) -> float:
    """Return the highest of this temperature, 2 and 1 that the server accepts."""
    for candidate in sorted({temperature, 2.0, 1.0}, reverse=True):
        if await send(SHORT, temperature=candidate):
            return candidate
    return 1.0


async def _choices(send: SendRequest, settings: Mapping[str, Any]) -> int:
    """Return the maximum number of answers that the server returns to one request."""
    for number in CHOICES:
        response = await send(SHORT, n=number, **settings)
        if response and len(response.choices) > 1:
            return len(response.choices)
    return 1


async def _logprobs(
    send: SendRequest, server: str, chat: bool, own_temperature: bool, maximum: int | None
) -> tuple[int, bool, bool]:
    """Return the number of log-probabilities per token that the server returns, at most ``maximum``, True if they
    follow the temperature, and True if they are those of the whole vocabulary.
    """

    async def largest(number: int, temperature: float) -> list[float]:
        """Return the largest log-probabilities of the first token; none if they are invalid each time."""
        settings: dict[str, Any] = {} if own_temperature else {"temperature": temperature}
        for _ in range(LOGPROB_ATTEMPTS):
            response = await send(SHORT, **settings, **logprob_fields(chat, number))
            tokens = response.choices[0].tokens if response else None
            if not tokens:
                return []
            wrong = fault([tokens[0].logprob], [tokens[0].top], 1, 0)
            if not wrong:
                return tokens[0].top[:number]  # some servers add that of the drawn token
        log.warning("%s sent %s: the run requests no log-probabilities", server, wrong)
        return []

    smaller = [number for number in TOP_LOGPROBS if number < (maximum or number + 1)]
    for number in [maximum, *smaller] if maximum else smaller:
        if top := await largest(number, 1.0):
            whole = len(top) < number and is_whole(top)
            if own_temperature:
                return len(top), False, whole
            cold, warm = await largest(len(top), 0.5), await largest(len(top), 1.0)
            return len(top), bool(cold and warm) and _range(cold) > TEMPERED * _range(warm), whole
    return 0, False, False


def _range(logprobs: list[float]) -> float:
    """Return the difference of the largest and the smallest log-probability, or of certainty and the only one."""
    return logprobs[0] - logprobs[-1] if len(logprobs) > 1 else -logprobs[0]


WORDS = Prompt(
    "You are a helpful assistant.", (), "Write sixteen random words that have nothing to do with one another."
)
LONG = 48
"""Maximum number of tokens of sixteen words."""
REASONING_LIMIT = 512
"""Maximum number of tokens of a model that may reason before it answers; some services refuse fewer."""
COPIES = 4
"""Number of replies in the request that looks for copies."""
CAPS = (1.5, 1.0, 0.7, 0.5)
"""Temperatures that are compared with the highest one, in descending order."""
MIN_SIMILARITY_GAIN = 0.3
"""Minimum difference of the similarity of replies at temperature 0 and at the highest, as a share of the maximum."""


class SamplingProbe:
    """Probe of the sampling behaviour of a server; ``can`` are its capabilities so far."""

    def __init__(self, send: SendRequest, can: Capabilities) -> None:
        self._send = send
        self._can = can
        self._hottest = None if can.own_temperature else can.highest_temperature
        self._length = LONG if can.greedy else REASONING_LIMIT
        self._takes_seed = True

    async def run(self) -> Capabilities:
        """Run the probe; return the capabilities with the sampling behaviour."""
        hot = [await self._reply(1, self._hottest)]
        if hot == [None]:  # it refuses the seed, or the prompt
            self._takes_seed = False
            hot = [await self._reply(1, self._hottest)]
        if hot == [None]:
            return replace(self._can, takes_seed=False)
        if hot == [""]:  # a model that reasons out of sight
            self._length = REASONING_LIMIT
            hot = [await self._reply(1, self._hottest)]
        hot += [await self._reply(seed, self._hottest) for seed in (2, 3)]
        again = await self._reply(1, self._hottest) if self._takes_seed else None
        seeded = bool(again) and again == hot[0] and len(set(hot)) > 1
        can = replace(self._can, seed=seeded, takes_seed=self._takes_seed)
        if _equal(hot) and await self._repeats():
            return replace(can, deterministic=True)
        if can.choices > 1 and await self._copies():
            can = replace(can, copies=True, choices=1)
        if can.greedy and self._hottest is not None and await self._ignores(hot, seeded):
            return replace(can, greedy=False, own_temperature=True, ignores_temperature=True)
        cap = await self._cap(hot) if seeded else None
        return can if cap is None else replace(can, highest_temperature=cap, capped=True)

    async def _reply(self, seed: int, temperature: float | None, **more: Any) -> str | None:
        """Return the probed server's reply to a seed; None if the request is refused."""
        response = await self._response(seed, temperature, **more)
        return None if response is None else _text(response.choices[0])

    async def _response(self, seed: int, temperature: float | None, **more: Any) -> ServiceResponse | None:
        settings: dict[str, Any] = {self._can.limit: self._length} | more
        settings |= {"seed": seed} if self._takes_seed else {}
        settings |= {} if temperature is None else {"temperature": temperature}
        return await self._send(WORDS, **settings)

    async def _repeats(self) -> bool:
        """Return whether longer replies to more seeds are identical too: reasoning may begin with the same words."""
        return _equal([await self._reply(seed, self._hottest, **{self._can.limit: REASONING_LIMIT}) for seed in (4, 5)])

    async def _copies(self) -> bool:
        """Return whether the probed server's replies to one request are identical, and longer ones as well."""
        for limit in ({}, {self._can.limit: REASONING_LIMIT}):
            response = await self._response(6, self._hottest, n=min(self._can.choices, COPIES), **limit)
            if response is None or len(response.choices) == 1 or not _equal([*map(_text, response.choices)]):
                return False
        return True

    async def _ignores(self, hot: Sequence[str | None], seeded: bool) -> bool:
        """Return whether replies at temperature 0 are like those at a higher one: the same to the same seeds, or as
        different from one another. A greedy reply may change with the server's batch, so they need not be identical.
        """
        cold = [await self._reply(seed, 0.0) for seed in (1, 2)]
        if _equal(cold):
            return False
        if seeded and cold == list(hot[:2]):
            return True
        cold.append(await self._reply(3, 0.0))
        if not _as_different(cold, hot):
            return False
        cold += [await self._reply(seed, 0.0) for seed in range(4, 10)]
        return _as_different(cold, hot)

    async def _cap(self, hot: Sequence[str | None]) -> float | None:
        """Return the lowest probed temperature with the same replies as the highest; None if there is none."""
        cap = None
        for temperature in CAPS:
            if self._hottest is None or self._hottest <= 1 or temperature >= self._hottest:
                continue
            for seed in (1, 2, 3):
                if not hot[seed - 1] or await self._reply(seed, temperature) != hot[seed - 1]:
                    return cap
            cap = temperature
        return cap


def _text(choice: Choice) -> str:
    return f"{choice.reasoning or ''} {choice.text}".strip()


def _equal(replies: Sequence[str | None]) -> bool:
    """Return whether all replies to a probe are identical and not empty."""
    return bool(replies[0]) and len(set(replies)) == 1


def _as_different(cold: Sequence[str | None], hot: Sequence[str | None]) -> bool:
    """Return whether replies at temperature 0 are no more similar to one another than those at the highest."""
    similarity = _similarity(hot)
    return all(cold) and all(hot) and _similarity(cold) < similarity + MIN_SIMILARITY_GAIN * (1 - similarity)


def _similarity(replies: Sequence[str | None]) -> float:
    """Return the share of common first words of two replies, as a mean over all pairs."""
    words = [(reply or "").split() for reply in replies]
    return fmean(
        len(list(takewhile(bool, map(eq, *pair)))) / max(*map(len, pair), 1) for pair in combinations(words, 2)
    )
