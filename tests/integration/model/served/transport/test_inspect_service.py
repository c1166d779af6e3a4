"""What comes of requests through inspect_ai: its own mock provider, and services that speak OpenAI's protocol."""

import asyncio
import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import inspect_ai.model
import pyarrow.parquet as pq
import pytest
from api_server import api_server
from batch_server import batch_server
from dialects import DIALECTS
from experiments import run_experiment
from fault_proxy import FaultProxy
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    Logprobs,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.model._model_output import Logprob, TopLogprob
from inspect_ai.model._providers.util import batch_log
from scripted_server import Answer, Body, scripted_server

from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register
from robust_eval.error import UserError
from robust_eval.model.served.inspect_ai import InspectAI
from robust_eval.model.served.structured import restriction
from robust_eval.model.served.transport import inspect_service
from robust_eval.model.served.transport.inspect_service import InspectService
from robust_eval.model.served.transport.service import Choice, ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Token
from robust_eval.prompt.prompt import Prompt

KEY = "sk-planted-0123456789"
PROMPT = Prompt("Be brief.", (), "Name an animal.")
USAGE = ModelUsage(input_tokens=5, output_tokens=3, input_tokens_cache_read=4, reasoning_tokens=2)
CERTAINTY = ["experiment=certainty", "dataset=facts", "dataset.limit=3", "sampler.repetition.trials=4"]


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: tmp_path / "cache")
    for service in ("LLAMA", "OPENAI"):
        monkeypatch.setenv(f"{service}_API_KEY", KEY)


