"""What a server can do, found by asking it: some are silent about what they drop."""

import hashlib
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

from robust_eval.error import OutageError, UserError
from robust_eval.model.base import Temperatures
from robust_eval.model.logprobs import fault, is_whole
from robust_eval.model.served.sampling_probe import THOUGHTFUL, SamplingProbe
from robust_eval.model.served.service import Answered, UnansweredError
from robust_eval.prompt.prompt import Prompt

log = logging.getLogger(__name__)

Ask = Callable[[Prompt, bool, Mapping[str, Any]], Awaitable[Answered]]
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
MEMORY = "capabilities"
"""Where the machine remembers what servers can do, under :func:`today`."""

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


def today(identity: Mapping[str, Any]) -> str:
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

    async def takes(prompt: Prompt, **more: Any) -> Answered | None:
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
