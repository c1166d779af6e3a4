"""What a server can do, found by asking it: some are silent about what they drop."""

import hashlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import combinations, product
from typing import Any, Protocol

from robust_eval.error import OutageError, UserError
from robust_eval.model.base import Temperatures
from robust_eval.model.logprobs import fault, is_whole
from robust_eval.model.served.transport.service import Choice, ServiceResponse, UnansweredError
from robust_eval.prompt.prompt import Prompt

log = logging.getLogger(__name__)

Ask = Callable[[Prompt, bool, Mapping[str, Any]], Awaitable[ServiceResponse]]
"""Sends a prompt, says whether there is a system role, and with which settings; raises UnansweredError."""

LIMITS = ("max_tokens", "max_completion_tokens")
TRUNCATION_OFF: tuple[Mapping[str, Any], ...] = (
    {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    {"top_p": 1.0},
    {},
)
"""What turns off the truncation that servers apply in silence: llama.cpp's top_k = 40 and min_p =
0.05, or what vLLM reads from the model's repository. OpenAI's own servers know no such settings, and refuse them."""
TOP_LOGPROBS = (20, 10, 5, 1)
CHOICES = (32, 16, 10, 8, 5, 4, 2)
TEMPERED = 1.5
"""How much further log-probabilities at t = 0.5 are apart than at t = 1 where they follow the temperature: twice."""
BELIEVED = 3
"""Times that log-probabilities which cannot be believed are asked for, before the server is taken to have none."""
CACHE = "capabilities"
"""Where the machine remembers what servers can do, under :func:`daily_cache_key`."""

_SHORT = Prompt("You are a helpful assistant.", (), "Name any animal.")


@dataclass(frozen=True)
class Capabilities:
    """What a model on a server takes and gives."""

    limit: str
    """The name of the length limit: max_tokens | max_completion_tokens."""
    system_role: bool
    greedy: bool
    """Whether it takes temperature 0."""
    truncation_off: dict[str, Any]
    """Settings that turn off truncation, as far as it takes any."""
    highest_temperature: float
    """The highest of the one asked for, 2 and 1 that it takes."""
    top_logprobs: int
    """The most log-probabilities a token of those asked for, 20, 10, 5 and 1; 0 for none."""
    tempered_logprobs: bool
    """Whether log-probabilities are those after the temperature, and so are not the model's own."""
    choices: int
    """Answers that one request can truly bring."""
    seed: bool
    """Whether the same seed gave the same answer."""
    takes_seed: bool = True
    """Whether a seed may be sent at all."""
    probed_for: float = 2.0
    """The temperature asked for."""
    whole_vocabulary: bool = False
    """Whether ``top_logprobs`` are all tokens that the model has."""
    own_temperature: bool = False
    """It takes no temperature but its own, as many reasoning models do, or ignores what is sent."""
    deterministic: bool = False
    """All replies to a prompt are the same, whatever the seed, at the highest temperature that it takes."""
    copies: bool = False
    """Several answers to one request are copies of one; ``choices`` is then 1."""
    ignores_temperature: bool = False
    capped: bool = False
    """It lowers higher temperatures to ``highest_temperature`` without saying so."""

    @property
    def faithful(self) -> bool:
        """It draws as requested."""
        return not (self.deterministic or self.copies or self.ignores_temperature or self.capped)

    def in_words(self) -> str:
        """Say what a person wants to know of it before a run, as a predicate of the model."""
        takes = f"takes temperatures {'up to' if self.greedy else 'above 0, up to'} {self.highest_temperature:g}"
        if self.own_temperature:
            takes = "takes no temperature but its own"
        number = f"{self.top_logprobs} log-probabilities a token{' (after the temperature)' * self.tempered_logprobs}"
        return (
            f"{takes}, gives {number if self.top_logprobs else 'no log-probabilities'} and "
            f"{self.choices} answer{'s' * (self.choices > 1)} a request, and "
            f"{'gives the same answer to a seed again' if self.seed else 'heeds no seed'}"
        )

    def tells_of(self, temperature: float) -> bool:
        """Tell whether it is known if the server takes this temperature."""
        return self.own_temperature or temperature <= self.highest_temperature or temperature == self.probed_for

    def temperatures(self, highest: float | None = None) -> Temperatures:
        """Return which temperatures it takes; ``highest`` where settings know that it takes none beyond."""
        return Temperatures(min(self.highest_temperature, highest or math.inf), self.greedy, self.own_temperature)

    def to_text(self) -> str:
        """Write the capabilities for a file; :meth:`from_text` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Capabilities | None":
        """Read what :meth:`to_text` wrote; None where an older version wrote it, or something else."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None


def daily_cache_key(identity: Mapping[str, Any]) -> str:
    """Return a name for a model on a server and the day: what it can do is asked once a day."""
    asked = [*identity.items(), f"{datetime.now(UTC):%Y-%m-%d}"]
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:32]


