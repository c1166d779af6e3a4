"""A sweep that asks no more than breaking temperatures need, of a server: what it finds, asks, keeps and says."""

import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dialects import ANSWERS
from experiments import run_experiment
from scripted_server import Body, ScriptedServer, scripted_server

from robust_eval.error import UserError
from robust_eval.record.result import Result
from robust_eval.runtime import measured_choices

FACTS, GRID, TRIALS = 6, 10, 10
Asked = tuple[str, float, int]
"""Question, temperature and seed of an answer."""


@dataclass
class Server:
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
        number, text = body.get("n", 1), body["messages"][-1]["content"]
        found = re.findall(r"(?:Question: |^)(.+\?)", text, flags=re.MULTILINE)
        question = found[-1] if found and found[-1] in ANSWERS else None
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
            top = [{"token": f"t{rank}", "logprob": -0.7 - rank, "bytes": None} for rank in range(20)]
            token = {"token": said, "logprob": -0.7, "bytes": list(said.encode()), "top_logprobs": top}
            message = {"role": "assistant", "content": said}
            choices.append(
                {"index": index, "finish_reason": "stop", "message": message, "logprobs": {"content": [token]}}
            )
        usage = {"prompt_tokens": 20, "completion_tokens": number}
        return 200, {}, {"choices": choices, "usage": usage}


def said_to(question: str, temperature: float, seed: int) -> str:
    """What is said of a question: what is right up to a temperature that is its own, more or less."""
    firm = 0.4 + 2.4 * (zlib.crc32(question.encode()) % 101) / 100
    drawn = zlib.crc32(f"{question} {temperature!r} {seed}".encode()) % 1000 / 1000
    return ANSWERS.get(question, "a llama") if temperature == 0 or drawn < 1.5 - temperature / firm else "Xanadu"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(measured_choices, "cache_folder", lambda: folder)


@pytest.fixture
def served() -> Iterator[ScriptedServer]:
    with scripted_server(Server()) as server:
        yield server


NUMBERS = itertools.count()


def ask(server: ScriptedServer, place: Path, *overrides: str, store: str = "store") -> Result:
    folder = place / f"run{next(NUMBERS)}"
    folder.mkdir()
    return run_experiment(
        folder,
        *("experiment=frs", "model=openai_compatible", f"model.base_url={server.url}", "model.model=m"),
        *(f"dataset.limit={FACTS}", "tracking=none", f"paths.mlruns={place / store}"),
        *overrides,
    )


def scored(result: Result) -> dict[str, Any]:
    """All that rests on breaking temperatures."""
    figures = {name: value for name, value in result.summary().items() if name.startswith("frs.")}
    return figures | {"questions": result.scores["frs"].tables["frs"].to_pylist()}


def answers(result: Result) -> dict[tuple[str, float, int], str]:
    table = result.graded["temperature_sweep"]
    columns = (table[name].to_pylist() for name in ("question_id", "temperature", "trial", "text"))
    return {(question, t, trial): text for question, t, trial, text in zip(*columns, strict=True)}


UNDECIDED = "sampler.temperature_sweep.ask=undecided"


@pytest.mark.parametrize("choices", [1, 4])
def test_breaking_temperatures_and_scores_are_those_of_all_answers_for_fewer(
    served: ScriptedServer, tmp_path: Path, choices: int
):
    served.answer = few = Server(choices)
    less = ask(served, tmp_path, UNDECIDED, store="less")
    served.answer = many = Server(choices)
    whole = ask(served, tmp_path, store="all")
    assert scored(less) == scored(whole)
    drawn = [{key: n for key, n in each.answered.items() if key[1] > 0} for each in (few, many)]
    assert drawn[0].items() <= drawn[1].items()
    assert len(drawn[1]) == FACTS * GRID * TRIALS
    assert FACTS * 5 <= len(drawn[0]) <= 0.6 * len(drawn[1])
    assert set(few.answered.values()) == {1}
    assert answers(less).items() <= answers(whole).items()
    assert len(answers(less)) == len(drawn[0])
    assert not {"accuracy", "accuracy_combined"} & less.scores["frs"].curves.keys()
    assert set(less.scores["frs"].tables) == {"frs", "frs_types"}


def test_asking_for_all_afterwards_asks_for_the_rest_alone(served: ScriptedServer, tmp_path: Path):
    served.answer = server = Server()
    ask(served, tmp_path, UNDECIDED)
    before = server.answered.total()
    whole = ask(served, tmp_path)
    assert server.answered.total() - before == FACTS * GRID * TRIALS - (before - FACTS)
    assert set(server.answered.values()) == {1}
    served.answer = Server()
    fresh = ask(served, tmp_path, store="fresh")
    assert whole.graded["temperature_sweep"].equals(fresh.graded["temperature_sweep"])
    assert whole.summary().keys() == fresh.summary().keys()
    again = ask(served, tmp_path, UNDECIDED)
    assert (again.prompts_asked, scored(again)) == (0, scored(whole))


def test_faults_lose_nothing(served: ScriptedServer, tmp_path: Path):
    served.answer = Server()
    undisturbed = ask(served, tmp_path, UNDECIDED, store="undisturbed")
    served.answer = server = Server(failing=0.2)
    result = ask(served, tmp_path, UNDECIDED, "model.retries=3")
    assert len(server.failed) > 10
    assert answers(result) == answers(undisturbed)
    assert scored(result) == scored(undisturbed)


def test_a_run_that_ends_thirty_times_asks_for_nothing_twice(served: ScriptedServer, tmp_path: Path):
    served.answer = Server()
    undisturbed = ask(served, tmp_path, UNDECIDED, store="undisturbed")
    served.answer = server = Server()
    for part in range(30):
        server.requests, server.ends_after = 0, 6
        with pytest.raises(UserError, match="no such key"):
            ask(served, tmp_path, UNDECIDED)
        assert server.answered.total() == 6 * (part + 1)
    server.ends_after = None
    result = ask(served, tmp_path, UNDECIDED)
    assert answers(result) == answers(undisturbed)
    assert scored(result) == scored(undisturbed)
    assert set(server.answered.values()) == {1}