def asked(say: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> ServiceResponse:
    """What comes of a request to inspect_ai's mock provider, which calls ``say``."""

    def mocked(model: str, **given: Any) -> inspect_ai.model.Model:
        return inspect_ai.model.get_model(model, **given, custom_outputs=say)

    monkeypatch.setattr(inspect_service, "get_model", mocked)

    async def ask() -> ServiceResponse:
        async with InspectService("mockllm/m", None, {}, 4) as service:
            return await service.ask(PROMPT, True, {"max_tokens": 3, **settings})

    return asyncio.run(ask())


def output(content: Any, stop: Any = "stop", **more: Any) -> ModelOutput:
    message = ChatMessageAssistant(content=content)
    return ModelOutput(choices=[ChatCompletionChoice(message=message, stop_reason=stop, **more)], usage=USAGE)


def test_a_request_is_sent_in_the_words_of_inspect_and_read_whole(monkeypatch: pytest.MonkeyPatch):
    seen = []
    top = [TopLogprob(token="b", logprob=-2.0), TopLogprob(token="a", logprob=-0.5)]
    logprobs = Logprobs(content=[Logprob(token="a", logprob=-0.5, bytes=[97], top_logprobs=top)])

    def say(messages: Any, tools: Any, choice: Any, config: Any) -> ModelOutput:
        seen.append(([(each.role, each.text) for each in messages], config.model_dump(exclude_none=True)))
        content = [ContentReasoning(reasoning="hm"), ContentText(text="a")]
        return output(content, "max_tokens", logprobs=logprobs)

    settings = {"temperature": 0.5, "top_p": 1.0, "top_k": 5, "min_p": 0.0, "seed": 7, "n": 2}
    got = asked(say, monkeypatch, logprobs=True, top_logprobs=2, **settings)
    assert got == ServiceResponse([Choice("a", "length", False, [Token(b"a", -0.5, [-0.5, -2.0])], "hm")], 9, 3, 2, 4)
    assert seen == [
        (
            [("system", "Be brief."), ("user", "Name an animal.")],
            {
                "max_tokens": 3,
                "temperature": 0.5,
                "top_p": 1.0,
                "top_k": 5,
                "seed": 7,
                "num_choices": 2,
                "logprobs": True,
                "top_logprobs": 2,
                "cache_prompt": False,
                "extra_body": {"top_k": 5, "min_p": 0.0},
            },
        )
    ]


def test_an_effort_and_a_restriction_to_letters_are_settings_of_inspect(monkeypatch: pytest.MonkeyPatch):
    configs = []

    def say(messages: Any, tools: Any, choice: Any, config: Any) -> ModelOutput:
        configs.append(config.model_dump(exclude_none=True, by_alias=True))
        return output('{"answer": "B"}')

    asked(say, monkeypatch, effort="low", **restriction("schema", ("A", "B")))
    assert configs[0]["effort"] == "low"
    assert "extra_body" not in configs[0]
    answer = {"type": "string", "enum": ["A", "B"]}
    schema = configs[0]["response_schema"]
    assert (schema["strict"], schema["json_schema"]["properties"]["answer"]) == (True, answer)


def test_a_filter_a_refusal_and_an_error_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    assert asked(lambda *_: output("…", "content_filter"), monkeypatch).choices[0].finish_reason == "filter"
    refused = [ContentText(text="I will not", refusal=True)]
    assert asked(lambda *_: output(refused), monkeypatch).choices[0].refused
    with pytest.raises(UnansweredError, match=r"^mockllm/m sent no choices$") as nothing:
        asked(lambda *_: ModelOutput(usage=USAGE), monkeypatch)
    assert nothing.value.kind == "garbled"

    def fail(*_: Any) -> ModelOutput:
        raise ValueError("no such setting")

    with pytest.raises(UnansweredError, match=r"^ValueError: no such setting$") as wrong:
        asked(fail, monkeypatch)
    assert wrong.value.kind == "wrong"


@pytest.mark.parametrize(
    ("status", "error", "kind", "wait"),
    [
        (401, {"message": f"who is {KEY}?"}, "fatal", None),
        (429, {"message": "slower"}, "busy", 3.0),
        (429, {"message": "insufficient_quota", "code": "insufficient_quota"}, "fatal", 3.0),
        (500, {"message": "broken"}, "lost", 3.0),
        (400, {"message": "no such setting"}, "wrong", None),
        (400, {"message": "filtered", "code": "content_filter"}, "filtered", None),
        (400, {"message": "too long", "code": "context_length_exceeded"}, "wrong", None),
        (404, {"message": "no endpoints can handle the requested parameters"}, "wrong", None),
    ],
)
def test_a_refusal_is_asked_once_and_says_what_it_means(status: int, error: Any, kind: str, wait: float | None):
    async def ask(url: str) -> None:
        async with InspectService("openai-api/llama/m", url, {}, 4) as service:
            await service.ask(PROMPT, True, {"max_tokens": 3})

    with scripted_server(lambda _: (status, {"retry-after": "3"}, {"error": error})) as server:
        with pytest.raises(UnansweredError) as refused:
            asyncio.run(ask(server.url))
        assert len(server.received) == 1
    assert (refused.value.kind, refused.value.retry_after if wait else None) == (kind, wait)
    assert KEY not in str(refused.value)


def run(folder: Path, model: list[str], *overrides: str) -> Any:
    folder.mkdir()
    register()
    checked = checked_overrides([*model, "tracking=none", f"paths.mlruns={folder.parent}", *overrides])
    return run_experiment(folder, *checked.overrides)


def through_inspect(url: str, name: str = "openai-api/llama/m") -> list[str]:
    return ["model=inspect", f"model.model={name}", f"model.base_url={url}"]


def counting(dialect: str) -> Answer:
    """A service that says how many tokens there were in all, as inspect_ai wants it."""

    def answer(body: Body) -> tuple[int, Mapping[str, str], Any]:
        status, headers, reply = DIALECTS[dialect](body)
        if status == 200:
            reply["usage"]["total_tokens"] = reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]
            reply |= {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return status, headers, reply

    return answer


@pytest.mark.parametrize("dialect", ["no temperature", "anthropic", "deepseek"])
def test_what_a_provider_lacks_is_found_by_asking(dialect: str, tmp_path: Path):
    with scripted_server(counting(dialect)) as server:
        room = "sampler.repetition.max_new_tokens=64"
        result = run(tmp_path / "run", through_inspect(server.url), *CERTAINTY, room)
    table = result.graded_by_sampler["repetition"]
    own = dialect == "no temperature"
    assert set(table["outcome"].to_pylist()) == {"ok"}
    assert set(map(str, table["temperature"].to_pylist())) == {"nan" if own else "0.7"}


def test_a_temperature_that_inspect_drops_in_silence_is_not_believed(tmp_path: Path):
    with scripted_server(counting("tags")) as server:
        model = [*through_inspect(server.url, "openai/o3-mini"), "model.model_args={responses_api: false}"]
        result = run(tmp_path / "run", model, *CERTAINTY, "sampler.repetition.max_new_tokens=64")
    assert set(map(str, result.graded_by_sampler["repetition"]["temperature"].to_pylist())) == {"nan"}


def test_answers_are_those_that_the_same_server_gives_to_ours_and_none_is_asked_twice(tmp_path: Path):
    frs = ["experiment=frs", "sampler.selection=none", "dataset.limit=3", "sampler.trials=2"]
    frs += ["sampler.temperatures=[0.5,1.0]", "sampler.prompts=builtin:zero_shot.yaml"]
    # what llama.cpp computes beside a request, and has in its cache, changes the last digits that it draws from
    frs += ["model.max_concurrency=1", "model.extra_body={cache_prompt: false}"]
    prices = ["model.prompt_price=1000", "model.completion_price=1000"]
    with api_server() as url, FaultProxy(url, rate=0.0) as proxy:
        ours = ["model=openai_compatible", f"model.base_url={url}", "model.model=m"]
        direct = run(tmp_path / "ours", ours, *frs)
        theirs = [*through_inspect(proxy.base_url), *prices]
        with pytest.raises(UserError, match=r"the next request could exceed model\.budget"):
            run(tmp_path / "cut", theirs, *frs, "model.budget=0.25")
        before = {entry.body for entry in proxy.log}
        cut = len(proxy.log)
        again = run(tmp_path / "theirs", theirs, *frs)
        bodies = [entry.body for entry in proxy.log]
        assert len(bodies) > cut
        assert before.isdisjoint(bodies[cut:])
        assert run(tmp_path / "stored", theirs, *frs).prompts_asked == 0
        assert len(proxy.log) == len(bodies)
    place = ["sampler", "question_id", "rewrite", "temperature", "trial", "text", "correct"]
    tables = [pq.read_table(tmp_path / name / "answers.parquet").select(place) for name in ("ours", "theirs")]
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert again.summary()["accuracy.t1"] == direct.summary()["accuracy.t1"]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


@pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning")  # of tenacity, which inspect_ai calls
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")  # of inspect_ai
def test_all_requests_of_a_stage_are_in_one_batch_of_the_provider_at_its_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(inspect_service, "BATCH_TICK", 0.05)
    with batch_server() as server:
        model = [*through_inspect(server.url, "openai/gpt-4o-mini"), "model.model_args={responses_api: false}"]
        model += ["model.prompt_price=1e6", "model.completion_price=1e6", "model.batch=true"]
        result = run(tmp_path / "run", model, *CERTAINTY, "store=none")
        assert [each["request_counts"]["completed"] for each in server.batches.values()] == [3, 3]
        assert not any("carbon" in str(body) for body in server.bodies[: server.calls["ask"]])  # of the probe
    assert "a run that is killed pays for their requests again" in caplog.text
    assert result.graded_by_sampler["repetition"]["outcome"].to_pylist() == ["ok"] * 12
    tokens = result.summary()
    used = sum(tokens[f"tokens.answering.{name}"] for name in ("prompt", "completion"))
    assert result.description["loaded.cost"] == used / 2
    assert InspectAI(name="m", model="openai/m", batch=True).answer_timeout > 24 * 3600
    gc.collect()  # while warnings are ignored


def test_a_batch_that_a_provider_refuses_ends_the_run_for_inspect_sends_no_other():
    async def ask() -> None:
        async with InspectService("mockllm/m", None, {}, 4) as service:

            async def refused(*_: object) -> ModelOutput:
                batch_log.log_batch("Error creating batch, failing all 3 requests in batch. Error: no quota")
                return await asyncio.Future()  # a request of the next batch

            service._api.generate = refused  # type: ignore[method-assign, assignment]
            await service.ask(PROMPT, True, {"max_tokens": 3, "batch": True})

    with pytest.raises(UnansweredError, match="no quota") as problem:
        asyncio.run(ask())
    assert problem.value.kind == "fatal"