async def probe(ask: Ask, server: str, chat: bool, temperature: float, top_logprobs: int | None = None) -> Capabilities:
    """Find out what a server can do, with about 15 short requests, and how it draws.

    ``server`` is what it is called in errors, ``temperature`` the highest that is wanted, ``top_logprobs`` the most
    log-probabilities a token, of which 20 are without it. Raises UserError where it answers nothing at all.
    """
    limit, system_role, greedy, truncation_off = await _accepted(ask, server)
    settings: dict[str, Any] = {limit: 1 if greedy else THOUGHTFUL, **truncation_off}

    async def takes(prompt: Prompt, **more: Any) -> ServiceResponse | None:
        try:
            return await ask(prompt, system_role, settings | more)
        except UnansweredError as problem:
            if problem.kind in ("wrong", "filtered"):
                return None
            raise OutageError(f"{server} failed while it was asked what it can do: {problem}") from None

    async def logprobs(number: int, at: float) -> list[float]:
        wanted = {"logprobs": True, "top_logprobs": number} if chat else {"logprobs": number}
        for _ in range(BELIEVED):
            answered = await takes(_SHORT, **({} if own else {"temperature": at}), **wanted)
            tokens = answered.choices[0].tokens if answered else None
            if not tokens:
                return []
            wrong = fault([tokens[0].logprob], [tokens[0].top], 1, 0)
            if not wrong:
                return tokens[0].top[:number]  # some add that of the token drawn
        log.warning("%s sent %s: it is asked for none", server, wrong)
        return []

    highest, top, tempered, whole, choices = 1.0, 0, False, False, 1
    own = not greedy and await takes(_SHORT, temperature=0.5) is None
    if not greedy and not own:  # it takes temperatures above 0
        for off in TRUNCATION_OFF:
            if await takes(_SHORT, temperature=0.5, **off):
                settings |= (truncation_off := off)
                break
    for at in () if own else sorted({temperature, 2.0, 1.0}, reverse=True):
        if await takes(_SHORT, temperature=at):
            highest = at
            break
    for number in (
        *([top_logprobs] if top_logprobs else []),
        *(n for n in TOP_LOGPROBS if n < (top_logprobs or n + 1)),
    ):
        if found := await logprobs(number, 1.0):
            top, whole = len(found), len(found) < number and is_whole(found)
            cold, warm = ([], []) if own else (await logprobs(top, 0.5), await logprobs(top, 1.0))
            tempered = bool(cold and warm) and _spread(cold) > TEMPERED * _spread(warm)
            break
    hot = {} if own else {"temperature": 1.0}
    for number in CHOICES:
        answered = await takes(_SHORT, n=number, **hot)
        if answered and len(answered.choices) > 1:
            choices = len(answered.choices)
            break
    drawn = await SamplingProbe(takes, limit, None if own else highest, greedy).run(choices)
    return Capabilities(
        limit=limit,
        system_role=system_role,
        greedy=greedy and not drawn.ignores_temperature,
        truncation_off=dict(truncation_off),
        highest_temperature=highest if drawn.cap is None else drawn.cap,
        top_logprobs=top,
        tempered_logprobs=tempered,
        choices=1 if drawn.copies else choices,
        seed=drawn.seed,
        takes_seed=drawn.takes_seed,
        probed_for=temperature,
        whole_vocabulary=whole,
        own_temperature=own or drawn.ignores_temperature,
        deterministic=drawn.deterministic,
        copies=drawn.copies,
        ignores_temperature=drawn.ignores_temperature,
        capped=drawn.cap is not None,
    )


