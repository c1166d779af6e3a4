import asyncio
import random
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from robust_eval.model.served.probe import WORDS, Capabilities, SamplingProbe
from robust_eval.model.served.transport.service import Choice, ServiceResponse
from robust_eval.prompt.prompt import Prompt

CAN = Capabilities("max_tokens", True, True, {}, 2.0, 0, False, 8, seed=False)
SEEDED = replace(CAN, seed=True)
REFUSES_SEEDS = replace(CAN, takes_seed=False)
IGNORES = {"ignores_temperature": True, "greedy": False, "own_temperature": True}


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


def probed(server: Simulated, can: Capabilities = CAN) -> Capabilities:
    return asyncio.run(SamplingProbe(server, can).run())


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (Simulated(), SEEDED),
        (Simulated(seeded=False), CAN),
        (Simulated(takes_seed=False, seeded=False), REFUSES_SEEDS),
        (Simulated(silent=True), CAN),
        (Simulated(begins_alike=True), CAN),
        (Simulated(deterministic=True), replace(CAN, deterministic=True)),
        (Simulated(deterministic=True, takes_seed=False), replace(REFUSES_SEEDS, deterministic=True)),
        (Simulated(copies=True), replace(SEEDED, copies=True, choices=1)),
        (Simulated(copies=True, seeded=False), replace(CAN, copies=True, choices=1)),
        (Simulated(ignores=True), replace(SEEDED, **IGNORES)),
        (Simulated(ignores=True, seeded=False), replace(CAN, **IGNORES)),
        (Simulated(ignores=True, copies=True), replace(SEEDED, **IGNORES, copies=True, choices=1)),
        *((Simulated(cap=t), replace(SEEDED, highest_temperature=t, capped=True)) for t in (1.5, 1.0, 0.5)),
    ],
    ids=lambda case: " ".join(f"{name}={value}" for name, value in vars(case).items() if value not in ([], None))[:150],
)
def test_each_kind_of_server_is_found_out(server: Simulated, expected: Capabilities) -> None:
    assert probed(server) == expected


def test_an_honest_server_is_asked_for_few_replies() -> None:
    for server, most in ((Simulated(), 8), (Simulated(seeded=False), 7), (Simulated(takes_seed=False), 7)):
        probed(server)
        assert len(server.bodies) <= most


def test_a_server_without_temperatures_is_sent_none_and_given_room_to_think() -> None:
    server = Simulated()
    can = replace(CAN, own_temperature=True, greedy=False)
    assert probed(server, can) == replace(can, seed=True)
    assert not any("temperature" in body or body["max_tokens"] < 500 for body in server.bodies)


def test_a_cap_is_not_looked_for_where_no_higher_temperature_is_asked() -> None:
    can = replace(SEEDED, highest_temperature=1.0)
    assert probed(Simulated(cap=0.5), can) == can


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_honest_servers_are_hardly_ever_accused(seeded: bool, noise: float) -> None:
    """Also where one greedy word of a hundred is another one by what is computed beside it."""
    kinds = [probed(Simulated(p, noise, seeded=seeded, key=f"{n}")) for p in (0.2, 0.5, 0.8) for n in range(20)]
    assert all(each.faithful for each in kinds)
    assert noise or all(each == (SEEDED if seeded else CAN) for each in kinds)


def test_servers_that_ignore_the_temperature_are_mostly_found_out_without_seeds() -> None:
    kinds = [
        probed(Simulated(p, seeded=False, ignores=True, key=f"{number}"))
        for p in (0.2, 0.5, 0.8)
        for number in range(20)
    ]
    assert sum(kind.ignores_temperature for kind in kinds) >= 0.95 * len(kinds)
