"""A server that answers facts the more seldom rightly the higher the temperature, and runs that ask it no more than
breaking temperatures need.
"""

import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialects import ANSWERS
from experiments import run_experiment
from scripted_server import Body, ScriptedServer, certain_choice

from robust_eval.tracking.result import Result

FACTS, GRID, TRIALS = 6, 10, 10
Asked = tuple[str, float, int]
"""Question, temperature and seed of an answer."""


@dataclass
class FadingServer:
    """Answers a fact the more seldom rightly the higher the temperature, the same to the same seed; counts answers."""

    choices: int = 1
    failing: float = 0.0
    """The share of requests that meet a fault, the first time."""
    ends_after: int | None = None
    """The number of requests after which the key is refused."""
    answered: Counter[Asked] = field(default_factory=Counter)
    failed: set[str] = field(default_factory=set)
    requests: int = 0

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        number, question = body.get("n", 1), asked_of(body)
        if question is not None:
            self.requests += 1
            if self.ends_after is not None and self.requests > self.ends_after:
                return 401, {}, {"error": {"message": "no such key", "code": "invalid_api_key"}}
        if number > self.choices:
            return 400, {}, {"error": {"message": "too many choices", "code": None}}
        digest = json.dumps(body, sort_keys=True)
        if question and zlib.crc32(digest.encode()) % 100 < 100 * self.failing and digest not in self.failed:
            self.failed.add(digest)
            return 503, {"retry-after": "0.01"}, {"error": {"message": "overloaded", "code": None}}
        choices = []
        for index in range(number):
            seed, t = body.get("seed", 0) + index, body.get("temperature", 1.0)
            if question:
                self.answered[question, t, seed] += 1
            said = said_to(question or "", t, seed)
            choices.append(certain_choice(index, said))
        usage = {"prompt_tokens": 20, "completion_tokens": number}
        return 200, {}, {"choices": choices, "usage": usage}


def asked_of(body: Body) -> str | None:
    """The question of a request; None where it is only asked what the server can do."""
    found = re.findall(r"(?:Question: |^)(.+\?)", body["messages"][-1]["content"], flags=re.MULTILINE)
    return found[-1] if found and found[-1] in ANSWERS else None


def said_to(question: str, temperature: float, seed: int) -> str:
    """What is said of a question: what is right up to a temperature that is its own, more or less."""
    firm = 0.4 + 2.4 * (zlib.crc32(question.encode()) % 101) / 100
    drawn = zlib.crc32(f"{question} {temperature!r} {seed}".encode()) % 1000 / 1000
    return ANSWERS.get(question, "a llama") if temperature == 0 or drawn < 1.5 - temperature / firm else "Xanadu"


UNDECIDED = "sampler.temperature_sweep.early_stop=true"

NUMBERS = itertools.count()


def settings(server: ScriptedServer, mlruns: Path) -> list[str]:
    return [
        *("experiment=frs", "model=openai_compatible", f"model.base_url={server.url}", "model.model=m"),
        *(f"dataset.limit={FACTS}", "tracking=none", f"paths.mlruns={mlruns}"),
    ]


def ask(server: ScriptedServer, place: Path, *overrides: str, store: str = "store") -> Result:
    folder = place / f"run{next(NUMBERS)}"
    folder.mkdir()
    return run_experiment(folder, *settings(server, place / store), *overrides)


def scored(result: Result) -> dict[str, Any]:
    """All that rests on breaking temperatures."""
    figures = {name: value for name, value in result.summary().items() if name.startswith("frs.")}
    return figures | {"questions": result.scores["frs"].tables["frs"].to_pylist()}


def answers(result: Result) -> dict[tuple[str, float, int], str]:
    table = result.graded_by_sampler["temperature_sweep"]
    columns = (table[name].to_pylist() for name in ("question_id", "temperature", "trial", "text"))
    return {(question, t, trial): text for question, t, trial, text in zip(*columns, strict=True)}
