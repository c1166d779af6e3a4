"""Probe of how a server draws: whether seeds, the temperature and ``n`` make a difference to what it replies.

It is asked for sixteen random words, which no two draws have in common by chance. It takes about eight requests.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

from robust_eval.model.served.service import Answered, Choice
from robust_eval.prompt.prompt import Prompt

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


class Takes(Protocol):
    """Sends a request with these settings; None where the server refuses it."""

    def __call__(self, prompt: Prompt, **settings: Any) -> Awaitable[Answered | None]: ...


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

    def __init__(self, takes: Takes, limit: str, hottest: float | None, greedy: bool) -> None:
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

    async def _asked(self, seed: int, temperature: float | None, **more: Any) -> Answered | None:
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