def _spread(logprobs: list[float]) -> float:
    """Return how far it is from the largest to the smallest, or to certainty where there is only one: at t = 0.5 it is
    twice what it is at t = 1, if log-probabilities are those after the temperature.
    """
    return logprobs[0] - logprobs[-1] if len(logprobs) > 1 else -logprobs[0]


async def _accepted(ask: Ask, server: str) -> tuple[str, bool, bool, Mapping[str, Any]]:
    """Return the settings that the server takes: those that are best to have, if it takes them.

    They are the name of the limit, whether there is a system role, whether temperature 0 is taken, and what turns off
    truncation.
    """
    refusals: dict[str, None] = {}

    async def accepts(system_role: bool, **settings: Any) -> bool:
        try:
            await ask(_SHORT, system_role, settings)
        except UnansweredError as problem:
            if problem.kind not in ("wrong", "filtered"):
                raise OutageError(f"{server} does not answer: {problem}") from None
            refusals[str(problem)] = None
            return problem.kind == "filtered"
        return True

    best: dict[str, Any] = {LIMITS[0]: 1, "temperature": 0.0, **TRUNCATION_OFF[0]}
    if await accepts(True, **best):
        return LIMITS[0], True, True, TRUNCATION_OFF[0]
    for system_role, limit in product((True, False), LIMITS):
        if await accepts(system_role, **{limit: THOUGHTFUL}):
            break
    else:
        raise UserError(f"{server} takes no request: {'; '.join(list(refusals)[:3])}")
    for off in TRUNCATION_OFF:
        settings = {limit: 1, "temperature": 0.0, **off}
        if (not system_role or settings != best) and await accepts(system_role, **settings):
            return limit, system_role, True, off
    return limit, system_role, False, {}


WORDS = Prompt(
    "You are a helpful assistant.", (), "Write sixteen random words that have nothing to do with one another."
)
LONG = 48
"""Tokens of sixteen words."""
THOUGHTFUL = 512
"""Tokens that a model is allowed which may think before it answers: of fewer some services make an error."""
COPIES = 4
"""Replies in the request that finds out whether those of one request are copies."""
CAPS = (1.5, 1.0, 0.7, 0.5)
"""Temperatures that are compared with a higher one, the highest first."""
NEARER = 0.3
"""Replies at temperature 0 are nearer to one another than those at the highest by at least this share of what is
left."""


class SendRequest(Protocol):
    """Sends a request with these settings; None where the server refuses it."""

    def __call__(self, prompt: Prompt, **settings: Any) -> Awaitable[ServiceResponse | None]: ...


@dataclass(frozen=True)
class Sampling:
    """How a server draws."""

    seed: bool
    """Whether the same seed gave the same reply, and others gave others."""
    takes_seed: bool
    """Whether a seed may be sent at all."""
    deterministic: bool = False
    """Whether all replies to a prompt are the same, whatever the seed."""
    copies: bool = False
    """Whether the replies of one request are copies of one reply."""
    ignores_temperature: bool = False
    cap: float | None = None
    """The temperature that it makes of higher ones in silence, or one above it; None: none was found."""


