import asyncio
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Answer, Body, ScriptedServer, scripted_server, words

from robust_eval.error import UserError
from robust_eval.model.base import Request
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities, probe
from robust_eval.model.served.transport.service import Service, ServiceResponse, UnansweredError
from robust_eval.prompt.prompt import Prompt

LOGITS = (0.0, *(-1.0 - 0.1 * rank for rank in range(30)))
CONFIDENT = (0.0, *(-6.0 - 0.1 * rank for rank in range(30)))
NAME = "the server of the institute"


class RefusedError(Exception):
    """What the server does not take: a status and a code."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Kind:
    """A kind of server; by default one that takes and gives everything."""

    unknown: tuple[str, ...] = ()
    """Settings that are refused."""
    ignored: tuple[str, ...] = ()
    """Settings that are dropped in silence."""
    refuses: Callable[[Body], bool] = lambda body: False
    system_role: bool = True
    temperatures: Callable[[float], bool] = lambda temperature: temperature <= 2
    most_logprobs: int = 20
    cut_logprobs: bool = False
    """Whether more are answered with as many as there are, and not refused."""
    tempered: bool = False
    logits: tuple[float, ...] = LOGITS
    noise: float = 0.0
    """By how much that of the first token is less at another temperature than 1, by chance."""
    added: float = 0.0
    """What is wrong with each log-probability."""
    most_choices: int = 128
    cut_choices: bool = False
    seeds: bool = True
    text: str | None = None
    """What is always said."""
    filters: bool = False
    requests: "itertools.count[int]" = field(default_factory=itertools.count)

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        try:
            return 200, {}, self.reply({name: value for name, value in body.items() if name not in self.ignored})
        except RefusedError as problem:
            error = {"message": str(problem), "type": "invalid_request_error", "param": None, "code": problem.code}
            return problem.status, {}, {"error": error}

    def reply(self, body: Body) -> Body:
        self.check(body)
        chat = "messages" in body
        number = next(self.requests)
        seed = body.get("seed") if self.seeds else None
        choices = []
        for index in range(min(body.get("n", 1), self.most_choices)):
            drawn = f"{number} {index}" if seed is None else str(seed + index)
            heat = body.get("temperature", 1.0)
            text = self.text or words(f"{drawn} {heat}" if heat else "greedy")
            shown = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choices.append({"index": index, "finish_reason": "length", "logprobs": self.logprobs(body, chat), **shown})
        return {"choices": choices, "usage": {"prompt_tokens": 9, "completion_tokens": len(choices)}}

    def check(self, body: Body) -> None:
        if self.filters:
            raise RefusedError("The response was filtered.", code="content_filter")
        if unknown := [name for name in self.unknown if name in body]:
            raise RefusedError(f"Unrecognized request argument supplied: {unknown[0]}")
        if self.refuses(body):
            raise RefusedError("Invalid value.")
        if not self.system_role and any(turn["role"] == "system" for turn in body.get("messages", ())):
            raise RefusedError("System role not supported")
        if "temperature" in body and not self.temperatures(body["temperature"]):
            raise RefusedError("Invalid temperature.")
        if self.asked(body) > self.most_logprobs and not self.cut_logprobs:
            raise RefusedError("Too many log-probabilities.")
        if body.get("n", 1) > self.most_choices and not self.cut_choices:
            raise RefusedError("Only one completion choice is allowed" if self.most_choices == 1 else "Too many.")

    def asked(self, body: Body) -> int:
        return int(body.get("top_logprobs", 0) if "messages" in body else body.get("logprobs", 0))

    def logprobs(self, body: Body, chat: bool) -> Body | None:
        if not (top := min(self.asked(body), self.most_logprobs)) or not body.get("logprobs"):
            return None
        heat = body.get("temperature", 1.0) if self.tempered else 1.0
        total = math.log(sum(math.exp(logit / heat) for logit in self.logits))
        values = [logit / heat - total + self.added for logit in self.logits[:top]]
        values[0] -= self.noise * (body.get("temperature") != 1)
        if chat:
            likely = [{"token": f"t{rank}", "logprob": value} for rank, value in enumerate(values)]
            return {"content": [{"token": "t0", "bytes": None, "logprob": values[0], "top_logprobs": likely}]}
        likely_too = {f"t{rank}": value for rank, value in enumerate(values)} | {"drawn": -20.0}  # as some add it
        return {"tokens": ["drawn"], "token_logprobs": [-20.0], "top_logprobs": [likely_too]}


OFF = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
ALL = Capabilities("max_tokens", True, True, OFF, 2.0, 20, False, 32, True)


def found(kind: Answer, chat: bool = True, temperature: float = 1.0) -> tuple[Capabilities, ScriptedServer]:
    """What the probe says of a server, and what it asked."""

    async def ask(url: str) -> Capabilities:
        async with Service(url, "m", None, chat, 2) as service:
            return await probe(service.ask, NAME, chat, temperature)

    with scripted_server(kind, honest=False) as server:
        return asyncio.run(ask(server.url)), server


REASONING = Kind(
    unknown=("max_tokens", "top_k", "min_p", "top_p", "logprobs"), temperatures=lambda t: t == 1, most_choices=8
)


OWN_TEMPERATURE = Capabilities(
    "max_completion_tokens", True, False, {}, 1.0, 0, False, 8, True, True, own_temperature=True
)
DROPS = ("logprobs", "seed", "n", "top_k", "min_p", "repetition_penalty")
CASES: dict[str, tuple[Kind, int, dict[str, Any]]] = {
    "everything": (Kind(), 14, {}),
    "everything, plain": (Kind(), 14, {}),
    "OpenAI, up to 2": (Kind(unknown=("top_k", "min_p")), 17, {"truncation_off": {"top_p": 1.0}}),
    "top_k is off at -1": (
        Kind(refuses=lambda body: body.get("top_k") == 0),
        16,
        {"truncation_off": OFF | {"top_k": -1}},
    ),
    "max_completion_tokens": (Kind(unknown=("max_tokens",)), 17, {"limit": "max_completion_tokens"}),
    "16 tokens or more": (Kind(refuses=lambda body: body["max_tokens"] < 16), 20, {}),  # OpenAI's models of OpenRouter
    "reasoning, effort is dropped": (REASONING, 24, vars(OWN_TEMPERATURE)),
    "reasoning, effort is refused": (
        replace(REASONING, unknown=(*REASONING.unknown, "reasoning_effort")),
        23,
        vars(OWN_TEMPERATURE),
    ),
    "reasoning, effort is taken": (
        replace(REASONING, refuses=lambda body: body.get("reasoning_effort", "high") not in ("low", "high")),
        24,
        vars(replace(OWN_TEMPERATURE, takes_effort=True)),
    ),
    "no system role": (Kind(system_role=False), 18, {"system_role": False}),
    "no system role, plain": (Kind(system_role=False), 14, {}),
    "n is dropped": (Kind(most_choices=1, cut_choices=True), 19, {"choices": 1}),
    "n is refused": (Kind(most_choices=1), 19, {"choices": 1}),
    "n is unknown": (Kind(unknown=("n",)), 19, {"choices": 1}),
    "ten slots": (Kind(most_choices=10), 16, {"choices": 10}),
    "three of n": (Kind(most_choices=3, cut_choices=True), 14, {"choices": 3}),
    "tempered": (Kind(tempered=True), 14, {"tempered_logprobs": True}),
    "tempered, plain": (Kind(tempered=True), 14, {"tempered_logprobs": True}),
    "tempered, and sure": (Kind(tempered=True, logits=CONFIDENT), 14, {"tempered_logprobs": True}),
    "noise": (Kind(noise=0.04), 14, {}),
    "more noise": (Kind(noise=0.06), 14, {}),
    "a temperature or top_p": (
        Kind(refuses=lambda body: {"temperature", "top_p"} <= {*body}),
        18,
        {"truncation_off": {}},
    ),
    "seeds are dropped": (Kind(seeds=False), 13, {"seed": False}),
    "seeds are refused": (Kind(unknown=("seed",)), 13, {"seed": False, "takes_seed": False}),
    "always the same answer": (Kind(text="A cat."), 12, {"seed": False, "deterministic": True}),
    "up to 1, asked up to 1.5": (Kind(temperatures=lambda t: t <= 1), 15, {"highest_temperature": 1.0}),
    "up to 5, asked up to 4": (Kind(temperatures=lambda t: t <= 5), 14, {"highest_temperature": 4.0}),
    "up to 2, asked up to 4": (Kind(), 15, {}),
    "five are taken": (Kind(most_logprobs=5), 16, {"top_logprobs": 5}),
    "five are given": (Kind(most_logprobs=5, cut_logprobs=True), 14, {"top_logprobs": 5}),
    "five, plain": (Kind(most_logprobs=5), 16, {"top_logprobs": 5}),
    "all of 3": (Kind(logits=LOGITS[:3]), 14, {"top_logprobs": 3, "whole_vocabulary": True}),
    "log-probabilities that cannot be": (Kind(added=3.0), 23, {"top_logprobs": 0}),
    "log-probabilities that cannot be, plain": (Kind(added=3.0), 23, {"top_logprobs": 0}),
    "logprobs are refused": (Kind(unknown=("logprobs",)), 15, {"top_logprobs": 0}),
    "logprobs are dropped": (Kind(ignored=("logprobs",)), 15, {"top_logprobs": 0}),
    "all is dropped": (Kind(ignored=DROPS), 19, {"top_logprobs": 0, "choices": 1, "seed": False}),
}
"""Kinds of servers, the requests by which each is found out, and the capabilities in which it differs from all."""
HOTTEST = {
    "OpenAI, up to 2": 2.0,
    "up to 1, asked up to 1.5": 1.5,
    "up to 5, asked up to 4": 4.0,
    "up to 2, asked up to 4": 4.0,
}
"""The highest temperature that is asked for, where it is not 1."""


@pytest.mark.parametrize("case", CASES)
def test_finds_out_what_a_server_can_do_with_few_requests(case: str) -> None:
    kind, requests, changes = CASES[case]
    temperature = HOTTEST.get(case, 1.0)
    capabilities, server = found(kind, not case.endswith("plain"), temperature)
    assert capabilities == replace(ALL, **changes | {"probed_for": temperature})
    assert len(server.received) == requests


def test_asks_for_little_text() -> None:
    _, server = found(Kind())
    assert sum(body["max_tokens"] * body.get("n", 1) for body in server.bodies) == 6 + 32 - 1 + (7 + 4) * 48


def test_what_was_found_is_read_back_as_it_was() -> None:
    for capabilities in (ALL, replace(ALL, truncation_off={}, seed=False, choices=1, highest_temperature=1.5)):
        assert Capabilities.from_text(capabilities.to_text()) == capabilities


def test_what_a_server_can_do_is_said_in_words() -> None:
    assert ALL.in_words() == (
        "accepts temperatures from 0 to 2, returns 20 log-probabilities per token and up to 32 answers per request, "
        "and reproduces the answer for a given seed"
    )
    cold = replace(ALL, greedy=False, highest_temperature=1.5, top_logprobs=0, choices=1)
    assert cold.in_words() == (
        "accepts temperatures above 0 to 1.5, returns no log-probabilities and up to 1 answer per request, and "
        "reproduces the answer for a given seed"
    )
    own = replace(ALL, own_temperature=True, tempered_logprobs=True, top_logprobs=5, choices=2, seed=False)
    assert own.in_words() == (
        "accepts no temperature, returns 5 log-probabilities per token (scaled by the temperature) and up to 2 answers "
        "per request, and does not reproduce the answer for a given seed"
    )


def test_log_probabilities_that_cannot_be_are_asked_for_again_before_a_server_is_taken_to_have_none() -> None:
    numbers = itertools.count()

    def answer(body: Body) -> tuple[int, Mapping[str, str], Any]:
        wrong = body.get("logprobs") and next(numbers) in (0, 2, 3)
        return Kind(added=math.nan if wrong else 0.0)(body)

    assert found(answer)[0] == replace(ALL, probed_for=1.0)


# servers that do not answer


def failing(problem: UnansweredError, after: int = 0) -> UserError:
    """What the probe says where each request, after the first ones, fails so."""
    numbers = itertools.count()
    kind = Kind()

    async def ask(prompt: Prompt, system_role: bool, settings: Mapping[str, Any]) -> ServiceResponse:
        if next(numbers) >= after:
            raise problem
        async with Service(server.url, "m", None, True, 1) as service:
            return await service.ask(prompt, system_role, settings)

    with scripted_server(kind) as server, pytest.raises(UserError) as caught:
        asyncio.run(probe(ask, NAME, True, 1.0))
    return caught.value


@pytest.mark.parametrize("kind", ["lost", "busy", "fatal"])
def test_says_why_a_server_does_not_answer(kind: str) -> None:
    problem = UnansweredError(kind, "401 Incorrect API key.")
    assert str(failing(problem)) == "the server of the institute does not answer: 401 Incorrect API key."
    for after in (1, 5, 8):
        assert str(failing(problem, after)) == (
            "the server of the institute failed during the probe of its capabilities: 401 Incorrect API key."
        )


def test_says_three_things_at_most_of_a_server_that_takes_nothing() -> None:
    numbers = itertools.count()

    def refuse(_: Body) -> tuple[int, Mapping[str, str], Any]:
        return 400, {}, {"error": {"message": f"No, {next(numbers)} times."}}

    with pytest.raises(UserError) as caught:
        found(refuse)
    assert str(caught.value) == (
        "the server of the institute refuses every request: 400 No, 0 times.; 400 No, 1 times.; 400 No, 2 times."
    )
    assert next(numbers) <= 20


def test_a_filter_that_takes_every_prompt_of_the_probe_is_no_failure() -> None:
    capabilities, server = found(Kind(filters=True))
    assert capabilities == Capabilities("max_tokens", True, True, OFF, 1.0, 0, False, 1, False, False, 1.0)
    assert len(server.received) <= 20


# what is done about it


def test_a_server_that_refuses_seeds_is_asked_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with scripted_server(Kind(unknown=("seed",))) as server:
        model = OpenAI("m", "m", base_url=server.url, api_key_env=None).load()
        request = Request("q", 0, Prompt("", (), "An animal?"), (0.5,), 2, 8, 1)
        model.check([request])
        replies = [reply for block in model.complete([request], {request.item}) for reply in block]
    assert [completion.outcome for reply in replies for completion in reply.completions] == [None, None]
