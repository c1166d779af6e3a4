"""How a server draws, found by asking simulated ones."""

import asyncio
import random
import zlib
from dataclasses import dataclass, field
from typing import Any

import pytest

from robust_eval.model.served.probe import WORDS, Sampling, SamplingProbe
from robust_eval.model.served.transport.service import Choice, ServiceResponse
from robust_eval.prompt.prompt import Prompt

SEEDED = Sampling(seed=True, takes_seed=True)
UNSEEDED = Sampling(seed=False, takes_seed=True)
REFUSES_SEEDS = Sampling(seed=False, takes_seed=False)


@dataclass
class Simulated:
    """Writes sixteen words, each the likeliest with probability ``p`` at temperature 1, or one of ``others`` that are
    equally likely; after another word come others. At a share ``noise`` of places it takes another word by chance, at
    temperature 0 as well.
    """

    p: float = 0.4
    noise: float = 0.0
    others: int = 100
    seeded: bool = True
    takes_seed: bool = True
    deterministic: bool = False
    ignores: bool = False
    cap: float = 9.0
    copies: bool = False
    silent: bool = False
    begins_alike: bool = False
    """It thinks for a while, each time in the same words."""
    key: str = ""
    """Servers with other keys draw other words."""
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.key)

    async def __call__(self, prompt: Prompt, **settings: Any) -> ServiceResponse | None:
        assert prompt == WORDS
        self.bodies.append(settings)
        if "seed" in settings and not self.takes_seed:
            return None
        heat = 1.0 if self.ignores else min(settings.get("temperature", 1.0), self.cap)
        seed, number = settings.get("seed", 0), settings.get("n", 1)
        texts = [self.text(heat, self.drawn(seed + index), settings["max_tokens"]) for index in range(number)]
        texts = [texts[0]] * number if self.copies else texts
        return ServiceResponse([Choice(text, "stop", False, None) for text in texts], 1, 1)

    def drawn(self, seed: int) -> random.Random:
        drawn = 0 if self.deterministic else seed if self.seeded else self.chance.random()
        return random.Random(f"{self.key} {drawn}")

    def text(self, heat: float, drawn: random.Random, limit: int) -> str:
        if self.silent:
            return ""
        text = "hm " * 16 if self.begins_alike else ""
        if self.begins_alike and limit < 100:
            return text.strip()
        first = self.p ** (1 / heat) if heat else 1.0
        rest = self.others * ((1 - self.p) / self.others) ** (1 / heat) if heat else 0.0
        share = first / (first + rest)
        for _ in range(16):
            place = drawn.random()
            word = 0 if place < share else 1 + int((place - share) / (1 - share) * self.others)
            word = self.chance.randrange(self.others) if self.chance.random() < self.noise else word
            text += f"{zlib.crc32(text.encode())}.{word} "
        return text.strip()


def found(server: Simulated, hottest: float | None = 2.0, greedy: bool = True, choices: int = 8) -> Sampling:
    return asyncio.run(SamplingProbe(server, "max_tokens", hottest, greedy).run(choices))


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (Simulated(), SEEDED),
        (Simulated(seeded=False), UNSEEDED),
        (Simulated(takes_seed=False, seeded=False), REFUSES_SEEDS),
        (Simulated(silent=True), UNSEEDED),
        (Simulated(begins_alike=True), UNSEEDED),
        (Simulated(deterministic=True), Sampling(False, True, deterministic=True)),
        (Simulated(deterministic=True, takes_seed=False), Sampling(False, False, deterministic=True)),
        (Simulated(copies=True), Sampling(True, True, copies=True)),
        (Simulated(copies=True, seeded=False), Sampling(False, True, copies=True)),
        (Simulated(ignores=True), Sampling(True, True, ignores_temperature=True)),
        (Simulated(ignores=True, seeded=False), Sampling(False, True, ignores_temperature=True)),
        (Simulated(ignores=True, copies=True), Sampling(True, True, copies=True, ignores_temperature=True)),
        (Simulated(cap=1.5), Sampling(True, True, cap=1.5)),
        (Simulated(cap=1.0), Sampling(True, True, cap=1.0)),
        (Simulated(cap=0.5), Sampling(True, True, cap=0.5)),
    ],
    ids=lambda case: " ".join(f"{name}={value}" for name, value in vars(case).items() if value not in ([], None))[:150],
)
def test_each_kind_of_server_is_found_out(server: Simulated, expected: Sampling) -> None:
    assert found(server) == expected


def test_an_honest_server_is_asked_for_few_replies() -> None:
    for server, most in ((Simulated(), 8), (Simulated(seeded=False), 7), (Simulated(takes_seed=False), 7)):
        found(server)
        assert len(server.bodies) <= most


def test_a_server_without_temperatures_is_sent_none_and_given_room_to_think() -> None:
    server = Simulated()
    assert found(server, hottest=None, greedy=False) == SEEDED
    assert not any("temperature" in body or body["max_tokens"] < 500 for body in server.bodies)


def test_a_cap_is_not_looked_for_where_no_higher_temperature_is_asked() -> None:
    assert found(Simulated(cap=0.5), hottest=1.0) == SEEDED


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_honest_servers_are_hardly_ever_accused(seeded: bool, noise: float) -> None:
    """Also where one greedy word of a hundred is another one by what is computed beside it."""
    kinds = [found(Simulated(p, noise, seeded=seeded, key=f"{n}")) for p in (0.2, 0.5, 0.8) for n in range(20)]
    accused = [each for each in kinds if each.deterministic or each.copies or each.ignores_temperature or each.cap]
    assert accused == []
    assert noise or set(kinds) == {SEEDED if seeded else UNSEEDED}


def test_servers_that_ignore_the_temperature_are_mostly_found_out_without_seeds() -> None:
    kinds = [
        found(Simulated(p, seeded=False, ignores=True, key=f"{number}"))
        for p in (0.2, 0.5, 0.8)
        for number in range(20)
    ]
    assert sum(kind.ignores_temperature for kind in kinds) >= 0.95 * len(kinds)