class SamplingProbe:
    """Asks a server that ``takes`` requests; ``hottest`` is the highest temperature, None where it takes none but its
    own. ``limit`` names the length limit. ``greedy``: it takes temperature 0 and short limits.
    """

    def __init__(self, takes: SendRequest, limit: str, hottest: float | None, greedy: bool) -> None:
        self._takes = takes
        self._limit = limit
        self._hottest = hottest
        self._greedy = greedy
        self._takes_seed = True

    async def run(self, choices: int) -> Sampling:
        """Return how the server draws; ``choices`` is how many replies a request brings."""
        hot = [await self._said(1, self._hottest)]
        if hot == [None]:  # it refuses the seed, or the prompt
            self._takes_seed = False
            hot = [await self._said(1, self._hottest)]
        if hot == [None]:
            return Sampling(seed=False, takes_seed=False)
        hot += [await self._said(seed, self._hottest) for seed in (2, 3)]
        again = await self._said(1, self._hottest) if self._takes_seed else None
        seeded = bool(again) and again == hot[0] and len(set(hot)) > 1
        found = {"seed": seeded, "takes_seed": self._takes_seed}
        if _equal(hot) and await self._repeats():
            return Sampling(**found, deterministic=True)
        copies = choices > 1 and await self._copies(choices)
        ignores = self._greedy and self._hottest is not None and await self._ignores(hot, seeded)
        cap = await self._cap(hot) if seeded and not ignores else None
        return Sampling(**found, copies=copies, ignores_temperature=ignores, cap=cap)

    async def _said(self, seed: int, temperature: float | None, **more: Any) -> str | None:
        """Return the reply to a seed; None where the request is refused."""
        answered = await self._asked(seed, temperature, **more)
        return None if answered is None else _said(answered.choices[0])

    async def _asked(self, seed: int, temperature: float | None, **more: Any) -> ServiceResponse | None:
        settings: dict[str, Any] = {self._limit: LONG if self._greedy else THOUGHTFUL} | more
        settings |= {"seed": seed} if self._takes_seed else {}
        settings |= {} if temperature is None else {"temperature": temperature}
        return await self._takes(WORDS, **settings)

    async def _repeats(self) -> bool:
        """Tell whether longer replies to further seeds are equal as well: a model that thinks may begin alike."""
        return _equal([await self._said(seed, self._hottest, **{self._limit: THOUGHTFUL}) for seed in (4, 5)])

    async def _copies(self, choices: int) -> bool:
        """Tell whether the replies of one request are equal, and longer ones as well."""
        for limit in ({}, {self._limit: THOUGHTFUL}):
            answered = await self._asked(6, self._hottest, n=min(choices, COPIES), **limit)
            if answered is None or len(answered.choices) == 1 or not _equal([*map(_said, answered.choices)]):
                return False
        return True

    async def _ignores(self, hot: Sequence[str | None], seeded: bool) -> bool:
        """Tell whether replies at temperature 0 are those of a higher one: the same to the same seeds, or as far from
        one another. A greedy reply may change with what is computed beside it, so they need not be equal.
        """
        cold = [await self._said(seed, 0.0) for seed in (1, 2)]
        if _equal(cold):
            return False
        if seeded and cold == list(hot[:2]):
            return True
        cold.append(await self._said(3, 0.0))
        if not _apart(cold, hot):
            return False
        cold += [await self._said(seed, 0.0) for seed in range(4, 10)]
        return _apart(cold, hot)

    async def _cap(self, hot: Sequence[str | None]) -> float | None:
        """Return the lowest temperature at which the replies are those of the highest; None where there is none."""
        found = None
        for temperature in CAPS:
            if self._hottest is None or self._hottest <= 1 or temperature >= self._hottest:
                continue
            for seed in (1, 2, 3):
                if not hot[seed - 1] or await self._said(seed, temperature) != hot[seed - 1]:
                    return found
            found = temperature
        return found


def _said(choice: Choice) -> str:
    return f"{choice.reasoning or ''} {choice.text}".strip()


def _equal(replies: Sequence[str | None]) -> bool:
    """Tell whether all say the same; replies without words say nothing."""
    return bool(replies[0]) and len(set(replies)) == 1


def _apart(cold: Sequence[str | None], hot: Sequence[str | None]) -> bool:
    """Tell whether replies at temperature 0 are no nearer to one another than those at the highest."""
    near = _nearness(hot)
    return all(cold) and all(hot) and _nearness(cold) < near + NEARER * (1 - near)


def _nearness(replies: Sequence[str | None]) -> float:
    """Return the share of words with which two replies begin alike, as a mean over pairs."""
    words = [(reply or "").split() for reply in replies]
    shares = [_shared(one, other) / max(len(one), len(other), 1) for one, other in combinations(words, 2)]
    return sum(shares) / len(shares)


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
